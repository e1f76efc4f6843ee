"""A regression from a table to draws in its units, its predictions and its reference."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import ergodax as ex
from ergodax import tune
from ergodax.diagnostics import BiasReport
from ergodax.driver import Samples
from ergodax.learn import beside, families, fit, held_out, regression, tables

pytestmark = pytest.mark.slow

TRUTH = np.array([1.5, -0.1, 5.0])  # of columns whose sds are 1, 10 and 0.1
SCALES, CENTRES = np.array([1.0, 10.0, 0.1]), np.array([0.0, 50.0, -3.0])


def synthetic(rows, seed):
    rng = np.random.default_rng(seed)
    x = CENTRES + SCALES * rng.normal(size=(rows, 3))
    logit = (x - CENTRES) @ TRUTH + 0.3
    y = (rng.random(rows) < 1 / (1 + np.exp(-logit))).astype(float)
    return tables.Table(x, y, ["a", "b", "c"], ("0", "1"))


@pytest.fixture(scope="module")
def found():
    return fit.fit(
        "logistic", synthetic(1000, 1), synthetic(500, 2), progress=False, reference=True
    )


@pytest.mark.slow
def test_the_answer_agrees_with_the_reference(found):
    """Four components, two functionals each; z = 5 leaves 5e-6 for a false alarm."""
    comparison = found.reference.comparison
    table = found.result.table
    assert found.result.converged and np.min(table["ess"]) > 400
    assert np.max(found.reference.summary["r_hat"]) < 1.02
    assert np.all(np.abs(comparison["difference"]) < 5 * comparison["mcse"] + 0.05)
    error = 5 / np.sqrt(np.min(table["ess"]))
    assert np.all(np.abs(comparison["sd_ratio"] - 1) < error + 0.05)


@pytest.mark.slow
def test_a_wrong_answer_is_seen(found):
    """Negative control: the reference of the posterior of half of the rows."""
    some = synthetic(1000, 1).rows(np.arange(500))
    rows = regression.Rows(some.features, some.target, some.names, classes=some.classes)
    half = regression.regression(rows, families.LOGISTIC, 1.0)
    half = dataclasses.replace(half, units=found.model.units)
    other = beside.run_reference(half, found.result, None, jax.random.key(5), progress=False)
    ratio = other.comparison["sd_ratio"].to_numpy()
    # 1000 and 500 rows: sds 0.7 of the reference's, five errors of 1/20 away from 1.
    assert ratio.mean() < 1 - 5 / 20 / 2


def test_the_coefficients_are_those_of_the_table(found):
    """The truth lies within five posterior sds, in the columns' own units."""
    table = found.result.table
    truth = np.array([*TRUTH, 0.3 - CENTRES @ TRUTH])
    assert np.all(np.abs(table["mean"].to_numpy() - truth) < 5 * table["sd"].to_numpy())
    assert list(table.index) == ["a", "b", "c", "intercept"]
    # The prior shrinks: a coefficient times its column's sd is N(0, 1).
    assert table["sd"]["b"] < 0.2 * table["sd"]["a"] < 0.2 * table["sd"]["c"]


def test_the_held_out_performance_is_that_of_the_model(found):
    scores, other = found.held_out.scores, found.reference.held_out.scores
    assert abs(scores["averaged_accuracy"] - other["averaged_accuracy"]) < 0.02
    name = "log_predictive_density"
    assert scores[name] == pytest.approx(other[name], abs=0.01)
    # Averaging probabilities over draws can only help the log density (Jensen).
    assert scores["averaged_log_predictive_density"] >= scores[name]
    assert found.held_out.calibration["count"].sum() == scores["rows"] == 500


def test_reliability_counts_every_row():
    rng = np.random.default_rng(0)
    probability = rng.random(2000)
    target = (rng.random(2000) < probability).astype(float)
    table = held_out.reliability(probability, target)
    assert np.sum(table["count"]) == 2000

    def inside(table):
        low, predicted, high = (table[c].to_numpy() for c in ("low", "predicted", "high"))
        return (low <= predicted) & (predicted <= high)

    assert inside(table).mean() > 0.5
    wrong = held_out.reliability(probability, 1.0 - target)
    assert not inside(wrong).all(), "a miscalibrated forecast must show"


def test_predictions_of_a_number_are_exact():
    """Two draws of one column: density, root mean squared error and levels by hand."""
    draws = {
        "coefficient": np.array([[[1.0], [3.0]]]),
        "intercept": np.array([[0.0, 0.0]]),
        "residual_sd": np.array([[1.0, 2.0]]),
    }
    test = tables.Table(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]), ["x"], ())
    found = held_out.held_out(draws, test, families.LINEAR)

    def normal(z, sd):
        return np.exp(-0.5 * (z / sd) ** 2) / (sd * np.sqrt(2 * np.pi))

    density = np.array([[normal(0, 1), normal(2, 1)], [normal(2, 2), normal(2, 2)]])
    assert found.scores["log_predictive_density"] == pytest.approx(np.log(density).mean())
    averaged = found.scores["averaged_log_predictive_density"]
    assert averaged == pytest.approx(np.log(density.mean(axis=0)).mean())
    assert found.scores["root_mean_squared_error"] == pytest.approx(np.sqrt(0.5))
    # The predictive cdf is (0.5 + 0.159) / 2 at the first row, (0.977 + 0.159) / 2 at the second.
    assert found.calibration["observed"].tolist() == [0.0, 0.0, 0.5, 1.0, 1.0]


def test_predictions_of_counts_are_exact():
    """Two draws of a Poisson law; all rows but a share of their own probability are below."""
    draws = {"coefficient": np.array([[[0.0], [0.0]]]), "intercept": np.log([[1.0, 3.0]])}
    y = np.random.default_rng(3).poisson(np.repeat([1.0, 3.0], 2_000)).astype(float)
    test = tables.Table(np.zeros((len(y), 1)), y, ["x"], ())
    found = held_out.held_out(draws, test, families.POISSON)
    density = np.stack([stats.poisson.pmf(y, mean) for mean in (1.0, 3.0)])
    assert found.scores["log_predictive_density"] == pytest.approx(np.log(density).mean())
    averaged = found.scores["averaged_log_predictive_density"]
    assert averaged == pytest.approx(np.log(density.mean(axis=0)).mean())
    rms = np.sqrt(np.mean((y - 2.0) ** 2))
    assert found.scores["root_mean_squared_error"] == pytest.approx(rms)
    # The rows are of the predictive law, so each level is right; z = 5 of 4,000 rows.
    table = found.calibration
    level, below = table["predicted"].to_numpy(), table["observed"].to_numpy()
    assert np.all(np.abs(below - level) < 5.0 * np.sqrt(level * (1.0 - level) / len(y)))


def test_a_class_that_is_held_out_as_a_whole_is_named():
    rows = tables.Table(np.arange(6.0)[:, None], np.repeat([0.0, 2.0], 3), ["x"], ("a", "b", "c"))
    with pytest.raises(ValueError, match="all rows of class b are held out"):
        fit.fit("multinomial", rows)


def test_predictions_of_classes_are_exact():
    """Two draws, three classes."""
    draws = {
        "coefficient": np.zeros((1, 2, 3, 1)),
        "intercept": np.log([[[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]]]),
    }
    test = tables.Table(np.zeros((4, 1)), np.array([0.0, 0.0, 2.0, 1.0]), ["x"], ("a", "b", "c"))
    found = held_out.held_out(draws, test, families.MULTINOMIAL)
    each = np.array([[0.2, 0.2, 0.5, 0.3], [0.6, 0.6, 0.1, 0.3]])
    assert found.scores["log_predictive_density"] == pytest.approx(np.log(each).mean())
    assert found.scores["accuracy"] == pytest.approx((0.25 + 0.5) / 2)
    assert found.scores["averaged_accuracy"] == pytest.approx(0.5)  # (.4, .3, .3)
    averaged = np.log(each.mean(axis=0)).mean()
    assert found.scores["averaged_log_predictive_density"] == pytest.approx(averaged)
    assert found.calibration["count"].to_numpy().sum() == 12


def test_a_measured_bias_follows_into_the_units(key):
    """The bias of a linear combination is that combination of the biases."""
    target = ex.targets.gaussian(jnp.array([1.0, -1.0]), jnp.array([[1.0, 0.3], [0.3, 2.0]]))
    report = ex.diagnostics.bias(
        lambda h: ex.sgld(ex.FullGradient(target), h), jnp.zeros(2), 0.5, 400, key=key,
        progress=False,
    )  # fmt: skip
    units = regression.Units(np.array([30.0]), np.array([0.01]), 7.0, 5.0)
    told = report.of(units)
    assert isinstance(told, BiasReport)
    w, b = (report.table.loc[(f"position[{k}]", "mean")] for k in (0, 1))
    slope, intercept = (told.table.loc[(n, "mean")] for n in ("coefficient[0]", "intercept"))
    assert slope["estimate"] == pytest.approx(500 * w["estimate"])
    assert slope["bias"] == pytest.approx(500 * w["bias"])
    assert slope["bias_error"] == pytest.approx(500 * w["bias_error"])
    combined = 5 * b["bias_coarse"] - 30 * 500 * w["bias_coarse"]
    assert intercept["bias_coarse"] == pytest.approx(combined)
    samples = Samples(units(report.samples.position["fine"]), None, None)
    errors = tune.error_table(samples, told)
    np.testing.assert_allclose(
        errors["bias_mean"]["coefficient[0]"],
        tune.error_table(
            Samples(report.samples.position["fine"], None, None), report
        )["bias_mean"]["position[0]"],
    )  # fmt: skip
