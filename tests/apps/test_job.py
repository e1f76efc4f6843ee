"""The regression job from data to report."""

import dataclasses
import json
import re

import equinox as eqx
import jax
import numpy as np
import pytest
import xarray

from ergodax.apps import job, regression
from ergodax.learn import evaluate, tables


def synthetic(rows, seed, coefficients=(1.5, -1.0, 0.5, 0.3)):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 3))
    logit = np.column_stack([x, np.ones(rows)]) @ np.asarray(coefficients)
    y = (rng.random(rows) < 1 / (1 + np.exp(-logit))).astype(float)
    return tables.Table(x, y, ["a", "b", "c"], ("0", "1"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    train, test = tables.prepare(synthetic(1000, 1), synthetic(500, 2))
    options = job.Options(batch_size=50, num_steps=40_000, reference_draws=1000, progress=False)
    lines = []
    result = job.run(train, test, options, lines.append)
    folder = tmp_path_factory.mktemp("run")
    return result, job.write(result, train, test, folder, "a < b"), lines


@pytest.mark.law
def test_minibatch_posterior_agrees_with_the_reference(finished):
    # Four coefficients, two functionals each; z = 5 leaves 5e-6 for a false alarm. The bias of
    # a step with 10% of heating before compensation is far below the allowance of 0.05 sd.
    result, *_ = finished
    table = result.comparison.table
    assert np.min(result.summary["ess"]) > 400
    assert np.all(np.abs(table["difference"]) < 5 * table["mcse"] + 0.05)
    error = 5 / np.sqrt(np.min(result.summary["ess"]))
    assert np.all(np.abs(table["sd_ratio"] - 1) < error + 0.05)


@pytest.mark.law
def test_uncompensated_noise_is_seen(finished):
    """Negative control: at a step where noise heats by 40%, dropping compensation shows."""
    train, test = tables.prepare(synthetic(1000, 1), synthetic(500, 2))
    model = regression.prepare_model(train, 1.0, 50, jax.random.key(5))
    hot = regression.choose(model.whitening, 50, num_steps=40_000, heating=0.4)
    silent = eqx.tree_at(lambda w: w.noise, model.whitening, 0.0 * model.whitening.noise)
    blind = dataclasses.replace(model, whitening=silent)
    fit = regression.run_sghmc(blind, hot, jax.random.key(6), progress=False)
    summary = evaluate.summary_of(fit, train.names)
    reference = evaluate.summary_of(finished[0].reference, train.names)
    ratio = np.max(summary["sd"] / reference["sd"])
    assert ratio > 1 + 5 / np.sqrt(np.min(summary["ess"]))


def test_the_held_out_performance_is_that_of_the_model(finished):
    result, *_ = finished
    scores, other = result.facts["held_out"], result.facts["reference"]["held_out"]
    assert abs(scores["averaged_accuracy"] - other["averaged_accuracy"]) < 0.02
    assert scores["log_predictive_density"] == pytest.approx(
        other["log_predictive_density"], abs=0.01
    )
    # Averaging probabilities over draws can only help the log density (Jensen).
    assert scores["averaged_log_predictive_density"] >= scores["log_predictive_density"]


def test_draws_are_readable_by_arviz(finished):
    result, paths, _ = finished
    tree = xarray.open_datatree(paths["draws"], engine="h5netcdf")
    np.testing.assert_array_equal(tree.posterior["w"], result.fit.samples.position["w"])
    assert list(tree.posterior["coefficient"].values) == ["a", "b", "c", "intercept"]
    assert "kinetic_temperature" in tree.sample_stats


def test_the_report_is_self_contained_and_has_its_pictures(finished):
    _, paths, _ = finished
    page = paths["report"].read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") == 5
    for heading in ("Calibration", "reference", "Traces", "Autocorrelation", "Summary"):
        assert heading in page
    assert "a &lt; b" in page, "titles are escaped"
    assert not re.search(r'(src|href)="http', page)


def test_facts_are_json_and_stages_are_told(finished):
    result, paths, lines = finished
    assert json.loads(paths["facts"].read_text()) == result.facts
    assert result.facts["passes_through_the_data"] > 1
    assert [line.split(":")[0] for line in lines][1:] == ["SGHMC", "reference"]


def test_reliability_counts_every_row():
    rng = np.random.default_rng(0)
    probability = rng.random(2000)
    target = (rng.random(2000) < probability).astype(float)
    table = evaluate.reliability(probability, target)
    assert np.sum(table["count"]) == 2000

    def inside(table):
        low, predicted, high = (table[c].to_numpy() for c in ("low", "predicted", "high"))
        return (low <= predicted) & (predicted <= high)

    assert inside(table).mean() > 0.5
    wrong = evaluate.reliability(probability, 1.0 - target)
    assert not inside(wrong).all(), "a miscalibrated forecast must show"


def test_a_bad_batch_size_is_refused_before_any_work():
    train, _ = tables.prepare(synthetic(50, 1), synthetic(20, 2))
    with pytest.raises(ValueError, match="batch_size=80 is larger than the data"):
        job.run(train, train, job.Options(batch_size=80))
