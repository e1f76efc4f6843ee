"""`ergodax infer` is killed while it samples, started again, and ends as if it had not been."""

import json
import subprocess
import sys
import time

import jax
import numpy as np
import pandas as pd
import pytest

import ergodax as ex
from ergodax.persist import checkpoint


def call(folder, rows, accuracy):
    return [
        sys.executable, "-m", "ergodax", "infer", "--data", folder / f"{rows}.csv", "--target", "y",
        "--accuracy", str(accuracy), "--json",
    ]  # fmt: skip


def table(folder, rows):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 2))
    y = np.where(rng.random(rows) < 1 / (1 + np.exp(x[:, 1] - x[:, 0])), "yes", "no")
    pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": y}).to_csv(folder / f"{rows}.csv", index=False)


def ended(command, folder):
    """The facts and the draws of a run that is not killed; without the seconds."""
    whole = [*command, "--output", folder]
    facts = json.loads(subprocess.run(whole, check=True, capture_output=True, text=True).stdout)
    del facts["files"]
    return facts.pop("seconds"), facts, ex.Samples.load(folder / "draws.zarr")


@pytest.mark.parametrize(
    ("rows", "accuracy", "sampler"), [(300, 0.01, "NUTS"), (20_000, 0.03, "NOGIN")]
)
def test_the_same_draws_and_verdict(tmp_path, rows, accuracy, sampler):
    """Of much data with an accuracy at which batches pay: at 0.01 it takes long to measure bias."""
    table(tmp_path, rows)
    command, kept = call(tmp_path, rows, accuracy), tmp_path / "kept"
    _, facts, samples = ended(command, tmp_path / "whole")
    assert any(sampler in decision["chosen"] for decision in facts["decisions"])
    resuming = [*command, "--checkpoint", kept, "--resume"]
    kills = 0
    for name in ("round-0/checkpoint", "round-1/checkpoint", "round-1/draws.zarr/zarr.json"):
        with subprocess.Popen(resuming, stdout=subprocess.DEVNULL) as running:
            while not (kept / name).exists() and running.poll() is None:
                time.sleep(0.01)
            kills += running.poll() is None
            running.kill()
    # The draws of NOGIN's last pilot are enough: what was tuned is the whole inference.
    assert kills >= 2 or sampler == "NOGIN"
    decided = checkpoint.read(kept / "decisions")[0]
    seconds, again, resumed = ended(resuming, tmp_path / "resumed")
    assert seconds["tuning"] == decided["log"]["seconds"]["tuning"], "it was tuned again"
    assert again == facts
    for x, y in zip(*map(jax.tree.leaves, (resumed, samples)), strict=True):
        np.testing.assert_array_equal(x, y)
