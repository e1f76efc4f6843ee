"""When pilots of a sampler on batches give way to an exact one."""

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from ergodax.diagnostics import BiasReport
from ergodax.driver import Samples
from ergodax.tune import Coordinates
from ergodax.tune.budget import Deadline
from ergodax.tune.pilot import SLOWLY, _Search  # pyright: ignore[reportPrivateUsage]
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
    assert not search(bound=3.0, slow=2, pace=1.0).doubt(np.inf)
    assert "nothing of the normal law" in search(widest=20.0).doubt(np.inf)


@pytest.mark.parametrize(
    ("known", "why"),
    [({"bound": 3.1}, "the bias of the step may be 3.1 sd"), ({"slow": 2}, "a few rows")],
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
        "to measure the bias takes some 17 s in all, an exact sampler no more than 16"
    )
    assert not found.doubt(18.0)
    found.spent = 1.5  # in the runs before
    assert "some 18 s in all" in found.doubt(18.0)


@pytest.mark.parametrize(("factor", "slowly"), [(0.9, False), (1.1, True)])
def test_an_error_that_does_not_fall_as_noise_does_is_noticed(factor, slowly):
    """First a shorter step is tried; where it falls slowly again, a few rows decide."""
    found = search(bound=0.08)
    assert found.may_be_noise(0.0, 500, 0.05), "there is no run before"
    found.bound = factor * SLOWLY * 0.08 * 0.5**0.5
    assert found.may_be_noise(0.0, 1_000, 0.05) != slowly
    assert found.slow == slowly and not found.doubt(1e6)
    for bound, draws in ((0.08, 500), (factor * SLOWLY * 0.08 * 0.5**0.5, 1_000)):
        found.bound, found.error = bound, np.inf if draws == 500 else found.error
        found.may_be_noise(0.0, draws, 0.05)
    assert ("a few rows" in found.doubt(1e6)) == slowly


def test_a_small_or_certain_bias_is_no_slow_noise():
    found = search(bound=0.03, error=1e-9)
    assert found.may_be_noise(0.0, 100_000, 0.05) and found.slow == 0, "it does no harm"
    found = search(bound=0.3, error=1e-9)
    assert not found.may_be_noise(0.2, 100_000, 0.05) and found.slow == 0, "it is there"


def report(made, mcse):
    """Of so many draws, whose errors are those of a mean and an sd of 1."""
    index = pd.MultiIndex.from_product([["w[0]", "w[1]"], ["mean", "sd"]])
    table = pd.DataFrame({"estimate": [9.0, 1.0, 9.0, 1.0], "mcse": mcse}, index=index)
    found = BiasReport(1.0, 0.5, 4.0, 0, Samples(np.zeros((4, made, 2)), None, None))
    vars(found)["table"] = table  # which it would make of its draws
    return found


@pytest.mark.parametrize(
    ("mcse", "each", "draws"),
    [(0.03, 1_000, 3_110), (0.03, 5_000, 500), (0.01, 1_000, 500), (0.2, 1_000, 500)],
    ids=["worth it", "programs are quicker", "there are enough", "too many"],
)
def test_a_pilot_goes_on_where_that_is_quicker_than_another_program(mcse, each, draws):
    found = search(bound=0.025, draws=500)
    worth = found.is_worth_more(report(1_800, [mcse, 0.01, 0.01, 0.01]), 0.05, each)
    assert worth == (draws != 500)
    assert found.draws == draws


def test_white_draws():
    draws = np.array([[1.0, -1.0], [-1.0, 1.0]])
    assert are_white(draws) and not are_white(draws * [1.0, 1.5]) and not are_white(0.7 * draws)
