"""A folder has one writer at a time; readers need not wait for it."""

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.driver import run as driver
from ergodax.driver.progress import Clock
from ergodax.persist import zarr_files

KERNEL = ex.langevin(ex.FullGradient(ex.Target(lambda x: 0.5 * jnp.sum(x**2))), 0.5, 1.0)
WRITER = """
import sys, time
from pathlib import Path
from ergodax.persist.checkpoint import Checkpoint, Checkpointer
held = Checkpointer(Checkpoint(sys.argv[1], resume=True))
print("held", flush=True)
time.sleep(600)
"""


def sample(folder: Path, steps: int = 40, start: float = 0.0, **more: Any) -> ex.Samples:
    return ex.sample(
        KERNEL, jnp.full(2, start, jnp.float32), steps, num_chains=2, key=jax.random.key(0),
        progress=False, checkpoint=ex.Checkpoint(folder, **more),
    )  # fmt: skip


@pytest.mark.slow
def test_another_process_is_named_and_its_death_frees_the_folder(tmp_path):
    whole = sample(tmp_path / "whole")
    command = [sys.executable, "-c", WRITER, str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None and writer.stdout.readline() == "held\n"
        with pytest.raises(ex.CheckpointError, match="run is in use") as caught:
            sample(tmp_path / "run", resume=True)
        assert f"process {writer.pid} on {socket.gethostname()}" in str(caught.value)
        writer.kill()
    resumed = sample(tmp_path / "run", resume=True)
    np.testing.assert_array_equal(resumed.position, whole.position)


@pytest.mark.parametrize("given", ["folder", "store"])
def test_another_thread_is_refused_and_the_first_goes_on(tmp_path, monkeypatch, given):
    """The folder of the draws is one too, whatever folder the state is in."""
    begun, go_on, found = threading.Event(), threading.Event(), []
    real = driver.Run._draw

    def draw(self, *args):
        begun.set()
        go_on.wait()
        real(self, *args)

    monkeypatch.setattr(driver.Run, "_draw", draw)
    store = {"store": tmp_path / "draws"} if given == "store" else {}
    first = threading.Thread(target=lambda: found.append(sample(tmp_path / "run", **store)))
    first.start()
    try:
        assert begun.wait(60)
        with pytest.raises(ex.CheckpointError, match=f"is in use: process {os.getpid()} on"):
            sample(tmp_path / ("run" if given == "folder" else "other"), **store, resume=True)
        if given == "folder":
            with pytest.raises(ex.CheckpointError, match="is in use"):
                ex.Samples(np.ones((1, 2)), {}, {}).save(tmp_path / "run" / "draws.zarr")
    finally:
        go_on.set()
        first.join()
    assert found[0].num_draws == 40
    again = sample(tmp_path / "run", **store, resume=True)
    np.testing.assert_array_equal(again.position, found[0].position)


def test_a_refused_or_failed_run_frees_the_folder(tmp_path):
    whole = sample(tmp_path / "run")
    with pytest.raises(ex.CheckpointError, match="there already"):
        sample(tmp_path / "run")
    with pytest.raises(ex.CheckpointError, match="have changed"):
        sample(tmp_path / "run", resume=True, start=1.0)
    again = sample(tmp_path / "run", resume=True)
    np.testing.assert_array_equal(again.position, whole.position)
    assert not list(tmp_path.rglob("*.process"))


@pytest.mark.slow
def test_a_reader_sees_a_whole_count_at_any_time(tmp_path, monkeypatch):
    """While draws are added to the last chunk, and while a run goes back to its checkpoint."""
    monkeypatch.setattr(Clock, "steps", lambda self: 7)
    monkeypatch.setattr(zarr_files, "MOST_DRAWS", 50)
    whole = sample(tmp_path / "whole", 200).position
    seen, ended, wrong = [], threading.Event(), []

    def read():
        while not ended.is_set():
            if not (tmp_path / "run" / "draws.zarr").exists():
                continue
            try:
                found = ex.Samples.load(tmp_path / "run" / "draws.zarr")
            except Exception as error:
                wrong.append(error)
                return
            seen.append(found.num_draws)
            if not np.array_equal(found.position, whole[:, : found.num_draws]):
                wrong.append(found.num_draws)
            if found.info.potential.shape != found.position.shape[:2]:
                wrong.append(found)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        sample(tmp_path / "run", 100, every=1e-6)
        for file in ("checkpoint", "checkpoint.previous"):  # as if its last one had been lost
            (tmp_path / "run" / file).rename(tmp_path / file)
        (tmp_path / "checkpoint.previous").rename(tmp_path / "run" / "checkpoint")
        sample(tmp_path / "run", 200, every=1e-6, resume=True)
    finally:
        ended.set()
        reader.join()
    assert not wrong and len(set(seen)) > 3
