"""Riemannian SGHMC: exp(-H / T) is stationary for the steps that the code takes.

The drift and diffusion of a step are read off the kernel and put into the stationarity
condition at random states, which needs no limit and no sampling; laws of whole chains on a
grid, extrapolated to h = 0, and one run in the plane confirm it. A symmetric factor hides a
missing transpose, T = 1 a missing T, and a diagonal the order of indices: the dense metrics here
have a Cholesky factor, and T is not 1. Numbers compared by sampling: 4.
"""

import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex

from . import faults, one_step, sampled
from .problems import line
from .test_position_dependent import (
    PAIRS,
    PHASE,
    PLANE,
    gamma_without_temperature,
    limit,
    moments,
    tilted,
)
from .test_sgrld import EVERY, dense, gradient

FAULTS = {
    "no Gamma": faults.GAMMA_DROPPED,
    "no T": gamma_without_temperature(0.5),
    "no transpose": faults.replacing(ex.Dense, "transpose", lambda matrix: matrix),
}


# --- Step by step ---------------------------------------------------------------------------------


def energy(z):
    return tilted(z[0], z[1]) + 0.5 * z[2:] @ z[2:]


def largest(metric, fault=None, t=0.5):
    """The largest residual of the stationarity condition at random states."""
    right = ex.sgrhmc(gradient(), 0.1, metric, 1.3, temperature=t, scheme="euler")
    kernel = right if fault is None else faults.Planted(right, fault)
    return np.abs(one_step.residuals(kernel, energy, 0.1, t, 4)[0]).max()


@pytest.mark.parametrize("metric", EVERY)
def test_the_target_is_stationary(metric, x64, monkeypatch):
    monkeypatch.setattr(ex.LowRank, "divergence", ex.Dense.divergence)  # exact, without a probe
    assert largest(EVERY[metric]) < 1e-11


@pytest.mark.parametrize(
    ("metric", "fault"),
    [
        ("number", "no Gamma"),
        ("diagonal", "no T"),
        ("of the potential", "no T"),
        *(("dense", fault) for fault in FAULTS),
    ],
)
def test_a_planted_fault_is_not(metric, fault, x64):
    assert largest(EVERY[metric], FAULTS[fault]) > 1e-2


@pytest.mark.parametrize("t", [0.5, 3.0])
def test_fresh_momenta_have_the_stationary_law(t, x64):
    """r ~ N(0, T I), whatever the metric."""
    kernel = ex.sgrhmc(gradient(), 0.1, dense, temperature=t, resample_every=1, scheme="euler")
    start = jnp.array([0.3, -0.7])
    moved, covariance = one_step.law(kernel, start, jnp.array([5.0, 5.0]))
    lower = np.linalg.cholesky(dense(start))
    expected = (0.1**2) * t * lower @ lower.T
    np.testing.assert_allclose(moved[:2], start, atol=1e-12)
    np.testing.assert_allclose(covariance[:2, :2], expected, rtol=1e-10)


# --- With a noisy gradient ------------------------------------------------------------------------

NOISE = np.array([[3.0, 1.0], [1.0, 2.0]])
CLEAN = 0.0 * NOISE


def law_with(noise, told, metric, scheme):
    """The law of one step whose gradient has this noise, and is told to have another."""
    noisy = ex.KnownCovariance(ex.NoisyGradient(gradient().target, noise), told)
    kernel = ex.sgrhmc(noisy, 0.1, metric, 2.0, temperature=0.7, scheme=scheme, compensate=True)
    return one_step.law(kernel, (0.3, -0.7), (1.1, 0.4))


@pytest.mark.parametrize("scheme", ["euler", "semi-implicit"])
@pytest.mark.parametrize("metric", ["number", "diagonal", "dense"])
def test_compensated_noise_leaves_the_law_of_a_step(metric, scheme, x64):
    metric = EVERY[metric]
    clean = law_with(CLEAN, CLEAN, metric, scheme)
    noisy = law_with(NOISE, NOISE, metric, scheme)
    np.testing.assert_allclose(noisy[0], clean[0], atol=1e-14)
    np.testing.assert_allclose(noisy[1], clean[1], atol=1e-14)
    wrong = law_with(NOISE, np.diag(np.diag(NOISE)), metric, scheme)
    assert np.abs(wrong[1] - clean[1]).max() > 1e-3


def test_feasibility_does_not_depend_on_the_metric(key, x64):
    """2 T gamma I >= h V, whatever G: at the edge with a metric as small as it likes."""
    for scale in (1e-3, 1.0, 1e3):
        for excess in (0.99, 1.01):
            noisy = ex.NoisyGradient(gradient().target, excess * 2.0 * 0.7 * 2.0 / 0.1)
            kernel = ex.sgrhmc(
                noisy, 0.1, lambda p, s=scale: s * dense(p), 2.0, temperature=0.7, compensate=True
            )
            state = kernel.init(key, jnp.array([0.3, -0.7]))
            assert bool(kernel.step(key, state)[1].feasible) is (excess < 1.0)


# --- Whole chains ---------------------------------------------------------------------------------


def squared_speed(x):
    return 1.5 * jnp.sqrt(0.5 * x[0] ** 2 + 0.5)


ON_THE_LINE = {
    "number": squared_speed,
    "closed form": ex.Metric(squared_speed, lambda x: 0.75 * x / jnp.sqrt(0.5 * x**2 + 0.5)),
    "of the potential": ex.PotentialMetric(lambda u: 1.5 * jnp.sqrt(u + 0.5)),
}


@pytest.mark.parametrize(("metric", "t"), [(name, 0.5) for name in ON_THE_LINE] + [("number", 1.0)])
def test_on_a_line_it_samples_the_target(metric, t, x64):
    def kernel(h):
        return ex.sgrhmc(ex.FullGradient(line()), h, ON_THE_LINE[metric], temperature=t)

    squares = [lambda x, r: x**2, lambda x, r: r**2]
    measured = limit(kernel, PHASE, 0.1, squares, num_nodes=6, order=6)
    np.testing.assert_allclose(measured, [t, t], rtol=1e-2)


T, H = 1.5, 0.05
EXPECTED = moments(lambda x, y: np.exp(-tilted(x, y) / T), PLANE, PAIRS)
SCALE = np.array([EXPECTED[0], 1.0, EXPECTED[2], EXPECTED[3]])


def assert_moments(kernel, key):
    """Extrapolated from h and h / 2, so that the bias that is left is below the resolution."""
    values = []
    for h, thin in ((H, 1), (H / 2.0, 2)):
        start = np.zeros(2, np.float32)
        draws = sampled.run(kernel(h), start, 3_000 * thin, key, num_chains=256, thin=thin)
        x, y = draws[..., 0], draws[..., 1]
        values.append(np.stack([f(x, y) for f in PAIRS], -1) / SCALE)
    sampled.assert_mean(2.0 * values[1] - values[0], EXPECTED / SCALE, 0.25)


def steep(p):
    """L L^T for a triangular L that varies along both coordinates."""
    x, y = p
    zero = jnp.zeros_like(x)
    top = jnp.stack([1.2 + 0.6 * jnp.tanh(x), zero])
    lower = jnp.stack([top, jnp.stack([0.9 * jnp.tanh(x + y), 1.0 + 0.5 * jnp.tanh(y)])])
    return lower @ lower.T


def in_the_plane(h):
    return ex.sgrhmc(gradient(), h, steep, temperature=T)


@pytest.mark.slow
def test_in_the_plane_it_samples_the_target(key):
    assert_moments(in_the_plane, key)


@pytest.mark.slow
def test_in_the_plane_a_missing_transpose_is_rejected(key):
    with pytest.raises(AssertionError, match="the law differs"):
        assert_moments(lambda h: faults.Planted(in_the_plane(h), FAULTS["no transpose"]), key)
