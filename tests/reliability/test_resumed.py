"""A streamed run resumed where a block of the stream ends has the same draws."""

from typing import Any

import numpy as np
import pytest

import ergodax as ex
from benchmarks.kills.kinds import KINDS

RUN: Any = KINDS["npy"]


@pytest.mark.slow
@pytest.mark.parametrize("steps", [220, 221, 240, 540])
def test_resumed_where_a_block_ends(tmp_path, steps):
    """A block of the stream serves 320 steps; 100 steps of burn-in come before these."""
    whole = RUN.sample(tmp_path, 600)
    folder = tmp_path / "run"
    RUN.sample(tmp_path, steps, checkpoint=ex.Checkpoint(folder))
    resumed = RUN.sample(tmp_path, 600, checkpoint=ex.Checkpoint(folder, resume=True))
    np.testing.assert_array_equal(resumed.position, whole.position)
