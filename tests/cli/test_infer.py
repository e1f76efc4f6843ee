"""`ergodax infer` and `ergodax advise` as a user meets them."""

import json
import re
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray
from arviz_stats.summary import summary

from ergodax.cli import main
from ergodax.persist.checkpoint import refuse_second

WILD = r"$\frac{a$"  # the name of a column, and the beginning of a formula that TeX refuses
ROWS = 500


@pytest.fixture(scope="module")
def frame():
    """Columns in units far from 1, one of them with a name that is no formula."""
    rng = np.random.default_rng(4)
    age, income = rng.normal(50, 10, ROWS), np.exp(rng.normal(10, 0.5, ROWS))
    price = 2e5 + 3e3 * age - 2.0 * income + rng.normal(0, 2e4, ROWS)
    died = np.where(rng.random(ROWS) < 1 / (1 + np.exp(0.1 * (50 - age))), "yes", "no")
    return pd.DataFrame({"age": age, WILD: income, "price": price, "died": died})


@pytest.fixture(scope="module")
def csv(frame, tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "table.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def linear(frame, csv, tmp_path_factory):
    """One run with every file: its status, its output on 80 columns, and its folder."""
    folder = tmp_path_factory.mktemp("linear")
    frame.drop(columns="died").to_csv(csv.with_name("linear.csv"), index=False)
    arguments = [
        "infer", "--data", csv.with_name("linear.csv"), "--target", "price", "--model", "linear",
        "--prior-scale", 100, "--held-out", 0.2, "--reference", "--output", folder,
    ]  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "80")
        patch.setattr(sys, "argv", ["ergodax", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main.main()
    return stop.value.code or 0, folder


@pytest.mark.slow
def test_linear_regression_is_told_in_the_users_units(frame, linear):
    """With so flat a prior the posterior is that of least squares on the table as it is."""
    status, folder = linear
    facts = json.loads((folder / "facts.json").read_text())
    assert status == 0 and facts["converged"] and facts["verdict"].startswith("converged")
    assert facts["rows"] == 400 and facts["held_out"]["rows"] == 100
    assert "in its own units" in facts["meaning"][0]
    kept = frame.iloc[np.random.default_rng(0).permutation(ROWS)[100:]]
    x = np.column_stack([kept["age"], kept[WILD], np.ones(400)])
    y = kept["price"].to_numpy()
    fit, squares, *_ = np.linalg.lstsq(x, y, rcond=None)
    sd = np.sqrt(squares[0] / 397)
    errors = sd * np.sqrt(np.diag(np.linalg.inv(x.T @ x)))
    for name, value, error in zip(("age", WILD, "intercept"), fit, errors, strict=True):
        row = facts["components"][name]
        # Six errors of an asserted 0.05 sd at most: no false alarm worth the name.
        assert abs(row["mean"] - value) < 6 * max(row["mcse_mean"], 0.01) * row["sd"], name
        assert row["sd"] == pytest.approx(error, rel=0.15), name
    assert facts["components"]["residual sd"]["mean"] == pytest.approx(sd, rel=0.05)


@pytest.mark.slow
def test_the_reference_agrees(linear):
    facts = json.loads((linear[1] / "facts.json").read_text())
    # Four components, z = 5 and the 0.05 sd that was asked for.
    assert facts["comparison"]["mean_difference_max"] < 5 * 0.05 + 0.05
    assert 0.75 < facts["comparison"]["sd_ratio_min"] < facts["comparison"]["sd_ratio_max"] < 1.25
    ours, theirs = facts["held_out"], facts["reference"]["held_out"]
    rms = "root_mean_squared_error"
    assert ours[rms] == pytest.approx(theirs[rms], rel=0.01) == pytest.approx(2e4, rel=0.3)


@pytest.mark.slow
def test_draws_have_names_and_open_in_arviz(linear):
    tree = xarray.open_datatree(linear[1] / "draws.zarr", engine="zarr")
    assert list(tree["posterior"]["column"].to_numpy()) == ["age", WILD]
    assert set(tree["posterior"].data_vars) == {"coefficient", "intercept", "residual_sd"}
    table: Any = summary(tree, fmt="wide", round_to="none")
    facts = json.loads((linear[1] / "facts.json").read_text())["components"]
    assert table.loc["coefficient[age]", "mean"] == pytest.approx(facts["age"]["mean"])
    assert table.loc["residual_sd", "mean"] == pytest.approx(facts["residual sd"]["mean"])


@pytest.mark.slow
def test_the_files_and_the_report(linear):
    folder = linear[1]
    names = {"draws.zarr", "summary.csv", "account.txt", "facts.json", "report.html"}
    assert {path.name for path in folder.iterdir()} == names
    facts, page = (
        json.loads((folder / "facts.json").read_text()),
        (folder / "report.html").read_text(),
    )
    assert page.count("data:image/png;base64,") == 4 and facts["verdict"] in page
    assert all(decision["chosen"] in page for decision in facts["decisions"])
    for heading in ("Calibration", "Compared with", "Marginals", "Traces", WILD):
        assert heading in page
    assert not re.search(r'(src|href)="http', page)
    table = pd.read_csv(folder / "summary.csv", index_col=0)
    assert list(table.index) == ["age", WILD, "intercept", "residual sd"]
    account = (folder / "account.txt").read_text()
    assert facts["meaning"][0] in account and "HMC on full gradients" in account


MODELS = {  # the model that is named, the target: components, and what the report has
    (None, "group"): ("a: x", "c: intercept", "multinomial logistic regression"),
    ("poisson", "count"): ("x", "intercept", "Rate ratios"),
    ("negative-binomial", "count"): ("x", "dispersion", "Rate ratios"),
    ("robust", "y"): ("x", "degrees of freedom", "robust linear regression"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("model", "target"), MODELS)
def test_every_model_has_its_files_and_predicts(ergodax, tmp_path, model, target):
    """The truth lies within five posterior sds, and of levels as much is below as it says."""
    rng, rows = np.random.default_rng(1), 600
    x = rng.normal(3.0, 2.0, rows)
    given = {"y": 5.0 + 2.0 * x + rng.standard_t(3, rows), "group": rng.choice(list("abc"), rows)}
    given["count"] = rng.negative_binomial(2.0, 2.0 / (2.0 + np.exp(0.2 * x)))
    frame = pd.DataFrame({"x": x, "other": rng.normal(size=rows), target: given[target]})
    frame.loc[7, "x"] = np.nan
    frame.to_csv(tmp_path / "table.csv", index=False)
    arguments = ["--data", tmp_path / "table.csv", "--target", target, "--held-out", 0.2]
    arguments += ["--drop-missing", "--output", tmp_path / "out", "--no-progress"]
    code, out, err = ergodax("infer", *arguments, *(["--model", model] if model else []))
    assert code == 0, err
    facts = json.loads((tmp_path / "out" / "facts.json").read_text())
    first, second, words = MODELS[model, target]
    assert facts["rows"] == 479 and facts["held_out"]["rows"] == 120
    assert {first, second} <= facts["components"].keys()
    truth = {"y": 2.0, "group": 0.0, "count": 0.2}[target]
    row, tolerance = facts["components"][first], 5.0
    if model == "poisson":  # whose sds know nothing of the dispersion, of a half
        tolerance *= 2.0
    assert abs(row["mean"] - truth) < tolerance * row["sd"]
    assert words in (tmp_path / "out" / "report.html").read_text()
    tree = xarray.open_datatree(tmp_path / "out" / "draws.zarr", engine="zarr")
    axes = ("class", "column") if target == "group" else ("column",)
    assert tree["posterior"]["coefficient"].dims == ("chain", "draw", *axes)


def test_whole_numbers_are_told_of_counts(ergodax, tmp_path):
    frame = pd.DataFrame({"x": np.arange(60.0), "visits": np.arange(60) % 5})
    frame.to_csv(tmp_path / "table.csv", index=False)
    given = ["--data", tmp_path / "table.csv", "--target", "visits", "--max-seconds", "1e-3"]
    assert "for counts try --model negative-binomial" in ergodax("infer", *given)[1]


def test_a_file_with_held_out_rows_of_its_own_needs_no_share(ergodax, tmp_path):
    x, y = np.arange(60.0).reshape(30, 2), np.arange(30) % 2
    np.savez(tmp_path / "t.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    code, _, error = ergodax("infer", "--data", tmp_path / "t.npz", "--held-out", "0.5")
    assert code == 2 and "has rows of its own to hold out, x_test and y_test" in error


def test_an_answer_that_can_not_be_written_is_shown(monkeypatch, ergodax, csv, tmp_path):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ergodax.report.inference.write", full)
    given = ["--data", csv, "--target", "died", "--output", tmp_path / "out"]
    code, out, error = ergodax("infer", *given)
    assert code == 2 and "converged" in out
    assert "the answer was not written to" in error and "No space left" in error


def stopped(*_, **__):
    raise KeyboardInterrupt


def test_rows_that_are_left_out_are_told(monkeypatch, ergodax, tmp_path):
    frame = pd.DataFrame({"x": np.arange(60.0), "z": np.arange(60) % 7, "y": np.arange(60) % 5})
    frame.loc[[3, 5], "x"] = np.nan
    frame.to_csv(tmp_path / "table.csv", index=False)
    monkeypatch.setattr("ergodax.learn.fit.fit", stopped)
    given = ["--data", tmp_path / "table.csv", "--target", "y", "--drop-missing"]
    told = "2 of 60 rows are left out, with gaps in {'x': 2}."
    assert told in ergodax("infer", *given)[1]


@pytest.mark.parametrize(
    ("more", "words"),
    [([], "nothing was kept. Add --checkpoint DIR"), (["--checkpoint"], "Add --resume to go on")],
)
def test_control_c_says_what_is_kept(monkeypatch, ergodax, csv, tmp_path, more, words):
    monkeypatch.setattr("ergodax.learn.fit.fit", stopped)
    given = ["--data", csv, "--target", "died", *more, *([tmp_path / "run"] if more else [])]
    code, _, error = ergodax("infer", *given)
    assert code == 130 and words in " ".join(error.split())


def test_a_used_folder_is_refused_with_the_option_to_go_on(monkeypatch, ergodax, csv, tmp_path):
    monkeypatch.setattr("ergodax.learn.fit.fit", lambda *_, **__: refuse_second(tmp_path))
    given = ["--data", csv, "--target", "died", "--checkpoint", tmp_path]
    code, _, error = ergodax("infer", *given)
    assert code == 2 and "pass --resume to go on with it" in error


@pytest.mark.slow
def test_short_of_the_accuracy_is_status_one(monkeypatch, ergodax, csv):
    """On 80 columns no figure is on two lines."""
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = ergodax(
        "infer", "--data", csv, "--target", "died", "--accuracy", "1e-4", "--max-seconds", "1e-3",
    )  # fmt: skip
    assert code == 1
    assert "NOT converged" in out and "intercept" in out and "sampler" in out
    assert "change of the log odds of yes" in out
    lines = [line for line in out.splitlines() if line.startswith(("age", "price", "intercept"))]
    assert len(lines) == 3
    for line in lines:  # component, mean, sd, error, ess, r_hat
        figures = line.split()[1:]
        assert len(figures) == 5
        assert all(np.isfinite(float(each.replace(",", ""))) for each in figures)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "died", "--data", "none.csv"], "no such file"),
        (["--data", "none.csv", "--model", "linear"], "no such file"),
        (["--data", "x.csv", "--model", "linear", "--classes", "3", "8"], "for --model logistic"),
        ([], "--target COLUMN is needed"),
        (["--target", "z"], "not a column"),
        (["--target", "price", "--model", "logistic"], "must have two classes"),
        (["--target", "price", "--model", "multinomial"], "500 different values in 500 rows"),
        (["--data", "digits", "--model", "poisson"], "poisson reads CSV and Parquet files only"),
        (["--target", "died", "--model", "linear"], "is not a number"),
        (["--target", "died", "--accuracy", "0"], "accuracy must be positive"),
        (["--target", "died", "--prior-scale", "-1"], "prior_scale must be positive"),
        (["--target", "died", "--num-chains", "0"], "num_chains must be at least 2"),
        (["--target", "died", "--held-out", "1"], "leaves a part empty"),
        (["--target", "died", "--components", "9"], "components=9 must lie in"),
        (["--data", "digits", "--classes", "3", "x"], "must have two classes"),
        (["--data", "digits", "--target", "y"], "--target says nothing about digits"),
        (["--data", "digits", "--drop-missing"], "--drop-missing says nothing about digits"),
        (["--target", "died", "--features", "x"], "--features says nothing about"),
        (["--target", "died", "--categorical", "c"], "--categorical says nothing about"),
    ],
)
def test_errors_are_one_line_and_status_2(ergodax, csv, arguments, message):
    given = arguments if "--data" in arguments else ["--data", csv, *arguments]
    code, _, error = ergodax("infer", *given)
    assert code == 2 and message in error and "Traceback" not in error


def test_a_folder_that_is_a_file_is_refused_before_the_work(ergodax, csv):
    code, out, err = ergodax("infer", "--data", csv, "--target", "died", "--out", csv)
    assert code == 2 and "is not a folder that can be written to" in err and out == ""


def test_arrays_that_do_not_fit(ergodax, tmp_path):
    path, x, y = tmp_path / "table.npz", np.arange(90.0).reshape(30, 3), np.arange(30) % 2
    for arrays, message in (
        ({"x": x[:20], "y": y}, "x and y must have as many rows, one at least; their shapes are x"),
        ({"x": 1.0, "y": 2.0}, "as many rows"),
        ({"x": x.astype(str), "y": y}, "x must be real numbers"),
        ({"x": x.astype(object), "y": y}, "can't be read: Object arrays"),
        ({"x": x[:0], "y": y}, "one at least"),
    ):
        np.savez(path, allow_pickle=True, **arrays)
        code, _, err = ergodax("infer", "--data", path, "--features", "x", "--target", "y")
        assert code == 2 and f"error: {path}" in err and message in err


def test_advice(ergodax):
    size = ["--num-data", "1e6", "--dimension", "50"]
    code, out, _ = ergodax("advise", *size)
    assert code == 0 and out.startswith("ex.infer: NOGIN") and "result = ex.infer(" in out
    code, out, _ = ergodax("advise", *size, "--exact", "--json")
    assert code == 0 and "firefly" in json.loads(out)["code"]
    code, _, error = ergodax("advise", "--num-data", "-1", "--dimension", "2")
    assert code == 2 and "num_data must be at least 0" in error
