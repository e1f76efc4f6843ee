"""A streamed run resumed where a block of the stream ends has the same draws."""

import numpy as np
import pytest

import ergodax as ex
from benchmarks.kills import runs


@pytest.mark.slow
@pytest.mark.parametrize("steps", [40, 41, 60, 80])
def test_resumed_where_a_block_ends(tmp_path, steps):
    """A block of the stream has 40 batches; 100 steps of burn-in come before these."""
    whole = runs.run("streamed", tmp_path, 200)
    folder = tmp_path / "run"
    runs.run("streamed", tmp_path, steps, checkpoint=ex.Checkpoint(folder))
    resumed = runs.run("streamed", tmp_path, 200, checkpoint=ex.Checkpoint(folder, resume=True))
    np.testing.assert_array_equal(resumed.position, whole.position)
