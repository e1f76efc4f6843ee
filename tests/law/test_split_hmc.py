"""Split HMC on a ridge that one part of the potential makes: against quadrature.

Numbers compared by sampling: 12.
"""

import contextlib
from unittest import mock

import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.sampler import hamiltonian

from . import faults, sampled

pytestmark = pytest.mark.slow

MASS = np.array([[1.0, 0.3], [0.3, 2.0]])


def slow(p):
    """A well with two minima along one coordinate, bent along the other."""
    x, y = p
    return 0.25 * (x**2 - 1.0) ** 2 + 0.5 * (y - 0.5 * x**2) ** 2


def fast(p, lib=jnp):
    """A ridge that curves 70 times as much as the well, and is steeper on one side."""
    s = 4.0 * (p[0] - p[1])
    return 2.0 * lib.logaddexp(2.0 * s, -s)


def moments(t):
    """E x, E x^2, E y, E y^2, E s and E s^2, s the distance from the ridge, at temperature t.

    The sum over equal steps of a smooth density converges faster than any power of the step.
    """
    axis = np.linspace(-6.0, 6.0, 1201)
    p = np.stack(np.meshgrid(axis, axis))
    weights = np.exp(-(slow(p) + fast(p, np)) / t)
    return np.array([(weights * f).sum() for f in functions(*p)]) / weights.sum()


def functions(x, y):
    s = 4.0 * (x - y)
    return x, x**2, y, y**2, s, s**2


def kernel(t=1.0, **options):
    parts = (ex.Target(slow), ex.Target(fast))
    options = {"num_leapfrog_steps": 4, "num_inner_steps": 4, "temperature": t, **options}
    return ex.split_hmc(*parts, 0.4, **options)


def assert_law(kernel, t, key):
    draws = sampled.run(kernel, np.zeros(2, np.float32), 3_000, key, burn_in=200)
    values = np.stack(functions(draws[..., 0], draws[..., 1]), axis=-1)
    exact = moments(t)
    scales = np.sqrt(exact[[1, 1, 3, 3, 5, 5]])
    sampled.assert_mean(values / scales, exact / scales, 0.1)


@pytest.mark.parametrize("t, mass", [(1.0, 1.0), (0.5, MASS)])
def test_the_law_is_that_of_the_sum(t, mass, key):
    assert_law(kernel(t, mass=mass), t, key)


def of_one_part(part):
    """The fault that the test of the proposal looks at one part's energy alone."""

    @contextlib.contextmanager
    def fault():
        energy = property(lambda parts: getattr(parts, part)[0])
        with mock.patch.object(hamiltonian.Parts, "potential", energy):
            yield

    return fault


@pytest.mark.parametrize("part", ["slow", "fast"])
def test_a_test_of_one_part_alone_is_rejected(part, key):
    with pytest.raises(AssertionError, match="the law differs"):
        assert_law(faults.Planted(kernel(), of_one_part(part)), 1.0, key)
