"""Riemannian Langevin dynamics: in the limit of small steps it samples the target, with Gamma.

The laws of the actual chain at h and h / 2 come from a grid, and Richardson's extrapolation
removes the first order in h. A metric in one dimension, or diagonal entry by entry, can't tell
the right correction from that of Girolami and Calderhead; the metrics in the plane can.
"""

import functools

import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex

from . import faults, one_step
from .test_position_dependent import (
    LINE,
    PAIRS,
    PLANE,
    SQUARES,
    TILTED,
    gamma_without_temperature,
    limit,
    moments,
    tilted,
    well,
)

pytestmark = pytest.mark.usefixtures("x64")


# --- On a line ----------------------------------------------------------------------------------


def softening(x):
    return 1.0 / (1.0 + x[0] ** 2)


def by_potential(u):
    return 1.0 / (1.0 + u)


def on_the_line(metric, t, fault=None):
    gradient = ex.FullGradient(ex.targets.double_well(0.25))

    def kernel(h):
        right = ex.sgrld(gradient, h, metric, temperature=t)
        return right if fault is None else faults.Planted(right, fault)

    return limit(kernel, LINE, 0.04, SQUARES)


def on_the_line_expected(t):
    return moments(lambda x: np.exp(-well(x) / t), LINE, SQUARES)


METRICS = {
    "number": softening,
    "diagonal": lambda x: softening(x)[None],
    "closed form": ex.Metric(softening, lambda x: -2.0 * x / (1.0 + x**2) ** 2),
    "of the potential": ex.PotentialMetric(by_potential),
}


@pytest.mark.parametrize("t", [1.0, 0.5])
@pytest.mark.parametrize("metric", METRICS)
def test_on_a_line_it_samples_the_target(metric, t):
    measured = on_the_line(METRICS[metric], t)
    np.testing.assert_allclose(measured, on_the_line_expected(t), rtol=6e-3)


FAULTS = {"no Gamma": faults.GAMMA_DROPPED, "no T": gamma_without_temperature(0.5)}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("metric", ["number", "of the potential"])
def test_on_a_line_a_planted_fault_is_rejected(metric, fault):
    measured = on_the_line(METRICS[metric], 0.5, FAULTS[fault])
    with pytest.raises(AssertionError, match="Not equal"):
        np.testing.assert_allclose(measured, on_the_line_expected(0.5), rtol=6e-3)


# --- In the plane -------------------------------------------------------------------------------


def dense(p):
    x, y = p
    off = 0.4 * jnp.cos(x - y)
    top = jnp.stack([1.0 + 0.5 * jnp.tanh(y), off])
    return jnp.stack([top, jnp.stack([off, 1.0 + 0.4 * jnp.sin(x)])])


def coupled(p):
    """A diagonal each of whose entries depends on both coordinates."""
    x, y = p
    return jnp.stack([1.0 + 0.6 * jnp.tanh(x + y), 1.0 + 0.5 * jnp.sin(x) * jnp.cos(y)])


def coupled_divergence(p):
    x, y = p
    return jnp.stack([0.6 / jnp.cosh(x + y) ** 2, -0.5 * jnp.sin(x) * jnp.sin(y)])


IN_THE_PLANE = {"dense": dense, "diagonal": ex.Metric(coupled, coupled_divergence)}
TOLERANCE = 6e-3


@functools.cache
def expected(t):
    return moments(lambda x, y: np.exp(-tilted(x, y) / t), PLANE, PAIRS)


def gradient():
    return ex.FullGradient(TILTED)


def in_the_plane(kernel):
    return limit(kernel, PLANE, 0.05, PAIRS, size=2, num_nodes=5, order=6)


@pytest.mark.parametrize(("metric", "t"), [("dense", 1.0), ("dense", 0.5), ("diagonal", 0.5)])
def test_in_the_plane_it_samples_the_target(metric, t):
    measured = in_the_plane(lambda h: ex.sgrld(gradient(), h, IN_THE_PLANE[metric], temperature=t))
    np.testing.assert_allclose(measured, expected(t), atol=TOLERANCE)


def of_girolami_and_calderhead(h, metric, t):
    recipe = ex.dynamics.determinant_corrected_langevin(metric)
    return ex.euler_maruyama(recipe, gradient(), h, temperature=t)


@pytest.mark.parametrize("metric", [dense, coupled])
def test_the_correction_by_the_determinant_is_rejected(metric, monkeypatch):
    # Exact, where one probe would be random.
    monkeypatch.setattr(ex.Diagonal, "divergence", ex.Dense.divergence)
    measured = in_the_plane(lambda h: of_girolami_and_calderhead(h, metric, 1.0))
    with pytest.raises(AssertionError, match="Not equal"):
        np.testing.assert_allclose(measured, expected(1.0), atol=TOLERANCE)


@pytest.mark.parametrize("fault", FAULTS)
def test_in_the_plane_a_planted_fault_is_rejected(fault):
    right = functools.partial(ex.sgrld, gradient(), metric=dense, temperature=0.5)
    measured = in_the_plane(lambda h: faults.Planted(right(h), FAULTS[fault]))
    with pytest.raises(AssertionError, match="Not equal"):
        np.testing.assert_allclose(measured, expected(0.5), atol=TOLERANCE)


# --- Step by step ---------------------------------------------------------------------------------

EVERY = {
    "number": lambda p: 1.0 + 0.4 * jnp.tanh(p[0] * p[1]),
    "dense": dense,
    "diagonal": IN_THE_PLANE["diagonal"],
    "low rank": lambda p: ex.LowRank(jnp.sin(p)[None], 0.5 + 0.2 * jnp.tanh(p[1])),
    "of the potential": ex.PotentialMetric(by_potential),
}


def largest(metric, fault=None, t=0.5):
    """The largest probability current at random points: zero for a reversible sampler."""
    right = ex.sgrld(gradient(), 0.1, metric, temperature=t)
    kernel = right if fault is None else faults.Planted(right, fault)
    _, current = one_step.residuals(kernel, lambda p: tilted(p[0], p[1]), 0.1, t, 2)
    return current


@pytest.mark.parametrize("metric", EVERY)
def test_it_is_reversible(metric, monkeypatch):
    monkeypatch.setattr(ex.LowRank, "divergence", ex.Dense.divergence)  # exact, without a probe
    assert largest(EVERY[metric]) < 1e-12


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("metric", ["number", "dense", "diagonal", "of the potential"])
def test_step_by_step_a_planted_fault_is_rejected(metric, fault):
    assert largest(EVERY[metric], FAULTS[fault]) > 1e-2


# --- With a noisy gradient ----------------------------------------------------------------------

NOISE = np.array([[3.0, 1.0], [1.0, 2.0]])
CLEAN = 0.0 * NOISE


def law_with(noise, told, metric):
    """The law of one step whose gradient has this noise, and is told to have another."""
    noisy = ex.KnownCovariance(ex.NoisyGradient(gradient().target, noise), told)
    kernel = ex.sgrld(noisy, 0.1, metric, temperature=0.7, compensate=True)
    return one_step.law(kernel, (0.3, -0.7))


@pytest.mark.parametrize("metric", IN_THE_PLANE)
def test_compensated_noise_leaves_the_law_of_a_step(metric):
    metric = IN_THE_PLANE[metric]
    clean, noisy = law_with(CLEAN, CLEAN, metric), law_with(NOISE, NOISE, metric)
    np.testing.assert_allclose(noisy[0], clean[0], atol=1e-14)
    np.testing.assert_allclose(noisy[1], clean[1], atol=1e-14)
    wrong = law_with(NOISE, np.diag(np.diag(NOISE)), metric)
    assert np.abs(wrong[1] - clean[1]).max() > 1e-3
