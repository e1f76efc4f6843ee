"""pSGLD: its law with no memory, with a memory held fixed, and with V frozen.

In one dimension a step is normal given the position, so the invariant density of the chain
solves a linear integral equation. D and Gamma break where the gradient vanishes; quadrature by
panels that end there is exact to rounding. In the limit the right law is exp(-U / T), and that
without Gamma is exp(-U / T) / g. Numbers compared by sampling: 6.
"""

import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import solve_discrete_lyapunov

import ergodax as ex
from ergodax.sampler.preconditioned import psgld
from ergodax.verify import stationary_law

from . import faults, normals, sampled, theory
from .problems import problem

module = sys.modules[psgld.__module__]  # the package has the function under its name


class Held(ex.Kernel):
    """A kernel whose other variables and number of steps are put back before each step."""

    kernel: ex.Kernel
    auxiliary: dict
    step_number: jax.Array

    def init(self, key, position):
        state = self.kernel.init(key, position)
        return ex.State(state.position, {}, state.gradient, None, jnp.int32(0))

    def step(self, key, state):
        full = ex.State(state.position, self.auxiliary, state.gradient, None, self.step_number)
        new, info = self.kernel.step(key, full)
        return ex.State(new.position, {}, new.gradient, None, jnp.int32(0)), info


def held(kernel, moment, step=1_000_000):
    """V, as it is before each step, held at `moment`."""
    return Held(kernel, {"second_moment": jnp.asarray(moment)}, jnp.int32(step))


# --- One dimension, on a double well with modes at -1 and 1 --------------------------------

DAMPING, MEMORY = 1.0, 0.3
MOMENTS = [lambda x: x**2, lambda x: x**4, lambda x: np.exp(-(x**2))]


def panels(per_panel=12, count=10):
    """Gauss-Legendre points and weights on [-4, 4], broken at the roots of U'."""
    x, w = np.polynomial.legendre.leggauss(per_panel)
    edges = np.concatenate(
        [np.linspace(a, b, count, endpoint=False) for a, b in ((-4, -1), (-1, 0), (0, 1), (1, 4))]
    )
    edges = np.append(edges, 4.0)
    half = 0.5 * np.diff(edges)
    return (edges[:-1, None] + half[:, None] * (1.0 + x)).ravel(), (half[:, None] * w).ravel()


@eqx.filter_jit
def mean_and_spread(kernel, points):
    """x+ = mean(x) + spread(x) xi, read off the step."""

    def image(x, xi):
        with normals.dealt(xi[None]):
            return kernel.step(normals.key(), normals.start(kernel, x[None]))[0].position[0]

    mean, other = (jax.vmap(image, (0, None))(points, jnp.asarray(xi)) for xi in (0.0, 1.0))
    return mean, other - mean


def invariant_moments(kernel) -> np.ndarray:
    return moments_of_the_law(*mean_and_spread(kernel, jnp.asarray(panels()[0])))


def moments_of_the_law(mean, spread) -> np.ndarray:
    """Of the stationary law of x+ = mean(x) + spread(x) xi, given at the points of `panels`."""
    x, w = panels()
    mean, spread = (np.asarray(a)[:, None] for a in (mean, spread))
    density = np.exp(-0.5 * ((x[None] - mean) / spread) ** 2) / (np.sqrt(2.0 * np.pi) * spread)
    transition = density * w[None]
    transition /= transition.sum(axis=1, keepdims=True)
    equations = transition.T - np.eye(len(x))
    equations[-1] = 1.0
    law = np.linalg.solve(equations, np.eye(len(x))[-1])
    return np.array([law @ f(x) for f in MOMENTS])


def limit_moments(t, decay, *, correction) -> np.ndarray:
    """Those of exp(-U / T), divided by g without the correction."""
    x, w = panels()
    w = w * np.exp(-0.25 * (x**2 - 1.0) ** 2 / t)
    if not correction:
        w = w * (DAMPING + np.sqrt(decay * MEMORY + (1.0 - decay) * (x**3 - x) ** 2))
    return np.array([w @ f(x) for f in MOMENTS]) / w.sum()


def kernel_on_the_well(h, t, decay, fault=None, *, correction=True):
    gradient = ex.FullGradient(ex.targets.double_well(0.25))
    options = {"decay": decay, "damping": DAMPING, "temperature": t, "correction": correction}
    kernel = held(psgld(gradient, h, adaptation_steps=None, **options), jnp.full(1, MEMORY))
    return kernel if fault is None else faults.Planted(kernel, fault)


def errors(t, decay, fault=None, *, correction=True, expected=None) -> np.ndarray:
    """Errors at h = 0.02, 0.01 and 0.005, a row each."""
    if expected is None:
        expected = limit_moments(t, decay, correction=correction)
    kernels = (kernel_on_the_well(h, t, decay, fault, correction=correction) for h in STEPS)
    return np.array([invariant_moments(kernel) for kernel in kernels]) - expected


STEPS = (0.02, 0.01, 0.005)
SETTINGS = [(1.0, 0.0), (2.0, 0.0), (1.0, 0.9), (2.0, 0.5)]  # temperature, decay


def assert_first_order(errors):
    """The limit is right, and E x^2 and E x^4 approach it in proportion to h."""
    coarse, middle, fine = errors
    limit = (8.0 * fine - 6.0 * middle + coarse) / 3.0
    np.testing.assert_allclose(limit, 0.0, atol=1e-3)
    order = np.log2(middle / fine)[:2]
    np.testing.assert_allclose(order, 1.0, atol=0.1)


@pytest.mark.parametrize("correction", [True, False])
@pytest.mark.parametrize("t, decay", SETTINGS)
def test_the_law_tends_to_the_known_one(t, decay, correction, x64):
    """exp(-U / T) with Gamma, exp(-U / T) / g without."""
    assert_first_order(errors(t, decay, correction=correction))


def test_without_gamma_the_target_is_missed_by_far(x64):
    missed = errors(1.0, 0.0, correction=False, expected=limit_moments(1.0, 0.0, correction=True))
    assert missed[-1][0] > 0.5, "E x^2 is 1.617 instead of 1.042"
    with pytest.raises(AssertionError, match="Not equal"):
        assert_first_order(missed)


def gamma_times(factor):
    right = module.divergence
    return faults.replacing(module, "divergence", lambda *a: ex.tree.scale(factor, right(*a)))


FAULTS = {"sign": gamma_times(-1.0), "half": gamma_times(0.5), "no T": gamma_times(0.5)}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_gamma_is_rejected(fault, x64):
    t = 2.0 if fault == "no T" else 1.0
    with pytest.raises(AssertionError, match="Not equal"):
        assert_first_order(errors(t, 0.0, FAULTS[fault]))


# --- Frozen, on Gaussian targets: the exact law of a constant preconditioner ----------------


def frozen(p, h, t, moment, damping=0.2):
    kernel = psgld(p.noisy(), h, damping=damping, temperature=t, adaptation_steps=10)
    return held(kernel, moment, step=10)


def lyapunov(p, h, t, metric):
    """The covariance of SGLD with D = diag(metric) and the noise V of the gradient."""
    d, v = np.diag(metric), p.modes.noise(p.s2)
    move = np.eye(len(metric)) - h * d @ p.precision
    return solve_discrete_lyapunov(move, 2.0 * h * t * d + h**2 * d @ v @ d)


@pytest.mark.parametrize("d", [1, 2, 10])
@pytest.mark.parametrize("t", [1.0, 0.25])
def test_frozen_it_has_the_law_of_the_preconditioner(d, t, x64):
    p = problem(d, "number")
    moment = np.random.default_rng(d).uniform(0.1, 4.0, d)
    metric = 1.0 / (0.2 + np.sqrt(moment))
    law = stationary_law(frozen(p, 0.1, t, moment), p.centre)
    theory.assert_covariance(law.cov(), lyapunov(p, 0.1, t, metric))
    np.testing.assert_allclose(law.mean, p.centre, atol=1e-9)
    wrong = lyapunov(p, 0.1, t, 1.0 / np.sqrt(0.2 + moment))  # damping under the root
    with pytest.raises(AssertionError, match="Not equal"):
        theory.assert_covariance(law.cov(), wrong)


def test_one_step_before_it_is_frozen_it_still_adapts(x64):
    p = problem(2, "number")
    kernel = held(psgld(p.noisy(), 0.1, adaptation_steps=11), np.ones(2), step=10)
    with pytest.raises(ValueError, match="not affine"):
        stationary_law(kernel, p.centre)


@pytest.mark.slow
def test_draws_after_the_burn_in_have_the_frozen_law(key):
    """Each chain has a V of its own, and the variances that go with it."""
    curvature, h, damping = np.array([0.5, 3.0], np.float32), 0.3, 0.5
    target = ex.targets.gaussian(np.zeros(2), 1.0 / curvature)
    kernel = psgld(ex.FullGradient(target), h, damping=damping, adaptation_steps=500)
    samples = ex.sample(
        kernel, np.zeros(2, np.float32), 4_000, key=key, num_chains=128, burn_in=500
    )
    moment = np.asarray(samples.final_state.auxiliary["second_moment"], np.float64)
    assert moment.std(axis=0).min() > 0.01, "the chains have frozen the same V"
    metric = 1.0 / (damping + np.sqrt(moment))
    variance = 1.0 / (curvature * (1.0 - 0.5 * h * metric * curvature))
    x = np.asarray(samples.position, np.float64)
    sampled.assert_mean(x**2 / variance[:, None], 1.0, 0.05)
    with pytest.raises(AssertionError, match="the law differs"):
        sampled.assert_mean(x**2 * curvature, 1.0, 0.05)


@pytest.mark.slow
def test_adapting_for_ever_has_a_bias_that_grows_as_h_falls(key):
    """E x^2 = 1.042 on the double well. Within its memory V follows a slower chain more closely."""
    gradient = ex.FullGradient(ex.targets.double_well(0.25))
    start, second = np.ones(1, np.float32), []
    for h in (0.02, 0.005):
        x = sampled.run(
            psgld(gradient, h, damping=0.1, adaptation_steps=None), start, 20_000, key, thin=10
        )
        with pytest.raises(AssertionError, match="the law differs"):
            sampled.assert_mean(x**2, 1.0418, 0.05)
        second.append(np.mean(x**2))
    np.testing.assert_allclose(second, [1.19, 1.45], atol=0.06)
