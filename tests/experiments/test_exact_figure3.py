"""Figure 3 of Ma, Chen and Fox: how its step sizes are chosen, and its exact values."""

import jax.numpy as jnp
import pandas as pd
import pytest

import ergodax as ex
from experiments.ma_chen_fox_2015 import figure3


def test_exact_values():
    exact = figure3.exact_values()
    assert exact["x1²"] == pytest.approx(1.06881544366236, abs=1e-6)
    assert exact["x2"] == pytest.approx(-0.932796139084411, abs=1e-6)


def test_the_best_step_is_the_most_effective_of_those_within_the_bound():
    numbers = [(0.1, 0.01, 2.0), (0.2, 0.04, 4.0), (0.3, 0.2, 9.0), (0.4, 0.06, 8.0)]
    rows = [{"step_size": h, "bias": bias, "least_ess": ess} for h, bias, ess in numbers]
    assert figure3.ranked(rows) == [0.2, 0.1, 0.4, 0.3]


def test_the_verdict_names_the_one_with_the_most_effective_draws():
    table = pd.DataFrame({"noise": [0.0, 0.0], "sampler": ["A", "B"], "least_ess": [2.0, 5.0]})
    (sentence,) = figure3.verdicts(table)
    assert (
        sentence.startswith("B mixes best (exact gradients): 5.0") and "2.50 times A's" in sentence
    )


def test_paths_begin_on_the_floor_of_the_valley():
    x, y = figure3.START
    assert 4 * (y + 1.2) == pytest.approx(x**2, abs=1e-6)
    assert float(ex.targets.banana().potential(jnp.array([x, y]))) < 4
