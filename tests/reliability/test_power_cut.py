"""A power cut after any operation on files leaves draws that are right, or nothing that is read."""

import random
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from benchmarks.kills.recorder import Recorder, disks, lay_out
from ergodax.driver.progress import Clock
from ergodax.persist import disk, zarr_files


class Walk:
    """A kernel with few arrays, so that there are few operations."""

    def init(self, key, position):
        return ex.State(position, {}, None, None, jnp.int32(0))

    def step(self, key, state):
        position = state.position + jax.random.normal(key, (2,))
        return ex.State(position, {}, None, None, state.step + 1), {"sum": jnp.sum(position)}


def sample(folder: Path, steps: int, **more: Any) -> ex.Samples:
    return ex.sample(
        Walk(), jnp.zeros(2), steps, num_chains=2, key=jax.random.key(1), progress=False,
        checkpoint=ex.Checkpoint(folder, every=1e-9, **more),
    )  # fmt: skip


@pytest.mark.slow
def test_a_power_cut_at_any_moment(tmp_path, monkeypatch):
    monkeypatch.setattr(Clock, "steps", lambda self: 3)
    monkeypatch.setattr(zarr_files, "MOST_DRAWS", 5)
    root, copy, run = tmp_path / "disk", tmp_path / "copy", tmp_path / "disk" / "run"
    root.mkdir()
    whole = sample(tmp_path / "whole", 20)
    with Recorder(root) as recorder:
        sample(run, 9)
        earlier = (run / "checkpoint").read_bytes()
        sample(run, 14, resume=True)
        disk.write(run / "checkpoint", earlier)  # so it goes back from 14 draws to 9
        sample(run, 20, resume=True)
    assert not recorder.unflushed
    operations, dice, counts, refused = recorder.operations, random.Random(0), [], 0
    sure = on_disk = -1  # draws that are there whatever entries are not, before and after the last
    for end in range(1, len(operations) + 1):
        for number, found_there in enumerate(disks(operations[:end], dice)):
            lay_out(found_there, root, copy)
            try:
                found = ex.Samples.load(copy / "run" / "draws.zarr")
            except (ex.CheckpointError, FileNotFoundError):
                refused += 1
                assert sure < 0, "a store that was on the disk is lost"
                continue
            counts.append(found.num_draws)
            on_disk = found.num_draws if number == 0 else on_disk
            assert found.num_draws >= min(sure, 9), "draws that were counted are lost"
            np.testing.assert_array_equal(found.position, whole.position[:, : found.num_draws])
            np.testing.assert_array_equal(found.info["sum"], whole.info["sum"][:, : counts[-1]])
        sure = on_disk
        if end % 20 == 0 and (copy / "run" / "checkpoint").exists():
            resumed = sample(copy / "run", 20, resume=True)
            np.testing.assert_array_equal(resumed.position, whole.position)
    assert refused and set(counts) == {0, 3, 6, 9, 12, 14, 15, 18, 20}, (refused, set(counts))
