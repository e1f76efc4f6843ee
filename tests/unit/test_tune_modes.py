"""Other modes: found by descents, told from the first, and no others."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax import tree
from ergodax.tune import modes
from ergodax.tune.budget import Deadline
from ergodax.tune.modes import (
    PAIRS,
    SPREADS,
    _is_rough,
    _log_volume,
    descents_from,
    end,
    other_modes,
    scout,
)
from ergodax.tune.whitening import Coordinates

KEY = jax.random.key(4)
SCOUTS = 2 * PAIRS * len(SPREADS)


def two_modes(apart, worse=0.0):
    """Unit normals at -apart and apart in every coordinate, the second lower in weight."""

    def potential(x):
        low, high = (-0.5 * jnp.sum((x - m) ** 2) for m in (-apart, apart))
        return -jnp.logaddexp(low, high - worse)

    return ex.Target(potential)


def found(target, d, centre):
    coordinates = Coordinates(jnp.full(d, centre), jnp.ones(d))
    return other_modes(target, coordinates, scout(target, jnp.full(d, centre), key=KEY))


@pytest.mark.slow
def test_the_other_of_two_is_found():
    (u,) = found(two_modes(6.0), 1, 6.0)
    np.testing.assert_allclose(u, -12.0, atol=0.1)


@pytest.mark.slow
def test_in_many_dimensions_far_is_farther():
    """The typical distance of a draw from its mode, 32, tells of no other mode; 50 does."""
    d = 1_025
    split = two_modes(25.0)
    target = ex.Target(lambda x: split.potential(x[0]) + 0.5 * jnp.sum(x[1:] ** 2))
    descents = scout(target, jnp.zeros(d), key=KEY)  # in pairs, so to both sides
    (u,) = other_modes(target, Coordinates(25.0 * jnp.eye(1, d)[0], jnp.ones(d)), descents)
    np.testing.assert_allclose(u, -50.0 * np.eye(1, d)[0], atol=0.1)
    assert not other_modes(target, Coordinates(jnp.zeros(d), jnp.ones(d)), descents)


def test_the_only_mode_is_no_other():
    assert found(ex.Target(lambda x: 0.5 * jnp.sum((x - 6.0) ** 2)), 3, 6.0) == []


@pytest.mark.slow
def test_a_mode_without_weight_is_none():
    assert found(two_modes(6.0, worse=-40.0), 1, 6.0) == []  # it is the other that is worse
    assert len(found(two_modes(6.0, worse=-5.0), 1, 6.0)) == 1


def test_near_modes_are_one():
    assert found(two_modes(2.5), 1, 2.5) == []


@pytest.mark.slow
def test_scouts_come_in_pairs_and_some_rows_stand_for_all():
    def log_likelihood(w, x):
        return -0.05 * jnp.sum((x - w**2) ** 2)

    target = ex.Posterior(lambda w: 0.0 * jnp.sum(w), log_likelihood, jnp.ones(2_500))
    descents = scout(target, jnp.ones(1), key=KEY)
    ends = np.asarray(descents.positions)
    assert ends.shape == (SCOUTS, 1) and descents.potentials.shape == (SCOUTS,)
    np.testing.assert_allclose(np.abs(ends), 1.0, atol=1e-2)
    coordinates = Coordinates(jnp.ones(1), jnp.full((1, 1), 1.0 / np.sqrt(1_000.0)))
    (u,) = other_modes(target, coordinates, descents)
    np.testing.assert_allclose(u, -2.0 * np.sqrt(1_000.0), rtol=1e-2)


def test_positions_are_trees_and_functions_come_back():
    target = ex.Target(lambda z: jnp.sum((z["w"] - 1.0) ** 2) + 0.0 * z["act"](z["w"][0]))
    places = jnp.array([[0.0, 1.0], [5.0, -5.0]])
    starts = [tree.freeze({"act": jnp.tanh, "w": w}) for w in places]
    descents = descents_from(target, starts, 50)
    last = end(descents, 1)
    assert last["act"] is jnp.tanh
    np.testing.assert_allclose(last["w"], 1.0, atol=1e-3)
    assert np.asarray(descents.converged).all()


def test_a_place_without_curvature_is_no_mode_and_warns_nobody():
    overflow = lambda x: jnp.exp(60.0 * x) - jnp.exp(60.0 * x)  # noqa: E731
    target = ex.Target(lambda x: jnp.sum(x**2 + overflow(x)))
    coordinates = Coordinates(jnp.zeros(2), jnp.eye(2))
    assert _log_volume(target, coordinates, np.full(2, 2.0)) == -np.inf
    assert np.isfinite(_log_volume(target, coordinates, np.full(2, -2.0)))


def test_a_plateau_where_large_terms_cancel_is_no_mode():
    """Counts of 60 beta-binomials: with k from 1e9 on, log B(y + k m, .) - log B(k m, .) is 0."""
    rng = np.random.default_rng(7)
    n = rng.integers(5, 40, 60)
    y = rng.binomial(n, rng.beta(3, 7, 60))

    def potential(log_k):
        a, b = 0.3 * jnp.exp(log_k[0]), 0.7 * jnp.exp(log_k[0])
        betaln = jax.scipy.special.betaln
        log = betaln(jnp.float32(y) + a, jnp.float32(n - y) + b) - betaln(a, b)
        return 0.5 * (log_k[0] - 2.0) ** 2 - jnp.sum(log)

    target, mode = ex.Target(potential), jnp.array([2.3])
    assert potential(jnp.array([25.0])) < potential(mode) - 100.0, "as it is computed, it is a mode"
    coordinates = Coordinates(mode, jnp.full(1, 0.25))
    assert _is_rough(target, coordinates, np.array([22.7 / 0.25]))
    descents = descents_from(target, [mode + 22.7, mode - 22.7], 100)
    assert other_modes(target, coordinates, descents) == []


@pytest.mark.parametrize("offset", [0.0, 1e4, 1e7])
def test_the_way_over_a_barrier_is_not_rough(offset):
    """Positions and potentials that are large are rounded too, for which no mode is to blame."""
    split = two_modes(6.0)
    target = ex.Target(lambda x: offset + split.potential(x - 6.0 - offset / 1e3))
    coordinates = Coordinates(jnp.full(2, offset / 1e3), jnp.ones(2))
    assert not _is_rough(target, coordinates, np.full(2, 12.0))


def test_a_look_that_compiles_takes_no_time_from_the_others(monkeypatch):
    """On a slow machine there was one look alone, and a narrow mode was missed."""
    target, looks, look = two_modes(3.0), [], modes._potentials

    def slow_at_first(place, coordinates, u):
        if not looks:
            time.sleep(1.1 * modes.SECONDS)
        looks.append(len(u))
        return look(place, coordinates, u)

    monkeypatch.setattr(modes, "_potentials", slow_at_first)
    coordinates = Coordinates(jnp.full(3, -3.0), jnp.eye(3))
    found = descents_from(target, [jnp.full(3, -3.0)], 20)
    modes.scout_low_places(target, coordinates, found, key=KEY, deadline=Deadline.never())
    assert len(looks) > 1


@pytest.mark.parametrize(("dimension", "seconds"), [(21, 1e9), (3, 1e-3), (3, 1e9)])
def test_no_look_where_it_finds_nothing_or_takes_too_long(dimension, seconds):
    """With groups and 117 parameters it took 16 of 125 s."""
    target = ex.targets.gaussian(jnp.zeros(dimension), jnp.ones(dimension))
    coordinates = Coordinates(jnp.zeros(dimension), jnp.eye(dimension))
    found = descents_from(target, [jnp.ones(dimension)], 20)
    deadline = Deadline.after(seconds)
    more = modes.scout_low_places(target, coordinates, found, key=KEY, deadline=deadline)
    assert (len(more.potentials) > len(found.potentials)) == (dimension == 3 and seconds > 1.0)
