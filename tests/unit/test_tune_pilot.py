"""When pilots of a sampler on batches give way to an exact one."""

import jax.numpy as jnp
import numpy as np
import pytest

from ergodax.tune import Coordinates
from ergodax.tune.budget import Deadline
from ergodax.tune.pilot import _Search  # pyright: ignore[reportPrivateUsage]
from ergodax.tune.whitening import are_white


def search(**known):
    """After a run of 500 draws that ended well."""
    coordinates = Coordinates(jnp.zeros(2), jnp.eye(2))
    found = _Search(coordinates, np.zeros((1, 2)), Deadline.never())
    found.best = (None, None, None, None)  # pyright: ignore[reportAttributeAccessIssue]
    for name, value in known.items():
        setattr(found, name, value)
    return found


def test_without_an_exact_sampler_nothing_but_wild_draws_ends_it():
    assert not search(bound=3.0, is_heavy=True, pace=1.0).doubt(np.inf)
    assert "nothing of the normal law" in search(widest=20.0).doubt(np.inf)


@pytest.mark.parametrize(
    ("known", "why"),
    [({"bound": 3.1}, "the bias of the step may be 3.1 sd"), ({"is_heavy": True}, "a few rows")],
)
def test_a_bias_that_more_draws_do_not_mend(known, why):
    assert why in search(**known).doubt(1e6)


def test_a_measurement_that_takes_longer_than_exact_draws():
    """A bound of .42 by 500 draws is .025 by 169,344, which at this pace take 17 s."""
    found = search(pace=1e-4)
    found.take_more(500, 0.42, 0.05)
    assert found.needed == pytest.approx(500 * 1.2 * (2 * 0.42 / 0.05) ** 2)
    assert found.draws == 8_000, "no more than sixteen times as many at once"
    assert found.doubt(16.0) == (
        "to measure the bias takes some 17 s, an exact sampler no more than 16"
    )
    assert not found.doubt(18.0)


def test_white_draws():
    draws = np.array([[1.0, -1.0], [-1.0, 1.0]])
    assert are_white(draws) and not are_white(draws * [1.0, 1.5]) and not are_white(0.7 * draws)
