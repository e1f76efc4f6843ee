"""A disk that is really full, and a folder that really can't be written."""

import os
from typing import Any

import jax
import numpy as np
import pytest

import ergodax as ex
from benchmarks.kills import disks
from benchmarks.kills.kinds import KINDS

RUN: Any = KINDS["saga"]
STEPS = 40_000


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 256 kB."""
    try:
        with disks.small_disk(tmp_path / "disk", "256k") as folder:
            yield folder
    except disks.CannotMount as error:
        pytest.skip(f"a small file system can't be mounted here: {error}")


@pytest.mark.slow
def test_a_full_disk_ends_the_run_and_room_lets_it_go_on(small_disk, tmp_path):
    whole = RUN.sample(tmp_path, STEPS)
    folder: dict[str, Any] = {"folder": small_disk / "run", "every": 0.01}
    with pytest.raises(ex.StorageError, match="No space left") as caught:
        RUN.sample(tmp_path, STEPS, checkpoint=ex.Checkpoint(**folder))
    kept = caught.value.samples
    if kept is not None:
        np.testing.assert_array_equal(kept.position, whole.position[:, : kept.num_draws])
    disks.remount(small_disk, "size=64m")
    again = ex.Checkpoint(**folder, resume=True)
    resumed = RUN.sample(tmp_path, STEPS, checkpoint=again)
    jax.tree.map(np.testing.assert_array_equal, whole, resumed)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_the_right_to_write(tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(ex.StorageError, match="can't be written"):
        RUN.sample(tmp_path, 2_000, checkpoint=ex.Checkpoint(tmp_path / "locked" / "run"))


@pytest.mark.slow
def test_a_disk_that_is_read_only(small_disk, tmp_path):
    disks.remount(small_disk, "ro")
    with pytest.raises(ex.StorageError, match="can't be written"):
        RUN.sample(tmp_path, 2_000, checkpoint=ex.Checkpoint(small_disk / "run"))
