"""Fifty kills at random instants: no draw is lost, doubled or changed."""

import sys

import numpy as np
import pytest

import ergodax as ex
from ergodax.apps.reliability import kills, runs

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs fork")


@pytest.mark.parametrize(("kind", "times"), [("in memory", 50), ("streamed", 15)])
def test_killed_runs_finish_with_the_same_draws(tmp_path, kind, times):
    drill = kills.drill(kind, times, tmp_path / "drill", seed=hash(tmp_path) % 2**31)
    print(drill)
    assert drill.ok, drill
    assert drill.kills == times


@pytest.mark.parametrize("steps", [40, 41, 60, 80])
def test_resumed_where_a_block_ends(tmp_path, steps):
    """A block of the stream has 40 batches; 100 steps of burn-in come before these."""
    whole = runs.run("streamed", tmp_path, 200)
    folder = tmp_path / "run"
    runs.run("streamed", tmp_path, steps, checkpoint=ex.Checkpoint(folder))
    again = ex.Checkpoint(folder, resume=True)
    resumed = runs.run("streamed", tmp_path, 200, checkpoint=again)
    np.testing.assert_array_equal(resumed.position, whole.position)
