"""Mass far from a mode by the places around it: exact laws, and draws that miss one of two."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.tune.far_mass import TWO_LAWS, FarMass, far_mass, missing, scales_of_places


def places(d, number=2**15, seed=0):
    random = np.random.default_rng(seed)
    return scales_of_places(random, number) * random.standard_normal((number, d))


def two_laws(u, part, sd):
    """The rise of a mixture of N(0, I) and N(0, sd^2 I), which has this part of the mass."""
    d, square = u.shape[1], np.sum(u**2, axis=1)
    narrow = np.log(1.0 - part) - 0.5 * square
    wide = np.log(part) - 0.5 * square / sd**2 - d * np.log(sd)
    at_mode = np.logaddexp(np.log(1.0 - part), np.log(part) - d * np.log(sd))
    return at_mode - np.logaddexp(narrow, wide)


@pytest.mark.parametrize("d", [2, 5, 10, 20])
def test_a_normal_law_has_none(d):
    u = places(d)
    found = far_mass(u, 0.5 * np.sum(u**2, axis=1))
    assert found is None or found.share < 0.01


@pytest.mark.parametrize("d, sd", [(3, 8.0), (10, 6.0), (10, 10.0)])
@pytest.mark.parametrize("part", [0.1, 0.5])
def test_a_wide_law_is_told_by_its_mass(d, sd, part):
    u = places(d)
    found = far_mass(u, two_laws(u, part, sd))
    assert found is not None
    radius = np.linalg.norm(np.random.default_rng(1).standard_normal((100_000, d)), axis=1)
    expected = part * np.mean(sd * radius > found.radius)
    assert found.share == pytest.approx(expected, rel=0.25)


def test_a_mode_that_one_place_has_met_tells_no_mass():
    u = places(5)
    rises = 0.5 * np.sum(u**2, axis=1)
    rises[np.argmax(rises)] = -5.0
    found = far_mass(u, rises)
    assert found is None or found.share < 0.01


def test_places_far_below_the_mode_weigh_all():
    """Where a search was about a mode of no weight; and where no place is inside the support."""
    u = places(3)
    found = far_mass(u, np.full(len(u), -1e6))
    assert found is not None and found.share == 1.0
    assert far_mass(u, np.full(len(u), np.inf)) is None


def test_draws_that_have_both_laws_miss_nothing():
    random, far = np.random.default_rng(2), FarMass(5.0, 0.5)
    narrow, wide = (sd * random.standard_normal((1_000, 8)) for sd in (1.0, 6.0))
    assert missing(far, np.concatenate([narrow, wide]), 0.05) == ""
    assert "all but" in missing(far, narrow, 0.05)
    assert "0.0% of the draws" in missing(far, 6.0 + wide, 0.05)
    assert missing(FarMass(5.0, 0.001), narrow, 0.05) == "", "as much as moves no sd"


@pytest.mark.slow
@pytest.mark.parametrize("sd, told", [(0.1, True), (1.0, False)])
def test_a_spike_in_a_slab_is_not_called_converged(sd, told, key):
    """Half the mass is of each; nothing but places far out tells of the second."""

    def potential(x):
        spike = -0.5 * jnp.sum((x / sd) ** 2) - 10.0 * np.log(sd)
        return -jnp.logaddexp(spike, -0.5 * jnp.sum(x**2))

    found = ex.infer(ex.Target(potential), jnp.full(10, 0.01), key=key, progress=False)
    assert found.converged is not told
    assert (TWO_LAWS in found.verdict().replace("\n", " ")) is told
    expected = np.sqrt(0.5 * sd**2 + 0.5)
    error = np.abs(found.table["sd"] / expected - 1.0).max()
    assert error > 0.5 if told else error < 0.15
    assert jax.config.jax_enable_x64 is False
