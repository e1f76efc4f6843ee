"""`python -m experiments networks` as a user meets it, and the parts of its experiment."""

import json

import numpy as np
import pandas as pd
import pytest

from experiments.networks import methods
from experiments.networks.commands import networks

SMALL = ["--steps", "100", "--members", "2", "--width", "4"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    rng = np.random.default_rng(11)
    path = tmp_path_factory.mktemp("arrays")
    x = rng.normal(3.0, 2.0, size=(80, 3))
    y = 5.0 + 10.0 * np.sin(x[:, 0]) + rng.normal(size=80)
    mask = np.stack([np.arange(80) % 4 == k for k in range(3)])
    np.savez(path / "numbers.npz", x=x, y=y, test_mask=mask)
    np.savez(path / "plain.npz", x=x, y=y)
    labels = rng.integers(3, size=90)
    images = rng.integers(0, 60, size=(90, 4, 4)) + 60 * np.eye(4, dtype=int)[labels][:, None]
    images = images.astype(np.uint8)
    np.savez(
        path / "images.npz", x_train=images[:60], y_train=labels[:60] + 4, x_test=images[60:],
        y_test=labels[60:] + 4,
    )  # fmt: skip
    return path


def ran(capsys, *arguments):
    networks([str(a) for a in arguments], result_action="return_value", exit_on_error=False)
    return capsys.readouterr().out


def test_regression_writes_everything(capsys, folder, tmp_path):
    file = folder / "numbers.npz"
    out = ran(capsys, "regress", file, *SMALL, "--splits", "2", "--json", "--out", tmp_path)
    facts = json.loads(out)
    assert [row["method"] for row in facts["methods"]] == list(methods.METHODS)
    assert facts["rows"] == 60 and facts["test_rows"] == 20 and facts["repetitions"] == 2
    for row in facts["methods"]:
        # The same gradients for all: 2 members, 100 steps, batches of 60; cycles round down.
        assert abs(row["evaluations"] / 12_000 - 1) < 0.02, row["method"]
        assert np.isfinite(row["log_likelihood"]) and row["log_likelihood_error"] > 0
        assert 0 < row["rmse"] < 30 and 0 <= row["calibration_error"] <= 1
    names = {"network.png", "network.csv", "facts.json", "report.html"}
    assert {path.name for path in tmp_path.iterdir()} == names
    assert len(pd.read_csv(tmp_path / "network.csv")) == 10
    page = (tmp_path / "report.html").read_text()
    assert "SGNHT" in page and "data:image/png" in page


def test_classification_is_a_table(monkeypatch, capsys, folder, tmp_path):
    monkeypatch.chdir(tmp_path)
    arguments = ["--methods", "ensemble", "SGHMC", "--quick", *SMALL]
    out = ran(capsys, "classify", folder / "images.npz", *arguments)
    assert (
        "accuracy" in out and "strange" in out and "turned by 90 degrees" in " ".join(out.split())
    )
    assert "SGHMC" in out and "pSGLD" not in out
    assert (tmp_path / "runs" / "network-images" / "report.html").exists()


def test_the_cold_curve(capsys, folder, tmp_path):
    file = folder / "images.npz"
    arguments = ["--temperatures", "0.1", "1", *SMALL, "--json", "--out", tmp_path]
    facts = json.loads(ran(capsys, "cold", file, *arguments))
    assert [row["temperature"] for row in facts["temperatures"]] == [0.0, 0.1, 1.0]
    names = {"cold.png", "cold.csv", "facts.json", "report.html"}
    assert {path.name for path in tmp_path.iterdir()} == names
