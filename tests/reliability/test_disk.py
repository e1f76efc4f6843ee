"""A disk that is really full, and a folder that really can't be written."""

import os
import subprocess
from typing import Any

import jax
import numpy as np
import pytest

import ergodax as ex
from benchmarks.kills import runs

STEPS = 40_000


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 256 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("no mount command here")
    if done.returncode:
        pytest.skip(f"a small file system can't be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.slow
def test_a_full_disk_ends_the_run_and_room_lets_it_go_on(small_disk, tmp_path):
    whole = runs.run("in memory", tmp_path, STEPS)
    folder: dict[str, Any] = {"folder": small_disk / "run", "every": 0.01}
    with pytest.raises(ex.StorageError, match="No space left") as caught:
        runs.run("in memory", tmp_path, STEPS, checkpoint=ex.Checkpoint(**folder))
    kept = caught.value.samples
    if kept is not None:
        np.testing.assert_array_equal(kept.position, whole.position[:, : kept.num_draws])
    more = ["mount", "-o", "remount,size=64m", str(small_disk)]
    subprocess.run(more, check=True)
    again = ex.Checkpoint(**folder, resume=True)
    resumed = runs.run("in memory", tmp_path, STEPS, checkpoint=again)
    jax.tree.map(np.testing.assert_array_equal, whole, resumed)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_the_right_to_write(tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(ex.StorageError, match="can't be written"):
        runs.run(
            "in memory", tmp_path, 2_000, checkpoint=ex.Checkpoint(tmp_path / "locked" / "run")
        )


@pytest.mark.slow
def test_a_disk_that_is_read_only(small_disk, tmp_path):
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(ex.StorageError, match="can't be written"):
        runs.run("in memory", tmp_path, 2_000, checkpoint=ex.Checkpoint(small_disk / "run"))
