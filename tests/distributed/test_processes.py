"""Two real processes on this host, their collectives over sockets."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ergodax as ex
from benchmarks.processes import (
    SECONDS,
    Processes,
    child,
    environment,
    free_port,
    wait_for,
)
from distributed import worker

pytestmark = pytest.mark.slow

WORKER = Path(worker.__file__)
LAUNCH = "import sys; from ergodax.cli.launch import launch; sys.exit(launch(*sys.argv[1:]))"


@pytest.fixture(autouse=True, scope="module")
def sockets():
    try:
        free_port()
    except OSError as error:
        pytest.skip(f"no sockets on this host: {error}")


def started(scenario: str, folder: Path) -> Processes:
    """Two processes of `worker.py`."""
    return Processes([sys.executable, str(WORKER), scenario, str(folder)], folder)


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
    with started("together", folder) as two:
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
        assert found["step size"].startswith("ValueError: the processes differ in: kernel")
        assert "step_size" in found["step size"]
        assert found["steps"].startswith("ValueError: the processes differ in: num_steps")
        assert found["key"].startswith("ValueError: the processes differ in: seed")


def test_an_error_of_one_ends_all(pair):
    first, second = (found["disk"] for found in pair[1])
    assert second.startswith("StorageError: the draws can't be written")
    assert first.startswith("ProcessFailed: process 1 of 2")
    for found in pair[1]:
        assert found["divergence"].startswith("DivergenceError: chain 3 diverged")


def test_missing_parts_are_missed(pair, tmp_path):
    part = next((pair[0] / "chains").glob("process-1.*"))
    (tmp_path / "chains").mkdir()
    os.symlink(part, tmp_path / "chains" / part.name)
    with pytest.raises(ex.CheckpointError, match=r"no draws of the chains \[0, 1\] of 4"):
        ex.Samples.load(tmp_path / "chains")


def test_two_devices_of_a_process_share_the_arrays_of_its_chains(tmp_path):
    with started("parameters", tmp_path) as two:
        found = two.found()
    alone = worker.wide().position
    for number in range(2):
        every = np.load(tmp_path / f"parameters-{number}.npy")
        np.testing.assert_allclose(every, alone, rtol=1e-5, atol=2e-6)
        assert "'parameters', of 4 devices, goes over several" in found[number]["over processes"]
    np.testing.assert_array_equal(ex.Samples.load(tmp_path / "draws").position, every)


def test_other_numbers_of_processes_can_not_go_on(pair):
    with pytest.raises(ex.CheckpointError, match="the run of 2 processes"):
        kept = ex.Checkpoint(pair[0] / "new", store=pair[0] / "chains")
        worker.sample(worker.kernel(), checkpoint=kept)


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


def test_an_interrupt_of_one_stops_all_after_the_same_chunk(tmp_path):
    with started("long", tmp_path) as two:
        wait_for_a_save(saved(tmp_path, 1), two.running[1])
        two.running[1].send_signal(signal.SIGINT)
        texts = [found["stopped"] for found in two.found()]
    assert all(text.startswith("stopped at step ") for text in texts), texts
    assert len({text.partition(" The ")[0] for text in texts}) == 1, texts
    assert ex.Samples.load(tmp_path / "run" / "draws.zarr").num_chains == 4


def test_an_uncaught_error_of_one_ends_the_other(tmp_path):
    with started("uncaught", tmp_path) as two:
        assert [process.wait(SECONDS) for process in two.running] == [1, 1]
    assert "ZeroDivisionError" in two.output(1)
    assert "ProcessLost" in two.output(0)


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="sockets are looked up in /proc")
def test_only_this_host_can_reach_the_processes(tmp_path):
    """Their ports, found by the sockets that they own, are all open at 127.0.0.1 alone."""
    with started("long", tmp_path) as two:
        wait_for_a_save(saved(tmp_path, 1), two.running[1])
        addresses = [one for process in two.running for one in listening(process.pid)]
    assert addresses
    # In /proc a word of an address has its bytes backwards; the last word holds that of IPv4.
    assert {address[-8:] for address in addresses} == {"0100007F"}, addresses


def listening(pid: int) -> list[str]:
    """The addresses, as /proc writes them, at which a process accepts connections."""
    own = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            own.add(os.readlink(entry))
    sockets = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
    ]
    accept = [one for one in sockets if one[3] == "0A" and f"socket:[{one[9]}]" in own]
    return [one[1].partition(":")[0] for one in accept]


JOINS = """
import jax, ergodax as ex
ex.distributed.start()
print(jax.process_index(), jax.process_count(), ex.mesh().devices.size)
"""
SCHEDULERS = {
    "Slurm": lambda number: {
        "SLURM_JOB_ID": "7",
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_STEP_NUM_NODES": "1",
        "SLURM_NTASKS": "2",
        "SLURM_PROCID": str(number),
        "SLURM_LOCALID": str(number),
    },
    "Open MPI": lambda number: {
        "OMPI_MCA_orte_hnp_uri": "4096.0;tcp://127.0.0.1:34911",
        "OMPI_COMM_WORLD_SIZE": "2",
        "OMPI_COMM_WORLD_RANK": str(number),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(number),
    },
}


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_the_processes_of_a_scheduler_find_each_other(scheduler, tmp_path):
    """By its variables alone and JAX's own detection; the port is one that is free here."""
    port, running = str(free_port()), []
    for number in range(2):
        own = environment(JAX_COORDINATOR_PORT=port, **SCHEDULERS[scheduler](number))
        command = [sys.executable, "-W", "ignore", "-c", JOINS]
        running.append(subprocess.Popen(command, env=own, stdout=subprocess.PIPE, text=True))
    said = [process.communicate(timeout=SECONDS)[0].split() for process in running]
    assert said == [["0", "2", "2"], ["1", "2", "2"]]
