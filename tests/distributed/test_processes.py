"""Two real processes on this host, their collectives over sockets."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import ergodax as ex
from distributed import worker

WORKER = Path(worker.__file__)
SECONDS = 120  # at which a test is given up; each takes about 15 on two free cores
LAUNCH = "import sys; from ergodax.cli.launch import launch; sys.exit(launch(*sys.argv[1:]))"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.fixture(autouse=True, scope="module")
def sockets():
    try:
        free_port()
    except OSError as error:
        pytest.skip(f"no sockets on this host: {error}")


def environment(**more: str) -> dict[str, str]:
    return os.environ | {"JAX_PLATFORMS": "cpu", "NPROC": "1"} | more


class Pair:
    """Two processes of `worker.py`; both are gone after the `with`."""

    def __init__(self, scenario: str, folder: Path) -> None:
        self.folder, self.running = folder, []
        address = f"127.0.0.1:{free_port()}"
        for number in range(2):
            own = environment(
                ERGODAX_COORDINATOR=address, ERGODAX_PROCESSES="2", ERGODAX_PROCESS_ID=str(number)
            )
            command = [sys.executable, str(WORKER), scenario, str(folder)]
            with open(folder / f"output-{number}.txt", "w") as output:
                self.running.append(
                    subprocess.Popen(command, env=own, stdout=output, stderr=subprocess.STDOUT)
                )

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for process in self.running:
            process.kill()
            process.wait()

    def output(self, number: int) -> str:
        return (self.folder / f"output-{number}.txt").read_text()

    def found(self) -> list[dict]:
        """What both have found, when both have ended well."""
        for number, process in enumerate(self.running):
            assert process.wait(SECONDS) == 0, self.output(number)
        return [json.loads((self.folder / f"found-{k}.json").read_text()) for k in range(2)]


def wait_for(condition, process=None) -> None:
    until = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < until and (process is None or process.poll() is None)
        time.sleep(0.01)


def saved(folder: Path, number: int) -> Path:
    first = 2 * number
    return folder / "run" / f"process-{number}.chains-{first}-{first + 2}-of-4" / "checkpoint"


def wait_for_a_save(file: Path, process) -> None:
    """Until a checkpoint has been written after the one of the start."""
    wait_for(file.exists, process)
    first = file.stat().st_mtime_ns
    wait_for(lambda: file.exists() and file.stat().st_mtime_ns > first, process)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """The folder of two processes that ran together, and what they found."""
    folder = tmp_path_factory.mktemp("together")
    np.save(folder / "x.npy", worker.X)
    with Pair("together", folder) as two:
        return folder, two.found()


@pytest.mark.parametrize("name, shards", [("chains", 0), ("data", 2)])
def test_two_processes_draw_what_one_draws(name, shards, pair):
    folder, _ = pair
    alone = worker.sample(worker.kernel(shards=shards)).position
    for number in range(2):
        every = np.load(folder / f"{name}-{number}.npy")
        np.testing.assert_allclose(every, alone, rtol=1e-5, atol=2e-6)
    np.testing.assert_array_equal(ex.Samples.load(folder / name).position, every)


def test_each_process_reads_the_blocks_of_its_chains(pair):
    folder, _ = pair
    alone = worker.sample(worker.kernel(data=worker.streamed(folder))).position
    for number in range(2):
        every = np.load(folder / f"stream-{number}.npy")
        np.testing.assert_allclose(every, alone, rtol=1e-5, atol=2e-6)


def test_processes_that_differ_all_say_so(pair):
    for found in pair[1]:
        assert found["step size"].startswith("ValueError: the processes differ in: ['kernel']")
        assert "step_size" in found["step size"]
        assert found["steps"].startswith("ValueError: the processes differ in: num_steps")
        assert found["key"].startswith("ValueError: the processes differ in: ['seed']")


def test_an_error_of_one_ends_all(pair):
    first, second = (found["disk"] for found in pair[1])
    assert second.startswith("StorageError: the draws can't be written")
    assert first.startswith("ProcessFailed: process 1 of 2")
    for found in pair[1]:
        assert found["divergence"].startswith("DivergenceError: chain 3 left the finite numbers")


def test_missing_parts_are_missed(pair, tmp_path):
    part = next((pair[0] / "chains").glob("process-1.*"))
    (tmp_path / "chains").mkdir()
    os.symlink(part, tmp_path / "chains" / part.name)
    with pytest.raises(ex.CheckpointError, match=r"no draws of the chains \[0, 1\] of 4"):
        ex.Samples.load(tmp_path / "chains")


def test_other_numbers_of_processes_can_not_go_on(pair):
    with pytest.raises(ex.CheckpointError, match="the run of 2 processes"):
        worker.sample(worker.kernel(), store=pair[0] / "chains", checkpoint=pair[0] / "new")


@pytest.fixture(scope="module")
def whole():
    """The draws of the long run, uninterrupted, in one process."""
    worker.Clock.steps = lambda self: 2000
    return worker.sample(worker.kernel(), 2000).position


@pytest.mark.parametrize("victim", [0, 1])
def test_a_process_that_is_killed_is_started_again(victim, tmp_path, whole):
    command = [sys.executable, "-c", LAUNCH, sys.executable, str(WORKER), "long", str(tmp_path)]
    with open(tmp_path / "output.txt", "w") as output:
        launcher = subprocess.Popen(
            command, env=environment(), stdout=output, stderr=subprocess.STDOUT
        )
    try:
        wait_for_a_save(saved(tmp_path, victim), launcher)
        os.kill(child(launcher.pid, victim), signal.SIGKILL)
        assert launcher.wait(SECONDS) == 0, (tmp_path / "output.txt").read_text()
    finally:
        launcher.terminate()
        launcher.wait(20)
    assert "starting all again (1 of 3)" in " ".join((tmp_path / "output.txt").read_text().split())
    stored = ex.Samples.load(tmp_path / "run" / "draws.zarr").position
    np.testing.assert_allclose(stored, whole, rtol=1e-5, atol=2e-6)


def child(launcher: int, number: int) -> int:
    """The process with this number that the launcher has started."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = re.search(r"PPid:\t(\d+)", (entry / "status").read_text())
            own = (entry / "environ").read_bytes()
        except OSError:
            continue
        if parent and int(parent[1]) == launcher:
            if f"ERGODAX_PROCESS_ID={number}\0".encode() in own + b"\0":
                return int(entry.name)
    raise AssertionError("no such process")


def test_an_interrupt_of_one_stops_all_after_the_same_chunk(tmp_path):
    with Pair("long", tmp_path) as two:
        wait_for_a_save(saved(tmp_path, 1), two.running[1])
        two.running[1].send_signal(signal.SIGINT)
        texts = [found["stopped"] for found in two.found()]
    assert all(text.startswith("stopped at step ") for text in texts), texts
    assert len({text.partition(" The ")[0] for text in texts}) == 1, texts
    assert ex.Samples.load(tmp_path / "run" / "draws.zarr").num_chains == 4


def test_an_uncaught_error_of_one_ends_the_other(tmp_path):
    with Pair("uncaught", tmp_path) as two:
        assert [process.wait(SECONDS) for process in two.running] == [1, 1]
    assert "ZeroDivisionError" in two.output(1)
    assert "ProcessLost" in two.output(0)
