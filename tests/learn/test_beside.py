"""How far the no-U-turn sampler comes in a given time, and what is told of it."""

import dataclasses

import jax
import numpy as np
import pytest

from ergodax.learn import beside, families, regression
from ergodax.report import inference


def model():
    """Two columns, 300 rows."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 2))
    y = (rng.random(300) < 1.0 / (1.0 + np.exp(-x[:, 0]))).astype(float)
    rows = regression.Rows(x, y, ["a", "b"], classes=("0", "1"))
    return regression.regression(rows, families.LOGISTIC, 1.0)


def told(nuts):
    """The sentence of the report."""
    return "".join(inference.raced(nuts))


@pytest.mark.slow
def test_with_time_it_has_draws_and_a_shorter_error_needs_longer():
    nuts = beside.run_nuts(model(), 30.0, 0.05, jax.random.key(0))
    assert nuts.warm == 1.0 and nuts.draws > 1_000 and nuts.error < 0.05
    assert nuts.needed <= nuts.seconds + 1.0, "it is there"
    assert "errors of up to" in told(nuts) and "extrapolated" not in told(nuts)
    short = beside.run_nuts(model(), 30.0, 0.5 * nuts.error, jax.random.key(0))
    assert short.needed > nuts.seconds


def test_without_time_it_has_none():
    nuts = beside.run_nuts(model(), 0.0, 0.05, jax.random.key(0))
    assert nuts.warm < 1.0 and nuts.draws == 0 and np.isnan(nuts.error)
    assert "0% of its warm-up, and no draw." in told(nuts)
    assert "extrapolated" not in told(nuts), "nothing is known of its pace"


def test_what_is_told_says_what_is_extrapolated():
    cut = beside.Nuts(20.0, 0.25, 0, np.nan, 300.0)
    assert told(cut).endswith(
        "25% of its warm-up, and no draw. It would need about 300 s, 15 times as long "
        "(extrapolated)."
    )
    few = dataclasses.replace(cut, warm=1.0, draws=2)
    assert "too few to tell an error" in told(few)
    assert told(None) == ""
