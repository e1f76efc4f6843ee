"""SGNHT in three dimensions: the thermostat absorbs the gradient's noise and keeps the law.

One dimension and two hide wrong factors of d; T and the mass differ from 1 for the same
reason. Numbers compared: 28.
"""

import numpy as np
import pytest

import ergodax as ex
from ergodax.integrator import flows

from . import faults, sampled

pytestmark = pytest.mark.slow

T, A, MASS, H, STEPS = 2.0, 1.0, 1.5, 0.1, 30_000
VARIANCES = np.array([1.0, 2.0, 0.5])
START = np.zeros(3, np.float32)


def gradient(noise):
    target = ex.targets.gaussian(np.zeros(3), VARIANCES)
    return ex.NoisyGradient(target, np.asarray(noise, np.float32))


def kernel_of(noise, **options):
    return ex.sgnht(gradient(noise), H, A, mass=MASS, temperature=T, **options)


def assert_position(x, resolution=0.06):
    sampled.assert_mean(x**2 / (T * VARIANCES), 1.0, resolution)


@pytest.mark.parametrize("noise", [0.0, 10.0])
def test_scalar_thermostat(noise, key):
    x, auxiliary = sampled.run_watched(kernel_of(noise), START, STEPS, key)
    assert_position(x)
    zeta, r = auxiliary["thermostat"], auxiliary["momentum"]
    mean = A + H * noise / (2.0 * MASS * T)
    sampled.assert_mean(zeta, mean, 0.03)
    sampled.assert_mean((zeta - mean) ** 2, T / 3.0, 0.05)  # mu = d
    # The thermostat holds Var r at T m inside the step; half a kick of variance
    # h^2 (T k + V) lies between there and the end of the step.
    kinetic = T * MASS - 0.25 * H**2 * (T / VARIANCES + noise)
    sampled.assert_mean(r**2 / kinetic, 1.0, 0.03)


def test_thermostat_for_each_coordinate(key):
    noise = np.array([1.0, 20.0, 5.0])
    x, auxiliary = sampled.run_watched(kernel_of(noise, per_coordinate=True), START, STEPS, key)
    assert_position(x)
    mean = A + H * noise / (2.0 * MASS * T)
    sampled.assert_mean(auxiliary["thermostat"], mean, 0.1)


def test_one_thermostat_cannot_absorb_uneven_noise(key):
    """The control of the test above: the scalar thermostat must be seen to fail."""
    x = sampled.run(kernel_of(np.array([1.0, 20.0, 5.0])), START, STEPS, key)
    with pytest.raises(AssertionError, match="the law differs"):
        assert_position(x)


@pytest.mark.parametrize("per_coordinate", [False, True])
def test_nose_hoover_recipe(per_coordinate, key):
    """Euler's bias is of order h: -h zeta / 2 of the variance, well below the resolution."""
    x = sampled.run(recipe_kernel(per_coordinate), START, STEPS, key, burn_in=2000)
    assert_position(x, 0.15)


def recipe_kernel(per_coordinate=False):
    recipe = ex.dynamics.nose_hoover(A, MASS, per_coordinate=per_coordinate)
    return ex.euler_maruyama(recipe, gradient(1.0), 0.02, temperature=T, semi_implicit=True)


def test_nose_hoover_recipe_without_temperature_in_gamma_is_rejected(key):
    right = ex.Recipe.correction

    def wrong(recipe, z, key):
        return {name: ex.tree.scale(1.0 / T, g) for name, g in right(recipe, z, key).items()}

    planted = faults.Planted(recipe_kernel(), faults.replacing(ex.Recipe, "correction", wrong))
    x = sampled.run(planted, START, STEPS, key, burn_in=2000)
    with pytest.raises(AssertionError, match="the law differs"):
        assert_position(x, 0.15)


def test_thermostat_without_temperature_is_rejected(key):
    right = flows.thermostat_drift

    def wrong(thermostat, momentum, mass, thermal_mass, temperature, t, **options):
        return right(thermostat, momentum, mass, thermal_mass, 1.0, t, **options)

    planted = faults.Planted(kernel_of(0.0), faults.replacing(flows, "thermostat_drift", wrong))
    x = sampled.run(planted, START, STEPS, key)
    with pytest.raises(AssertionError, match="the law differs"):
        assert_position(x)
