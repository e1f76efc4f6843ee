"""The command line as a user meets it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ergodax.cli import main

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"


def ergodax(*arguments, folder):
    command = [sys.executable, "-m", "ergodax.cli.main", *arguments]
    environment = {**os.environ, "COLUMNS": "100"}
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)


@pytest.fixture(scope="module")
def csv(tmp_path_factory):
    rng = np.random.default_rng(4)
    x = rng.normal(size=(400, 2))
    y = np.where(rng.random(400) < 1 / (1 + np.exp(-2 * x[:, 0])), "yes", "no")
    path = tmp_path_factory.mktemp("table") / "table.csv"
    pd.DataFrame({"u": x[:, 0], "v": x[:, 1], "y": y}).to_csv(path, index=False)
    return path


def in_process(monkeypatch, capsys, *arguments):
    """The same entry point without the seconds that a new interpreter takes to import JAX."""
    monkeypatch.setattr(sys, "argv", ["ergodax", *arguments])
    with pytest.raises(SystemExit) as stop:
        main.main()
    out = capsys.readouterr()
    return stop.value.code, out.out, " ".join(out.err.split())


@pytest.mark.parametrize("words", [[], ["run"], ["run", "logistic"], ["run", "digits"]])
def test_help_shows_an_example(monkeypatch, capsys, words):
    code, out, _ = in_process(monkeypatch, capsys, *words, "--help")
    assert code == 0
    assert "xample" in out and "ergodax run" in out


def test_a_table_to_a_report(csv, tmp_path):
    done = ergodax(
        "run", "logistic", "--data", str(csv), "--target", "y", "--num-steps", "5000",
        "--reference-draws", "200", folder=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for word in ("mean", "mcse", "r_hat", "accuracy", "log predictive density", "reference"):
        assert word in done.stdout
    written = {path.name for path in (tmp_path / "runs" / "table").iterdir()}
    assert written == {"draws.nc", "summary.csv", "facts.json", "report.html"}
    assert "sampling" not in done.stderr, "no progress bar where nobody looks"


def test_json_goes_alone_to_standard_output(csv, tmp_path):
    done = ergodax(
        "run", "logistic", "--data", str(csv), "--target", "y", "--num-steps", "5000",
        "--reference-draws", "0", "--json", "--output", "out", folder=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["coefficients"] == 3 and "reference" not in facts
    assert (tmp_path / facts["files"]["report"]).exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "none.csv", "--target", "y"], "no such file"),
        (["--target", "z"], "not a column"),
        ([], "--target COLUMN is needed"),
        (["--target", "y", "--batch-size", "9999"], "batch_size=9999 is larger"),
        (["--target", "y", "--step-size", "-1"], "step_size must be positive"),
        (["--target", "y", "--prior-scale", "-1"], "prior_scale must be positive"),
        (["--target", "y", "--num-chains", "0"], "num_chains must be at least 1"),
        (["--target", "y", "--reference-draws", "-5"], "reference_draws must be 0"),
    ],
)
def test_errors_are_one_line_and_status_2(csv, monkeypatch, capsys, arguments, message):
    data = [] if "--data" in arguments else ["--data", str(csv)]
    code, _, err = in_process(monkeypatch, capsys, "run", "logistic", *data, *arguments)
    assert code == 2
    assert message in err
    assert "Traceback" not in err


def test_a_folder_that_is_a_file_is_refused_before_the_work(csv, monkeypatch, capsys):
    arguments = ["--data", str(csv), "--target", "y", "--out", str(csv)]
    code, out, err = in_process(monkeypatch, capsys, "run", "logistic", *arguments)
    assert code == 2 and "is not a folder that can be written to" in err and out == ""


def test_launch_tells_how_the_processes_ended(monkeypatch, capfd):
    command = 'echo noise; test "$ERGODAX_PROCESS_ID" = 1 && kill -9 $$; exec sleep 60'
    options = ["--restarts", "1", "--json", "--", "sh", "-c", command]
    code, out, err = in_process(monkeypatch, capfd, "launch", *options)
    assert code == 128 + 9 and "noise" in err
    failure = {"process": 1, "status": 137}
    told = {"status": 137, "processes": 2, "starts": 2, "failures": [failure, failure]}
    assert json.loads(out) == told


@pytest.mark.law
@pytest.mark.skipif(not (SHARED / "mnist.npz").exists(), reason="shared data are not here")
def test_mnist_seven_against_nine(tmp_path):
    done = ergodax(
        "run", "logistic", "--data", str(SHARED / "mnist.npz"), "--classes", "7", "9",
        "--components", "128", "--prior-scale", "10", "--num-steps", "4000",
        "--reference-draws", "0", "--json", folder=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert (facts["rows"], facts["coefficients"], facts["held_out_rows"]) == (12214, 129, 2037)
    assert facts["held_out"]["averaged_accuracy"] > 0.95
