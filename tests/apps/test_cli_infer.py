"""`ergodax infer` and `ergodax advise` as a user meets them."""

import json
import sys

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import ergodax as ex
from ergodax.cli import main
from ergodax.learn import regression as inference


def ergodax(monkeypatch, capsys, *arguments):
    """Exit status, standard output, standard error."""
    monkeypatch.setattr(sys, "argv", ["ergodax", *arguments])
    with pytest.raises(SystemExit) as stop:
        main.main()
    out = capsys.readouterr()
    return stop.value.code or 0, out.out, " ".join(out.err.split())


@pytest.fixture(scope="module")
def csv(tmp_path_factory):
    rng = np.random.default_rng(4)
    x = rng.normal(size=(400, 2))
    y = np.where(rng.random(400) < 1 / (1 + np.exp(-2 * x[:, 0])), "yes", "no")
    number = 3.0 + 2.0 * x[:, 0] + rng.normal(size=400)
    path = tmp_path_factory.mktemp("table") / "table.csv"
    frame = pd.DataFrame({"u": x[:, 0], "v": x[:, 1], "y": y, "number": number})
    frame.to_csv(path, index=False)
    return path


@pytest.mark.parametrize("word", ["infer", "advise"])
def test_help_shows_an_example(monkeypatch, capsys, word):
    code, out, _ = ergodax(monkeypatch, capsys, word, "--help")
    assert code == 0 and f"Example: ergodax {word}" in out


def test_linear_regression_has_the_exact_mean(monkeypatch, capsys, csv, tmp_path):
    code, out, _ = ergodax(
        monkeypatch, capsys, "infer", "--data", str(csv), "--target", "number", "--model",
        "linear", "--prior-scale", "100", "--json", "--output", str(tmp_path),
    )  # fmt: skip
    facts = json.loads(out)
    assert code == 0 and facts["converged"] and facts["verdict"].startswith("converged")
    table = pd.read_csv(csv)
    x = np.column_stack([table["u"], table["v"], table["y"] == "yes"]).astype(float)
    x = np.column_stack([(x - x.mean(axis=0)) / x.std(axis=0), np.ones(len(x))])
    y = (table["number"] - table["number"].mean()) / table["number"].std(ddof=0)
    # With so flat a prior the posterior mean is the least-squares fit: 1e-4 sds of difference.
    fit = np.linalg.lstsq(x, y.to_numpy(), rcond=None)[0]
    for name, value in zip(("u", "v", "y_yes", "intercept"), fit, strict=True):
        row = facts["components"][name]
        # Six errors of an asserted 0.05 sd at most: no false alarm worth the name.
        assert abs(row["mean"] - value) < 6 * max(row["mcse_mean"], 0.01) * row["sd"]
    assert "log residual sd" in facts["components"]
    names = {"draws.npz", "summary.csv", "account.txt", "facts.json", "report.html"}
    assert {path.name for path in tmp_path.iterdir()} == names
    stored = json.loads((tmp_path / "facts.json").read_text())
    assert facts == stored | {"files": facts["files"]}
    page = (tmp_path / "report.html").read_text()
    assert page.count("data:image/png") == 2 and facts["verdict"] in page
    assert all(decision["chosen"] in page for decision in facts["decisions"])
    draws = ex.Samples.load(tmp_path / "draws.npz").position
    assert draws.shape[-1] == 5 and len(draws) == 4


def test_short_of_the_accuracy_is_status_one(monkeypatch, capsys, csv):
    code, out, _ = ergodax(
        monkeypatch, capsys, "infer", "--data", str(csv), "--target", "y", "--accuracy", "1e-4",
        "--max-seconds", "1e-3",
    )  # fmt: skip
    assert code == 1
    assert "NOT converged" in out and "intercept" in out and "sampler" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "y", "--data", "none.csv"], "no such file"),
        ([], "--target COLUMN is needed"),
        (["--target", "z"], "not a column"),
        (["--target", "number"], "must have two classes"),
        (["--target", "y", "--model", "linear"], "is not a number"),
        (["--target", "y", "--accuracy", "0"], "accuracy must be positive"),
        (["--target", "y", "--prior-scale", "-1"], "prior_scale must be positive"),
    ],
)
def test_errors_of_use(monkeypatch, capsys, csv, arguments, message):
    given = arguments if "--data" in arguments else ["--data", str(csv), *arguments]
    code, _, error = ergodax(monkeypatch, capsys, "infer", *given)
    assert code == 2 and message in error


def test_the_residual_sd_is_a_parameter():
    posterior = inference.linear(
        inference.tables.Table(
            np.arange(4.0)[:, None], np.array([0.0, 1, 0, 1]), ["x"], ("t", "t")
        ),
        1.0,
    ).posterior
    x, y = (np.asarray(a, np.float64) for a in posterior.data)
    w, log_sd = np.array([0.3, -0.2]), 0.4
    expected = -0.5 * ((y - x @ w) / np.exp(log_sd)) ** 2 - log_sd
    position = jnp.array([*w, log_sd], jnp.float32)
    values = posterior.log_likelihoods(position, posterior.data)
    np.testing.assert_allclose(values, expected, rtol=1e-5)


def test_advice(monkeypatch, capsys):
    size = ["--num-data", "1e6", "--dimension", "50"]
    code, out, _ = ergodax(monkeypatch, capsys, "advise", *size)
    assert code == 0 and out.startswith("ex.infer: NOGIN") and "result = ex.infer(" in out
    code, out, _ = ergodax(monkeypatch, capsys, "advise", *size, "--exact", "--json")
    assert code == 0 and "firefly" in json.loads(out)["code"]
    code, _, error = ergodax(monkeypatch, capsys, "advise", "--num-data", "-1", "--dimension", "2")
    assert code == 2 and "num_data must be at least 0" in error
