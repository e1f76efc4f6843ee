"""HMC, whose Metropolis test leaves no bias: against the targets' own moments.

Numbers compared: 11.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex

from . import faults, sampled
from .problems import problem

pytestmark = pytest.mark.slow

P = problem(3, "matrix")


def banana(h):
    return ex.hmc(ex.FullGradient(ex.targets.banana()), h, num_leapfrog_steps=8)


def assert_banana(kernel, key):
    draws = sampled.run(kernel, np.array([0.0, -1.2], np.float32), 10_000, key)
    x, y = draws[..., 0], draws[..., 1]
    sampled.assert_mean(x, 0.0, 0.05)
    sampled.assert_mean(x**2, 1.06881544366236, 0.03)
    sampled.assert_mean(x**4, 2.5, 0.15)
    sampled.assert_mean(y, -0.932796139084411, 0.01)
    sampled.assert_mean(y**2, 1.01746073380259, 0.02)


def test_banana(key):
    assert_banana(banana(0.2), key)


def of_the_modes(t, **options):
    return ex.hmc(
        ex.FullGradient(P.target), 0.7, num_leapfrog_steps=3, mass=P.mass, temperature=t, **options
    )


def assert_variances(kernel, t, key):
    x = sampled.run(kernel, P.centre.astype(np.float32), 5_000, key)
    modes = (x - P.centre) @ np.linalg.inv(P.modes.shapes).T
    sampled.assert_mean(modes**2 * P.modes.k / t, 1.0, 0.08)


@pytest.mark.parametrize("t", [0.1, 4.0])
def test_temperature_and_dense_mass(t, key):
    assert_variances(of_the_modes(t), t, key)


def test_without_the_metropolis_test_it_is_rejected(key):
    """Every proposal accepted: the leapfrog's own law, too hot by 1 / (1 - h^2 k / 4)."""
    always = faults.replacing(jax.random, "uniform", lambda key, dtype=None: jnp.zeros((), dtype))
    with pytest.raises(AssertionError, match="the law differs"):
        assert_variances(faults.Planted(of_the_modes(4.0), always), 4.0, key)


def test_a_forgotten_temperature_is_rejected(key):
    with pytest.raises(AssertionError, match="the law differs"):
        assert_variances(of_the_modes(1.0), 4.0, key)
