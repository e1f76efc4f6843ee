"""NUTS and its warm-up: trajectories and time are bounded."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.tune import Coordinates
from ergodax.tune.budget import Deadline
from ergodax.tune.nuts import (
    FEWEST_DOUBLINGS,
    Warm,
    _Chains,
    _inside,
    _unfinished,
    tune_nuts,
    warm_up,
)
from ergodax.tune.nuts_kernel import MOST_DOUBLINGS, Nuts

KEY = jax.random.key(5)
GAUSSIAN = ex.Target(lambda x: 0.5 * jnp.sum(x**2))
WIDE = ex.Target(lambda x: 0.5 * jnp.sum((x / jnp.array([1.0, 100.0])) ** 2))


@pytest.mark.slow
@pytest.mark.parametrize("doublings", [1, 3, 5])
def test_a_trajectory_is_no_longer_than_its_doublings_allow(doublings):
    """A step so short that it would go on for long."""
    kernel = Nuts(GAUSSIAN, jnp.float32(0.01), doublings)
    _, info = kernel.step(KEY, kernel.init(KEY, jnp.ones(2)))
    assert info.evaluations == 2**doublings - 1


@pytest.mark.slow
def test_the_coordinates_take_the_place_of_a_mass():
    plain = Coordinates(jnp.zeros(2), jnp.eye(2))
    starts = jax.random.normal(KEY, (4, 2))
    warm = warm_up(WIDE, plain, starts, key=KEY)
    # 600 draws of the last window tell an sd to 3 %; autocorrelated, they are worth some hundred.
    np.testing.assert_allclose(warm.coordinates.scales, [1.0, 100.0], rtol=0.3)
    # The negative control: without a window the scales are those of the start.
    late = warm_up(WIDE, plain, starts, key=KEY, deadline=Deadline.after(0.0))
    np.testing.assert_array_equal(late.coordinates.scales, [1.0, 1.0])


@pytest.mark.slow
@pytest.mark.parametrize(("seconds", "doublings"), [(0.0, FEWEST_DOUBLINGS), (1e6, MOST_DOUBLINGS)])
def test_trajectories_are_short_where_time_is(seconds, doublings, monkeypatch):
    """A deadline that has passed leaves a kernel, whatever it is worth."""
    monkeypatch.setattr("ergodax.tune.nuts.WINDOWS", ())
    monkeypatch.setattr("ergodax.tune.nuts.SETTLING", 10)
    monkeypatch.setattr("ergodax.tune.nuts.LAST", 10)
    coordinates = Coordinates(jnp.zeros(2), jnp.eye(2))
    tuned = tune_nuts(GAUSSIAN, coordinates, KEY, 2, deadline=Deadline.after(seconds))
    assert tuned.kernel.max_doublings == doublings
    assert np.isfinite(tuned.starts).all()


def test_other_data_of_the_same_shape_need_no_program_for_the_starts():
    traced, counts = [], []

    def log_likelihood(w, x):
        traced.append(1)
        return -0.5 * (x - w[0]) ** 2

    def log_prior(w):
        return -0.5 * w @ w

    for seed in (1, 2):
        rows = np.random.default_rng(seed).normal(size=(5,)).astype("f4")
        posterior = ex.Posterior(log_prior, log_likelihood, rows)
        plain = Coordinates(jnp.zeros(1), jnp.eye(1))
        _inside(posterior, plain, jnp.zeros((2, 1)), np.ones((2, 1)))
        counts.append(len(traced))
    assert counts[1] == counts[0] > 0


def test_a_warm_up_that_was_cut_tells_its_pace_without_the_compilation():
    plain = Coordinates(jnp.zeros(2), jnp.eye(2))
    chains = _Chains(GAUSSIAN, plain, jnp.zeros((4, 2)), 5, Deadline.never(), 0.8)
    assert np.isnan(chains.pace)
    chains.clock = [(8.0, 10)]
    assert np.isnan(chains.pace), "most of it is the compilation"
    chains.clock += [(1.0, 10), (0.5, 5)]
    assert chains.pace == pytest.approx(0.1)

    def told(seconds):
        return _unfinished(Warm(chains.kernel(1.0), plain, chains.ends, 0.05, seconds))

    assert "some 140 s" in told(42.0)
    assert "twice as large" in told(np.nan) and "nan" not in told(np.nan)
