"""Recipes whose D and Q depend on the position: the target is sampled as h -> 0, with Gamma.

The discrete laws at h and h / 2 come from the grid; Richardson's extrapolation removes the
first order in h. Without Gamma, or without T in front of it, the limit is another law.
"""

import functools

import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.verify import Axis, stationary_law

from . import faults

pytestmark = pytest.mark.usefixtures("x64")


def limit(kernel, axes, h, functions, *, size=1, **options):
    """The moments extrapolated to h = 0; `size` is that of the position."""
    laws = [
        stationary_law(kernel(step), np.zeros(size), grid=axes, **options) for step in (h, 0.5 * h)
    ]
    coarse, fine = (np.array([law.mean(lambda z, f=f: f(*z)) for f in functions]) for law in laws)
    return 2.0 * fine - coarse


def moments(density, axes, functions):
    """The exact moments, by the trapezoid rule on a fine grid."""
    places = np.meshgrid(*(np.linspace(a.low, a.high, 801) for a in axes), indexing="ij")
    weights = density(*places)
    return np.array([np.sum(weights * f(*places)) for f in functions]) / weights.sum()


def gamma_without_temperature(t):
    right = ex.Recipe.correction

    def wrong(recipe, z, key):
        return {name: ex.tree.scale(1.0 / t, g) for name, g in right(recipe, z, key).items()}

    return faults.replacing(ex.Recipe, "correction", wrong)


# --- One dimension: overdamped, D = 1 / (1 + x^2), on a double well ------------------------

LINE = [Axis(-4.2, 4.2, 241)]
SQUARES = [lambda x: x**2, lambda x: x**4, lambda x: jnp.exp(-(x**2))]


def softening(x):
    return 1.0 / (1.0 + x**2)


def well(x):
    return 0.25 * (x**2 - 1.0) ** 2


@functools.cache  # one recipe for all temperatures and steps, whose program is compiled once
def overdamped(diffusion):
    recipe = ex.Recipe(diffusion=lambda z: {"position": diffusion(z["position"])})
    gradient = ex.FullGradient(ex.targets.double_well(0.25))
    return lambda t: lambda h: ex.euler_maruyama(recipe, gradient, h, temperature=t)


FORMS = {
    "Scalar": lambda x: ex.Scalar(softening(x[0])),
    "Diagonal": lambda x: ex.Diagonal(softening(x)),
    "Dense": lambda x: ex.Dense(softening(x)[:, None]),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("t", [1.0, 2.0])
def test_state_dependent_diffusion_samples_the_target(t, form):
    measured = limit(overdamped(FORMS[form])(t), LINE, 0.04, SQUARES)
    expected = moments(lambda x: np.exp(-well(x) / t), LINE, SQUARES)
    np.testing.assert_allclose(measured, expected, rtol=4e-3)


@pytest.mark.parametrize("t", [1.0, 2.0])
def test_without_gamma_the_law_is_the_known_wrong_one(t):
    """exp(-U / T) / D, and the check of the right law rejects it."""
    right = overdamped(FORMS["Diagonal"])(t)
    wrong = limit(lambda h: faults.Planted(right(h), faults.GAMMA_DROPPED), LINE, 0.04, SQUARES)
    expected = moments(lambda x: np.exp(-well(x) / t) / softening(x), LINE, SQUARES)
    np.testing.assert_allclose(wrong, expected, rtol=1e-2)
    target = moments(lambda x: np.exp(-well(x) / t), LINE, SQUARES)
    with pytest.raises(AssertionError, match="Not equal"):
        np.testing.assert_allclose(wrong, target, rtol=4e-3)


def test_gamma_without_the_temperature_is_rejected():
    t, fault = 2.0, gamma_without_temperature(2.0)
    right = overdamped(FORMS["Diagonal"])(t)
    wrong = limit(lambda h: faults.Planted(right(h), fault), LINE, 0.04, SQUARES)
    target = moments(lambda x: np.exp(-well(x) / t), LINE, SQUARES)
    with pytest.raises(AssertionError, match="Not equal"):
        np.testing.assert_allclose(wrong, target, rtol=4e-3)


# --- Two dimensions: dense D and Q, neither commuting nor symmetric under exchange ---------

PLANE = [Axis(-4.6, 4.6, 57), Axis(-5.0, 5.0, 57)]
PAIRS = [lambda x, y: x**2, lambda x, y: x * y, lambda x, y: y**2, lambda x, y: x**2 * y**2]


def tilted(x, y):
    return 0.5 * x**2 + 0.5 * y**2 + 0.3 * x * y + x**4 / 20.0


TILTED = ex.Target(lambda p: tilted(p[0], p[1]))


def dense_diffusion(z):
    x, y = z["position"]
    off = 0.25 * jnp.cos(x)
    return {"position": jnp.array([[1.0 + jnp.tanh(y) / 2.0, off], [off, 1.0 + jnp.sin(y) / 3.0]])}


def dense_curl(z):
    x, y = z["position"]
    q = 0.7 + 0.5 * jnp.sin(x) + 0.2 * jnp.tanh(y)
    zero = jnp.zeros(())
    return {("position", "position"): jnp.array([[zero, -q], [q, zero]])}


def in_the_plane(t, fault=None):
    recipe = ex.Recipe(diffusion=dense_diffusion, curl=dense_curl)
    gradient = ex.FullGradient(TILTED)

    def kernel(h):
        right = ex.euler_maruyama(recipe, gradient, h, temperature=t)
        return right if fault is None else faults.Planted(right, fault)

    return limit(kernel, PLANE, 0.05, PAIRS, size=2, num_nodes=5, order=6)


def in_the_plane_expected(t):
    return moments(lambda x, y: np.exp(-tilted(x, y) / t), PLANE, PAIRS)


@pytest.mark.parametrize("t", [1.0, 0.5])
def test_dense_diffusion_and_curl_sample_the_target(t):
    np.testing.assert_allclose(in_the_plane(t), in_the_plane_expected(t), atol=5e-3)


FAULTS = {"no Gamma": faults.GAMMA_DROPPED, "no T": gamma_without_temperature(0.5)}


@pytest.mark.parametrize("fault", FAULTS)
def test_in_the_plane_a_planted_fault_is_rejected(fault):
    measured = in_the_plane(0.5, FAULTS[fault])
    with pytest.raises(AssertionError, match="Not equal"):
        np.testing.assert_allclose(measured, in_the_plane_expected(0.5), atol=5e-3)


# --- With a momentum: SGRHMC with G^-1 = 3/2 sqrt(U + 1/2) on N(0, 1) ----------------------

PHASE = [Axis(-5.5, 5.5, 65), Axis(-5.5, 5.5, 65)]


def squared_speed(x):
    return 1.5 * jnp.sqrt(0.5 * x**2 + 0.5)


RIEMANNIAN = ex.Recipe(
    auxiliary=lambda key, x: {"momentum": ex.tree.normal_like(key, x)},
    energy=lambda z: 0.5 * ex.tree.dot(z["momentum"], z["momentum"]),
    diffusion=lambda z: {"momentum": ex.Diagonal(squared_speed(z["position"]))},
    curl=lambda z: {("momentum", "position"): ex.Diagonal(jnp.sqrt(squared_speed(z["position"])))},
)


def riemannian(t, fault=None):
    gradient = ex.FullGradient(ex.targets.gaussian(np.zeros(1), np.ones(1)))

    def kernel(h):
        right = ex.euler_maruyama(RIEMANNIAN, gradient, h, temperature=t, semi_implicit=True)
        return right if fault is None else faults.Planted(right, fault)

    squares = [lambda x, r: x**2, lambda x, r: r**2]
    return limit(kernel, PHASE, 0.1, squares, num_nodes=6, order=6)


@pytest.mark.parametrize("t", [1.0, 0.5])
def test_riemannian_momentum_samples_the_target(t):
    np.testing.assert_allclose(riemannian(t), [t, t], rtol=2e-2)


def test_riemannian_momentum_without_gamma_has_the_known_wrong_law():
    """E x^2 = 0.843589969534 in the limit; the right sampler has 1."""
    np.testing.assert_allclose(riemannian(1.0, faults.GAMMA_DROPPED)[0], 0.8436, rtol=2e-2)


def test_riemannian_gamma_without_the_temperature_is_rejected():
    measured = riemannian(0.5, gamma_without_temperature(0.5))
    with pytest.raises(AssertionError, match="Not equal"):
        np.testing.assert_allclose(measured, [0.5, 0.5], rtol=2e-2)
