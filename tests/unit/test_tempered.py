"""Tempered targets: the potential U / T, and moments and exact draws that belong to it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate

from ergodax import targets

COVARIANCE = np.array([[2.0, 0.7], [0.7, 1.0]])
TEMPERATURES = [0.25, 1.0, 4.0]


@pytest.mark.parametrize("t", TEMPERATURES)
@pytest.mark.parametrize(
    "target",
    [lambda: targets.gaussian([1.0, -2.0], COVARIANCE), lambda: targets.double_well(0.7, 1.5, 2)],
)
def test_the_potential_is_divided_by_the_temperature(target, t, key, x64):
    for x in jax.random.normal(key, (5, 2)):
        expected = target().potential(x) / t
        np.testing.assert_allclose(target().tempered(t).potential(x), expected, rtol=1e-12)


@pytest.mark.parametrize("t", TEMPERATURES)
def test_the_covariance_of_a_gaussian_is_multiplied(t, x64):
    hot = targets.gaussian([1.0, -2.0], COVARIANCE).tempered(t)
    np.testing.assert_allclose(hot.mean, [1.0, -2.0])
    np.testing.assert_allclose(hot.covariance, t * COVARIANCE, rtol=1e-14)


@pytest.mark.parametrize("t", TEMPERATURES)
def test_the_variance_of_a_double_well_by_quadrature(t, x64):
    target = targets.double_well(0.7, 1.5)

    def density(x):
        return np.exp(-0.7 * ((x / 1.5) ** 2 - 1.0) ** 2 / t)

    mass, second = (
        integrate.quad(lambda x, p=p: x**p * density(x), -12, 12, epsabs=0, epsrel=1e-11)[0]
        for p in (0, 2)
    )
    np.testing.assert_allclose(target.tempered(t).covariance, [[second / mass]], rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("t", [0.25, 4.0])
@pytest.mark.parametrize("target", [targets.gaussian([1.0], [2.0]), targets.double_well()])
def test_draws_obey_the_virial_theorem(target, t, key):
    """E[(x - mean) U'] = T with U of the target at T = 1; a gate of 5 standard errors."""
    x = target.tempered(t).sample(key, 100_000)
    virial = np.asarray((x - target.mean[None]) * jax.vmap(target.gradient)(x))
    assert abs(virial.mean() - t) < 5.0 * virial.std() / np.sqrt(len(x))


@pytest.mark.parametrize(
    "target", [targets.banana, targets.funnel, lambda: targets.mixture(0.0, 1.0)]
)
def test_families_without_a_tempered_form(target):
    same = target().tempered(1.0)
    assert same.potential(jnp.ones(same.mean.size)) == target().potential(jnp.ones(same.mean.size))
    with pytest.raises(ValueError, match="temperature must be 1 for"):
        target().tempered(2.0)


@pytest.mark.parametrize("t", [0.0, -1.0, np.inf, np.nan])
@pytest.mark.parametrize(
    "target", [targets.gaussian(0.0, 1.0), targets.double_well(), targets.banana()]
)
def test_temperatures_out_of_range(target, t):
    with pytest.raises(ValueError, match="temperature must be positive and finite"):
        target.tempered(t)
