"""Bias by step size and by batch, and the law on the funnel: what is known exactly."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import ergodax as ex
from experiments.formalml import (
    batch_bias,
    bias,
    funnel,
    funnel_law,
    variance_reduction,
)
from experiments.formalml.linear_law import Regression, covariance_of_sgld

LINE = Regression(
    np.array([[1.0], [2.0], [-1.0], [0.5], [1.5]]), np.array([1.2, 1.7, -0.8, 0.1, 2.0]), 1.0, 4.0
)
KNOWN = [  # step size, batch size, with replacement, centred, variance; by enumeration of batches
    (0.02, 5, False, False, 0.1252446184),
    (0.02, 2, False, False, 0.1302600701),
    (0.02, 2, True, False, 0.1319785658),
    (0.02, 2, False, True, 0.1278491380),
    (0.1, 5, False, False, 0.2031746032),
    (0.1, 2, False, False, 0.2663412909),
    (0.1, 2, True, False, 0.2933465931),
    (0.1, 2, False, True, 0.2433922799),
]


@pytest.mark.parametrize("h, n, replace, centred, variance", KNOWN)
def test_variance_of_sgld(h, n, replace, centred, variance):
    assert LINE.mean[0] == pytest.approx(0.9657142857, abs=1e-10)
    found = covariance_of_sgld(LINE, h, n, replace, centred=centred)[0, 0]
    assert found == pytest.approx(variance, abs=1e-10)


def test_covariance_of_sgld():
    x = np.stack([np.ones(4), np.arange(4.0)], axis=1)
    plane = Regression(x, np.array([0.1, 1.2, 1.9, 3.2]), 0.25, 1.0)
    full = [[0.1506256333, -0.0601309459], [-0.0601309459, 0.0504073901]]
    pairs = [[0.1531009723, -0.0594257072], [-0.0594257072, 0.0558367578]]
    np.testing.assert_allclose(covariance_of_sgld(plane, 0.01, 4), full, atol=1e-9)
    np.testing.assert_allclose(covariance_of_sgld(plane, 0.01, 2), pairs, atol=1e-9)


def test_an_unstable_step_is_refused():
    with pytest.raises(ValueError, match="unstable with batches of 5"):
        covariance_of_sgld(LINE, 0.3, 5)


@pytest.mark.parametrize(
    "name, h, second, fourth",
    [
        ("SGLD", 0.05, 1.040569098, 2.142616264),
        (bias.CLEAN_SGLD, 0.05, 1.030023183, 2.092448000),
        (bias.CLEAN_SGLD, 0.025, 1.036166537, None),
        (bias.CLEAN_BAOAB, 0.25, 1.03855838, 2.03876148),
        ("NOGIN", 0.25, 1.02412633, 1.97354237),
    ],
)
def test_known_moments(name, h, second, fourth):
    law = bias.law_of(name, h)
    assert law.mean(np.square) == pytest.approx(second, abs=2e-5)
    if fourth is not None:
        assert law.mean(lambda x: x**4) == pytest.approx(fourth, abs=3e-5)


def test_orders(monkeypatch):
    monkeypatch.setattr(bias, "STEPS", (0.2, 0.14, 0.1))
    monkeypatch.setattr(bias, "OWN_STEPS", (0.02, 0.014, 0.01))
    found = bias.orders.fit(bias.exact_laws())
    slopes = dict(zip(found["sampler"], found["distance"].astype(float), strict=True))
    for name, order in bias.ORDERS.items():
        assert slopes[name] == pytest.approx(order, abs=0.1)
    # The negative controls: noise takes an order from BAOAB, and compensation gives it to NOGIN.
    assert slopes["BAOAB"] < 1.1 < 1.9 < min(slopes["NOGIN"], slopes[bias.CLEAN_BAOAB])


def falls_to_nothing(biases: pd.DataFrame) -> bool:
    """Whether halving a small step size halves the bias, whatever the batch."""
    wide, narrow = (biases[f].to_numpy() for f in (0.025, 0.0125))
    return bool(np.all(np.abs(wide / narrow - 2.0) < 0.08))


def test_the_bias_of_a_batch_vanishes_with_the_step_size():
    table = batch_bias.exact_regression(batch_bias.make_regression())
    biases = table.pivot_table(index="batch_size", columns="fraction", values="bias")
    assert falls_to_nothing(biases)
    floor = 0.2 / biases.index.to_numpy()  # what a term in 1/n alone would do
    assert not falls_to_nothing(biases.add(floor, axis=0))


def test_the_bias_is_eta_times_a_line_in_the_batch():
    problem = batch_bias.make_regression()
    disc, noise = batch_bias.constants(batch_bias.exact_regression(problem))
    h, size = 1e-4 * batch_bias.stable_step(problem), batch_bias.NUM_DATA
    for n in batch_bias.BATCH_SIZES:
        expected = h * (disc + noise * size**2 * (1.0 / n - 1.0 / size))
        assert batch_bias.inflation(problem, h, n) == pytest.approx(expected, rel=0.02)


def test_the_best_step_has_the_least_of_the_larger_errors():
    numbers = [("A", 0.1, 0.3, 0.2), ("A", 0.2, 0.1, 0.25), ("B", 0.1, 1.0, 1.0)]
    table = pd.DataFrame(numbers, columns=["method", "step_size", "mean", "variance"])  # pyright: ignore[reportArgumentType]
    best = variance_reduction.best_steps(table.assign(passes=3))
    assert best[["method", "step_size"]].to_numpy().tolist() == [["A", 0.2], ["B", 0.1]]
    assert variance_reduction.shown({"mean": 2e-7, "mean_error": 1e-8}, "mean") == "2e-07"


@pytest.fixture(scope="module")
def laws():
    return {h: funnel_law.stationary(h) for h in (0.2, 0.1)}


def test_the_funnels_own_probabilities():
    assert funnel.truth(-2.0) == pytest.approx(0.252492537546923, abs=1e-14)
    draws = ex.targets.funnel(2, 3.0).sample(jax.random.key(0), 200_000)
    small = (np.abs(np.asarray(draws[:, 1])) < 1.0).mean()
    assert small == pytest.approx(0.622315543471449, abs=6 * 0.5 / 447)


def test_the_law_does_not_depend_on_the_grid(laws, monkeypatch):
    monkeypatch.setattr(funnel_law, "CELLS", 2.5)
    monkeypatch.setattr(funnel_law, "EDGE", 8.0)
    finer = funnel_law.stationary(0.1)
    for place in funnel.PLACES:
        assert finer.below(place) == pytest.approx(float(laws[0.1].below(place)), abs=3e-6)
    assert finer.moment(0) == pytest.approx(1.0, abs=1e-12)


def test_sgrld_is_right_in_the_limit_and_with_the_printed_correction_is_not(laws):
    wide, narrow = (float(laws[h].below(-2.0)) - funnel.truth(-2.0) for h in (0.2, 0.1))
    assert wide / narrow == pytest.approx(2.0, abs=0.15)
    assert abs(2.0 * narrow - wide) < 0.1 * abs(narrow)
    assert float(funnel_law.stationary(0.2, gamma=-1.0).below(-2.0)) > 0.9


def test_a_grid_that_loses_mass_is_refused(monkeypatch):
    monkeypatch.setattr(funnel_law, "REACH", 6.0)
    with pytest.raises(ValueError, match="grid loses"):
        funnel_law.stationary(0.2)


def test_the_metric_and_the_best_row():
    metric = funnel.inverse_metric(jnp.array([2.0, 5.0, -1.0]))
    np.testing.assert_allclose(metric, [1.0, np.exp(2.0), np.exp(2.0)], rtol=1e-6)
    table = pd.DataFrame({"x": 1, "sampler": "SGLD", "step_size": [0.1, 0.2], "worst": [0.3, 0.1]})
    assert funnel.best(table, "SGLD")["step_size"] == 0.2


def slopes(laws):
    """The form of a table of orders; two step sizes have none."""
    names = laws["sampler"].unique()
    numbers = {f"{error}{end}": 1.0 for error in bias.orders.ERRORS for end in ("", "_error")}
    return pd.DataFrame([{"sampler": name} | numbers for name in names])


def test_the_table_of_orders_is_texts():
    slope = slopes(pd.DataFrame({"sampler": ["NOGIN"]}))
    none = pd.DataFrame()
    result = bias.Result(none, slope, none, none, none, [], {})
    assert bias.slopes_table(result).iloc[0]["law"] == "1.0 ± 1.0"
