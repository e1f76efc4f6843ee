"""Step sizes by curvature, noise and temperature, against what Gaussians say exactly."""

import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.tune import find_step, first_step

pytestmark = pytest.mark.slow

COVARIANCE = np.array([[2.0, 0.6], [0.6, 0.5]])
CURVATURE = 1.0 / np.linalg.eigvalsh(COVARIANCE)[0]  # the largest


def target():
    return ex.targets.gaussian(jnp.zeros(2), jnp.asarray(COVARIANCE))


def unit(dimension=10):
    return ex.targets.gaussian(jnp.zeros(dimension), jnp.eye(dimension))


def test_overdamped_steps_heat_by_a_tenth(key):
    h = first_step(ex.FullGradient(target()), jnp.zeros(2), key=key)
    assert h * CURVATURE / 2 == pytest.approx(0.1, rel=1e-3)


def test_steps_with_a_momentum_shift_it_by_a_tenth(key):
    h = first_step(ex.FullGradient(target()), jnp.zeros(2), key=key, friction=1.0)
    assert h**2 * CURVATURE / 4 == pytest.approx(0.1, rel=1e-3)


@pytest.mark.parametrize("friction", [None, 2.0])
def test_noise_shortens_the_step(key, friction):
    """64 estimates know a variance to 18 % and the larger of two a little better."""
    noise = 50.0
    noisy = ex.NoisyGradient(target(), noise)
    h = first_step(noisy, jnp.zeros(2), key=key, friction=friction, temperature=0.5)
    heat = h * noise / (2 * 0.5) / (friction or 1.0)
    shift = h * CURVATURE / 2 if friction is None else h**2 * CURVATURE / 4
    assert heat + shift == pytest.approx(0.1, rel=0.5)


def test_no_curvature_is_said(key):
    with pytest.raises(ValueError, match="find_mode"):
        first_step(ex.FullGradient(ex.Target(lambda x: -jnp.sum(x**2))), jnp.zeros(2), key=key)


def test_the_temperature_of_sgld_is_off_by_what_was_asked(key):
    """T_C = (1 + h V / 2) / (1 - h / 2) = 1.05 at h = 0.1 / (1.05 + V)."""
    noise = 1.0

    def make(h):
        return ex.sgld(ex.NoisyGradient(unit(), noise), h)

    found = find_step(make, unit(), jnp.zeros(10), 0.5, key=key, excess=0.05)
    assert found.step_size == pytest.approx(0.1 / (1.05 + noise), rel=0.3)
    assert found.step_sizes.shape == found.excesses.shape == (40,)


def test_the_kinetic_temperature_of_baoab_is_off_by_what_was_asked(key):
    """T_K = 1 - h^2 / 4 = 0.95 at h = sqrt(0.2)."""

    def make(h):
        return ex.langevin(ex.FullGradient(unit()), h)

    found = find_step(make, unit(), jnp.zeros(10), 0.1, key=key, readout="kinetic")
    assert found.step_size == pytest.approx(np.sqrt(0.2), rel=0.2)


def test_a_step_that_diverges_is_shortened(key):
    def make(h):
        return ex.sgld(ex.FullGradient(unit()), h)

    found = find_step(make, unit(), jnp.ones(10), 50.0, key=key, num_rounds=40)
    assert np.isnan(found.excesses[0]) and found.step_size < 0.5


def test_bad_settings(key):
    def make(h):
        return ex.sgld(ex.FullGradient(unit()), h)

    with pytest.raises(ValueError, match="readout"):
        find_step(make, unit(), jnp.zeros(10), 0.1, key=key, readout="thermal")
    with pytest.raises(ValueError, match="no momentum"):
        find_step(make, unit(), jnp.zeros(10), 0.1, key=key, readout="kinetic", num_rounds=1)
    with pytest.raises(ValueError, match="positive"):
        find_step(make, unit(), jnp.zeros(10), 0.1, key=key, excess=0.0)
    with pytest.raises(ValueError, match="share"):
        first_step(ex.FullGradient(unit()), jnp.zeros(10), key=key, share=0.0)
