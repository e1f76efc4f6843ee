"""Bias, variance reduction and the funnel: exact parts exactly, sampled ones in small.

A sampled number is compared within `SIGMAS` standard errors over at least 64 independent chains,
a false-alarm probability below 1e-6 for each.
"""

import html
import json
import sys

import jax
import numpy as np
import pandas as pd
import pytest
from scipy import stats

import ergodax as ex
from experiments import __main__ as main
from experiments.formalml import (
    batch_bias,
    bias,
    funnel,
    funnel_law,
    variance_reduction,
)
from experiments.formalml import reduction_methods as methods
from experiments.formalml.linear_law import spread_of_batches
from experiments.measured import number

SIGMAS = stats.t.isf(0.5e-6, 63)


def test_pairs_of_chains_measure_the_exact_bias(monkeypatch, x64):
    monkeypatch.setattr(bias, "PAIRS", {"SGLD": (0.04,)})
    size = bias.Size(6000, 64)
    (row,) = bias.measure_steps(size, jax.random.key(0)).to_dict("records")
    assert abs(row["measured"] - row["pair"]) < SIGMAS * row["error"]
    clean = bias.law_of(bias.CLEAN_SGLD, 0.04).mean(lambda x: x**4)
    without_noise = clean / bias.true_moment(4) - 1.0
    assert abs(row["measured"] - without_noise) > SIGMAS * row["error"]


def test_pairs_of_chains_measure_what_a_batch_brings(x64):
    problem = batch_bias.make_regression()
    args = (4,), 1000, 64, jax.random.key(1)
    (row,) = batch_bias.measure_batches(problem, *args).to_dict("records")
    assert abs(row["mean"]) < SIGMAS * row["mean_error"] < 0.2
    assert abs(row["variance"] - row["exact"]) < SIGMAS * row["variance_error"]
    h = batch_bias.SHOWN * batch_bias.stable_step(problem)
    other, full = (batch_bias.inflation(problem, h, n) for n in (8, batch_bias.NUM_DATA))
    assert abs(row["variance"] - (other - full)) > SIGMAS * row["variance_error"]


SMALL = variance_reduction.Size(2000, 4, (30, 60), (0.03,))


@pytest.fixture(scope="module")
def setting():
    return methods.prepare(SMALL.num_data)


def rows_of(name, setting, fraction=0.03):
    method = methods.METHODS[name]
    (h,) = methods.step_sizes(method, setting, (fraction,))
    return variance_reduction.measure(method, setting, h, SMALL, jax.random.key(2))


@pytest.fixture(scope="module")
def plain(setting):
    return rows_of(methods.PLAIN, setting)[-1]


@pytest.mark.parametrize("name", ["SGLD, SVRG", "SGLD, SAGA", "SGLD, control variates"])
def test_the_noise_is_ten_times_less(setting, plain, name):
    assert rows_of(name, setting)[-1]["noise"] < 0.1 * plain["noise"]


def test_plain_batches_have_the_noise_that_they_must(setting, plain):
    """And NOGIN on them does not have ten times less."""
    problem = setting.problem
    scores = problem.x * (problem.y - problem.x @ problem.mean)[:, None]
    factor = spread_of_batches(SMALL.num_data, methods.BATCH_SIZE)
    assert plain["noise"] == pytest.approx(factor * np.trace(np.cov(scores.T)), rel=0.05)
    assert rows_of("NOGIN, plain batches", setting)[-1]["noise"] > 0.9 * plain["noise"]


def test_scores_that_are_linear_leave_order_two_no_noise(setting, plain):
    assert rows_of("SGLD, control variates, order 2", setting)[-1]["noise"] < 1e-9 * plain["noise"]


def test_zero_variance_is_exact_in_the_means_of_a_gaussian(setting, plain):
    assert rows_of("SGLD, zero variance", setting)[-1]["mean"] < 1e-3 < 0.01 < plain["mean"]


def test_the_exact_inflation_is_that_of_a_chain(setting):
    method = methods.METHODS[methods.PLAIN]
    h = 0.03 * setting.unit
    kernel = methods.make_kernel(method, setting, h, 1)
    samples = ex.sample(
        kernel, setting.mode, 1500, num_chains=64, burn_in=300, key=jax.random.key(3),
        progress=False,
    )  # fmt: skip
    off = samples.position.astype(np.float64) - setting.problem.mean
    each = (off**2).mean(axis=1).sum(axis=1) / np.trace(setting.problem.covariance) - 1.0
    exact = variance_reduction.exact_inflation(method, setting, h)
    error = each.std(ddof=1) / 8.0
    assert abs(each.mean() - exact) < SIGMAS * error
    centred = methods.METHODS["SGLD, control variates"]
    assert (
        abs(each.mean() - variance_reduction.exact_inflation(centred, setting, h)) > SIGMAS * error
    )


@pytest.mark.parametrize("name", methods.METHODS)
def test_evaluations_are_counted(setting, name):
    """Those of the set-up apart, a run costs what `budget` says a step does."""
    method = methods.METHODS[name]
    overhead, each = methods.budget(method, setting)
    rows, period = SMALL.num_data, SMALL.num_data // methods.BATCH_SIZE
    (h,) = methods.step_sizes(method, setting, (0.03,))
    kernel = methods.make_kernel(method, setting, h, 2 * period)
    samples = ex.sample(kernel, setting.mode, 2 * period, key=jax.random.key(0), progress=False)
    assert samples.info.evaluations.sum() == 2 * period * each
    own = {"SGLD, SAGA": 1, "SGLD, control variates": 1, "NOGIN, control variates": 1}
    own["SGLD, control variates, order 2"] = 1 + methods.DIMENSION
    assert overhead == (setting.passes + own.get(name, 0)) * rows


def test_the_meter_changes_nothing(setting):
    method = methods.METHODS[methods.PLAIN]
    kernel = methods.make_kernel(method, setting, setting.unit, 10)
    bare = ex.sgld(method.estimator(setting), setting.unit)
    with_meter, without = (
        ex.sample(k, setting.mode, 10, key=jax.random.key(0), progress=False).position
        for k in (kernel, bare)
    )
    np.testing.assert_array_equal(with_meter, without)


@pytest.fixture(scope="module")
def laws():
    return {h: funnel_law.stationary(h) for h in (0.2, 0.1)}


TAIL = funnel.Size(64, 20_000, 20)


def test_chains_have_the_exact_law_and_sgld_has_not_the_tail(laws):
    row, v = funnel.measure("SGRLD", 0.1, 1, TAIL, jax.random.key(0))
    for place in funnel.PLACES:
        exact = float(laws[0.1].below(place))
        assert abs(number(row, f"below {place:g}").deviation(exact)) < SIGMAS
    assert v.shape == (64, 750) and row["diverged"] == 0.0
    sgld, _ = funnel.measure("SGLD", 0.03, 1, TAIL, jax.random.key(0))
    assert sgld["below -6"] < 1e-3 < 0.5 * row["below -6"]
    # The tail is there for no step size: below log(h / 2) it is unstable.
    assert np.log(0.03 / 2.0) > -6.0


SIZES = {
    "bias": (bias, bias.Size(100, 4, 100, (4,)), 10),
    "variance-reduction": (
        variance_reduction,
        variance_reduction.Size(1000, 3, (40, 60), (0.03,), variance_reduction.FEW),
        10,
    ),
    "funnel": (funnel, funnel.Size(8, 400, 4, (1,), (0.2, 0.1)), 10),
}


@pytest.mark.parametrize("name", SIZES)
def test_the_files(monkeypatch, capsys, tmp_path, name):
    module, size, count = SIZES[name]
    monkeypatch.setattr(module, "QUICK", size)
    if module is bias:
        monkeypatch.setattr(bias, "STEPS", (0.2, 0.14))
        monkeypatch.setattr(bias, "OWN_STEPS", (0.02, 0.014))
        monkeypatch.setattr(bias, "PAIRS", {"SGLD": (0.04,)})
        monkeypatch.setattr(bias.orders, "fit", slopes)
    if module is funnel:
        monkeypatch.setattr(funnel, "SGLD_STEPS", (0.1, 0.03))
    folder = tmp_path / "out"
    arguments = ["experiments", name, "--quick", "--seed", "3", "--output", str(folder)]
    monkeypatch.setattr(sys, "argv", [*arguments, "--json"])
    with pytest.raises(SystemExit) as stop:
        main.main()
    out = capsys.readouterr().out
    assert stop.value.code == 0
    written = {path.name for path in folder.iterdir()}
    assert written == {f"{name}.png", f"{name}.csv", "facts.json", "report.html"}
    facts = json.loads(out)
    assert facts["seed"] == 3 and len(pd.read_csv(folder / f"{name}.csv")) == count
    page = (folder / "report.html").read_text()
    assert all(verdict in html.unescape(page) for verdict in facts["verdicts"])


def slopes(laws):
    """The form of a table of orders; two step sizes have none."""
    names = laws["sampler"].unique()
    numbers = {f"{error}{end}": 1.0 for error in bias.orders.ERRORS for end in ("", "_error")}
    return pd.DataFrame([{"sampler": name} | numbers for name in names])
