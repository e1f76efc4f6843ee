"""Delayed acceptance with surrogates that are badly wrong: against quadrature.

Numbers compared by sampling: 18.
"""

import sys

import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex

from . import faults, sampled
from .logistic_posterior import assert_posterior, problem

pytestmark = pytest.mark.slow

P = problem()
DELAYED = sys.modules[ex.exact.delayed_acceptance.__module__].DelayedAcceptance


def potential(x):
    """Two minima, one of them narrow."""
    return 0.5 * (x**2 - 1.0) ** 2 + 0.3 * x**3 / 3.0


def wrong(x):
    """One minimum, off by 1/2."""
    return 0.25 * (x - 0.5) ** 2


def exact_moments():
    """E x, x^2, x^3, x^4; the sum over equal steps of a smooth density is exact."""
    x = np.linspace(-6.0, 6.0, 2001)
    weights = np.exp(-potential(x))
    return np.array([(weights * x**k).sum() for k in (1, 2, 3, 4)]) / weights.sum()


def on_a_wrong_surrogate(num_inner_steps=1):
    """The kernel, and the one on the surrogate that it begins with."""
    target, surrogate = ex.Target(potential), ex.Target(wrong)
    inner = ex.hmc(ex.FullGradient(surrogate), 0.8, num_leapfrog_steps=3)
    kernel = ex.exact.delayed_acceptance(target, surrogate, inner, num_inner_steps=num_inner_steps)
    return kernel, inner


def assert_moments(kernel, key):
    x = sampled.run(kernel, np.float32(0.0), 3_000, key, burn_in=100)
    powers = np.stack([x, x**2, x**3, x**4], axis=-1)
    sampled.assert_mean(powers, exact_moments(), 0.1)


@pytest.mark.parametrize("num_inner_steps", [1, 4])
def test_the_law_is_the_target_s(num_inner_steps, key):
    assert_moments(on_a_wrong_surrogate(num_inner_steps)[0], key)


def test_the_inner_kernel_alone_is_rejected(key):
    with pytest.raises(AssertionError, match="the law differs"):
        assert_moments(on_a_wrong_surrogate()[1], key)


def uncorrected(self, position):
    """The target alone in the test, as if proposals were symmetric."""
    return self.target.potential(position)


def twice(self, position):
    return 2.0 * (self.target.potential(position) - self.surrogate.potential(position))


FAULTS = {"proposals taken for symmetric": uncorrected, "a correction too large": twice}


@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_test_is_rejected(name, key):
    fault = faults.replacing(DELAYED, "_correction", FAULTS[name])
    kernel = faults.Planted(on_a_wrong_surrogate()[0], fault)
    with fault(), pytest.raises(AssertionError, match="the law differs"):
        assert_moments(kernel, key)  # the fault is in init as well


def on_few_rows():
    """Logistic regression of which 5 rows of 80 are kept, and the others expanded elsewhere."""
    centre = (P.mode + 2.0 * np.sqrt(np.diag(P.covariance))).astype("f4")
    draws = jnp.asarray(P.mode + np.random.default_rng(0).normal(size=(32, 2)), jnp.float32)
    condensed = ex.exact.condense(P.posterior, centre, draws, most=5)
    inner = ex.hmc(ex.FullGradient(condensed), 0.6, num_leapfrog_steps=3, mass=P.hessian)
    return condensed, inner


@pytest.mark.parametrize("split", [False, True])
def test_the_law_of_a_condensed_posterior(split, key):
    condensed, inner = on_few_rows()
    if split:
        parts = condensed.split(np.array([0, 3]))
        options = {"num_leapfrog_steps": 3, "num_inner_steps": 2, "mass": P.hessian}
        inner = ex.split_hmc(*parts, 0.6, **options)
    kernel = ex.exact.delayed_acceptance(P.posterior, condensed, inner, num_inner_steps=2)
    assert_posterior(kernel, P, key)


def test_the_condensed_posterior_alone_is_rejected(key):
    with pytest.raises(AssertionError, match="the law differs"):
        assert_posterior(on_few_rows()[1], P, key, num_steps=3_000)
