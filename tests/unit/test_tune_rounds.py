"""How many draws an inference begins with, and when it gives up a pilot."""

import jax.numpy as jnp
import numpy as np

import ergodax as ex
from ergodax.stats.estimators import scale_reduction
from ergodax.tune import rounds
from ergodax.tune.budget import Deadline
from ergodax.tune.decisions import LARGEST_R_HAT, Tuned
from ergodax.tune.pilot import SLOWLY, _Search
from ergodax.tune.whitening import Coordinates

D, CHAINS = 20, 4
TARGET = ex.targets.gaussian(jnp.zeros(D), jnp.eye(D))
COORDINATES = Coordinates(jnp.zeros(D), jnp.eye(D))
TUNED = Tuned(None, COORDINATES, jnp.zeros((CHAINS, D)), None, 1, 0)


def first(monkeypatch, seconds, accuracy=0.05):
    monkeypatch.setattr(rounds, "seconds_of_gradient", lambda target, position: seconds)
    return rounds._first_round(TARGET, TUNED, accuracy, CHAINS)


def test_cheap_draws_are_many_and_dear_ones_are_those_that_are_needed(monkeypatch):
    assert first(monkeypatch, 1e-6) == rounds.AT_LEAST
    few = first(monkeypatch, 1.0)
    assert 1.0 / 0.05**2 < CHAINS * few < CHAINS * rounds.AT_LEAST
    assert few < first(monkeypatch, 0.002) < rounds.AT_LEAST
    assert first(monkeypatch, 1.0, accuracy=0.01) == rounds.AT_LEAST


def test_with_so_many_independent_draws_r_hat_is_below_its_limit(monkeypatch):
    """In 99 of 100 runs; of 300, 12 or more failures have a chance of 1 in 10,000."""
    count = first(monkeypatch, 1.0, accuracy=0.2)
    draws = np.random.default_rng(1).normal(size=(CHAINS, count, 300, D))
    largest = scale_reduction(draws, "split").max(axis=-1)
    assert np.sum(largest > LARGEST_R_HAT) < 12
    fewer = scale_reduction(draws[:, : count // 2], "split").max(axis=-1)
    assert np.mean(fewer > LARGEST_R_HAT) > 0.05, "the control"


def test_an_error_that_does_not_fall_as_noise_does_is_noticed():
    """The second run has as many draws as the error of the first one asks for."""
    for factor, heavy in ((0.9, False), (1.1, True)):
        search = _Search(COORDINATES, np.zeros((1, D)), Deadline.never())
        search.take_more(500, 0.08, 0.05)
        assert search.draws == int(500 * 1.2 * (0.08 / 0.025) ** 2) and not search.is_heavy
        noise = 0.08 * (500 / search.draws) ** 0.5
        search.take_more(search.draws, factor * SLOWLY * noise, 0.05)
        assert search.is_heavy == heavy
