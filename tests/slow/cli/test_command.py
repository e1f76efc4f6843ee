"""The command line as a program of its own, and on data that take minutes."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

ROOT = Path(__file__).resolve().parents[3]
MNIST = ROOT.parent / "shared" / "data" / "mnist.npz"


def ergodax(*arguments, folder):
    command = [sys.executable, "-m", "ergodax", *map(str, arguments)]
    environment = {**os.environ, "COLUMNS": "80"}
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)


def test_make_run(tmp_path):
    """What the Makefile runs for a newcomer ends well, without a file of data."""
    (line,) = re.findall(r"^\t\$\(BIN\)/ergodax (infer .*)$", (ROOT / "Makefile").read_text(), re.M)
    done = ergodax(*shlex.split(line), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "flights: late against on time, 293,152 rows" in done.stdout
    assert "converged" in done.stdout and "departure: 17 to 20" in done.stdout
    folder = tmp_path / "runs" / "flights"
    held_out = json.loads((folder / "facts.json").read_text())["held_out"]
    assert held_out["averaged_log_predictive_density"] > -0.51, "by the rate of all alone -.548"
    assert "Odds ratios" in (folder / "report.html").read_text()


def test_digits_beside_a_reference(tmp_path):
    given = ["--data", "digits", "--held-out", "0.2", "--reference", "--output", "out"]
    done = ergodax("infer", *given, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    for word in ("mean", "r_hat", "accuracy", "log predictive density", "reference"):
        assert word in done.stdout
    assert "sampling" not in done.stderr, "no progress bar where nobody looks"
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written == {"draws.zarr", "summary.csv", "account.txt", "facts.json", "report.html"}
    facts = json.loads((tmp_path / "out" / "facts.json").read_text())
    # 55 components: the rms is what Monte Carlo errors make it, and the accuracy asked for.
    assert facts["comparison"]["mean_difference_rms"] < 0.05
    assert facts["held_out"]["averaged_accuracy"] > 0.9


def test_json_goes_alone_to_standard_output(tmp_path):
    rng = np.random.default_rng(4)
    x = rng.normal(size=(400, 2))
    y = np.where(rng.random(400) < 1 / (1 + np.exp(-2 * x[:, 0])), "yes", "no")
    pd.DataFrame({"u": x[:, 0], "v": x[:, 1], "y": y}).to_csv(tmp_path / "t.csv", index=False)
    given = ["--data", "t.csv", "--target", "y", "--json", "--output", "out"]
    done = ergodax("infer", *given, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert list(facts["components"]) == ["u", "v", "intercept"] and "reference" not in facts
    assert (tmp_path / facts["files"]["report"]).exists()


@pytest.mark.slow
def test_the_bias_of_batches_is_told_in_the_users_units(tmp_path):
    """20,000 rows, batches: coefficients and intercept are within the errors that are claimed."""
    rng = np.random.default_rng(1)
    year, size = rng.normal(2000, 3, 20_000), rng.normal(120, 30, 20_000)
    price = -9e5 + 500 * year + 1500 * size + rng.normal(0, 4e4, 20_000)
    frame = pd.DataFrame({"year": year, "size": size, "price": price})
    frame.to_parquet(tmp_path / "houses.parquet")
    given = ["--data", "houses.parquet", "--target", "price", "--model", "linear"]
    done = ergodax("infer", *given, "--prior-scale", "100", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    components = json.loads(done.stdout)["components"]
    x = np.column_stack([year, size, np.ones(20_000)])
    # In double precision on centred columns, since X^T X is nearly singular.
    z = np.column_stack([year - 2000, size, np.ones(20_000)])
    slope, per_size, level = np.linalg.lstsq(z, price, rcond=None)[0]
    fit = {"year": slope, "size": per_size, "intercept": level - 2000 * slope}
    inverse = np.linalg.inv(x.T @ x)
    for k, (name, value) in enumerate(fit.items()):
        row = components[name]
        assert row["error"] < 0.05 and row["bias_mean"] > 0
        assert row["sd"] == pytest.approx(4e4 * np.sqrt(inverse[k, k]), rel=0.1)
        assert abs(row["mean"] - value) < 5 * row["error"] * row["sd"]


@pytest.mark.slow
@pytest.mark.skipif(not MNIST.exists(), reason="shared data are not here")
def test_mnist_seven_against_nine(tmp_path):
    done = ergodax(
        "infer", "--data", MNIST, "--classes", "7", "9", "--components", "128", "--prior-scale",
        "10", "--json", folder=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert (facts["rows"], len(facts["components"])) == (12214, 129)
    assert facts["held_out"]["rows"] == 2037
    assert facts["held_out"]["averaged_accuracy"] > 0.95
