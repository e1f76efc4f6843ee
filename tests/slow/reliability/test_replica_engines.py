"""Workers on every engine, half of them killed: none of the others restarts, nothing is biased.

A replica sleeps as long as its value says, so what is long is likelier to be killed. Were it lost,
the mean would be too small.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import jax
import numpy as np
import pytest

import ergodax as ex

ROOT = Path(__file__).parents[3]
KEY = jax.random.key(0)
WORKERS, EACH = 4, 120  # replicas of a worker


def sleeper(key):
    """A replica whose time is its value: exponential, of mean 1."""
    import time

    import jax

    value = float(jax.random.exponential(key))
    time.sleep(0.05 * value)
    return value


sleeper.__module__ = "__main__"  # so that it is sent itself, and not by its name


def running(folder):
    with contextlib.suppress(FileNotFoundError):
        found = ex.replicas.read(folder).workers
        return {w.name: w.process for w in found if w.process and w.state == "running"}
    return {}


class Killer(threading.Thread):
    """Kills half of the running workers until `times` are dead; do the others live on?"""

    def __init__(self, folder, times=4):
        super().__init__(daemon=True)
        self.folder, self.times, self.killed, self.lost, self.over = folder, times, 0, [], False
        self.dice = np.random.default_rng(0)
        self.start()

    def run(self):
        until = time.monotonic() + 120
        while self.killed < self.times and not self.over:
            if time.monotonic() > until:
                return
            time.sleep(0.3)
            now = running(self.folder)
            if len(now) < WORKERS - 1:  # the first may be far ahead of the others
                continue
            victims = self.dice.permutation(sorted(now))[: len(now) // 2]
            for name in victims:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(now[name], signal.SIGKILL)
                    self.killed += 1
            time.sleep(0.5)
            after = running(self.folder)
            # A survivor has the process that it had, unless it has come to its end.
            self.lost += [n for n in set(now) - set(victims) if after.get(n, now[n]) != now[n]]


def started(folder, engine, **more):
    """The report of workers half of which are killed again and again."""
    options = {"key": KEY, "num": EACH, "identity": "sleeper", "bias": "none"}
    killer = Killer(folder)
    try:
        report = engine(folder, sleeper, WORKERS, **options | more)
    finally:
        killer.over = True
        killer.join()
    assert killer.killed >= 2 and not killer.lost
    return report


def judge(report, least=WORKERS * EACH):
    values = np.asarray(report.values)
    assert report.num >= least and len(np.unique(values)) == report.num
    assert not report.ignored
    z = (values.mean() - 1.0) * np.sqrt(len(values))  # the standard deviation is 1
    assert abs(z) < 5.0
    assert sum(w.num for w in report.workers) == report.num


def test_processes(tmp_path):
    judge(started(tmp_path, ex.replicas.processes, restarts=100))


def test_processes_that_can_not_work_say_why(tmp_path):
    with pytest.raises(RuntimeError, match="a worker ended with an error(.|\n)*is not finite"):
        ex.replicas.processes(
            tmp_path, lambda key: float("nan"), 1, key=KEY, num=2, identity="nothing"
        )


@pytest.mark.filterwarnings("ignore")  # of Ray and its dependencies
def test_ray(tmp_path):
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install ergodax[ray]")
    ray.init(num_cpus=WORKERS, log_to_driver=False, include_dashboard=False)
    try:
        judge(started(tmp_path, ex.replicas.ray))
    finally:
        ray.shutdown()


@pytest.fixture
def ours_aside(monkeypatch):
    """Dask's package is called `distributed`, as a folder of our tests is."""
    ours = {name for name in sys.modules if name.partition(".")[0] == "distributed"}
    for name in ours:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if Path(path) != ROOT / "tests"])


@pytest.mark.filterwarnings("ignore")
def test_dask(tmp_path, ours_aside):
    dask = pytest.importorskip("dask", reason="Dask is not installed: pip install ergodax[dask]")
    from distributed import Client, LocalCluster  # pyright: ignore

    settings = {"distributed.scheduler.allowed-failures": 100}
    cluster = {"n_workers": WORKERS, "threads_per_worker": 1, "dashboard_address": None}
    with dask.config.set(settings), LocalCluster(**cluster) as local, Client(local) as client:
        judge(started(tmp_path, ex.replicas.dask, client=client))


SLURM = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmdPort={other}
AuthType=auth/none
CredType=cred/none
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
MpiDefault=none
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """A cluster of this host alone; what its commands say."""
    if not (shutil.which("slurmctld") and shutil.which("slurmd")):
        pytest.skip("no Slurm here: apt install slurmctld slurmd slurm-client")
    if os.getuid():
        pytest.skip("slurmd needs the superuser")
    for name in ("state", "spool"):
        (tmp_path / name).mkdir()
    host, config = socket.gethostname().partition(".")[0], tmp_path / "slurm.conf"
    names = {"host": host, "port": free_port(), "other": free_port(), "user": "root"}
    config.write_text(SLURM.format(folder=tmp_path, **names))
    monkeypatch.setenv("SLURM_CONF", str(config))

    def say(*command):
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path).stdout

    commands = [[name, "-D", "-f", str(config)] for name in ("slurmctld", "slurmd")]
    quiet = {"cwd": tmp_path, "stderr": subprocess.DEVNULL}
    daemons = [subprocess.Popen(command, **quiet) for command in commands]
    try:
        until = time.monotonic() + 30
        while "idle" not in say("sinfo", "-h", "-o", "%T"):
            if time.monotonic() > until or any(one.poll() is not None for one in daemons):
                pytest.skip(f"Slurm does not start here; see its logs: {say('sinfo')}")
            time.sleep(0.2)
        yield say
    finally:
        say("scancel", "--user=root")
        for one in reversed(daemons):
            one.terminate()
            one.wait(20)


def test_a_slurm_array(tmp_path, slurm, monkeypatch):
    """The script of the examples; a worker is killed, and the next array goes on with it."""
    cluster = ROOT / "examples" / "cluster"
    monkeypatch.setenv("PYTHON", sys.executable)
    monkeypatch.setenv("WORKER", str(cluster / "worker.py"))
    folder = tmp_path / "replicas"

    def array(tasks, seconds):
        words = slurm(
            "sbatch", "--parsable", f"--array=0-{tasks - 1}", str(cluster / "slurm_array.sh"),
            str(folder), str(seconds),
        )  # fmt: skip
        assert words.strip().isdigit(), words

    def wait(condition, seconds=120):
        until = time.monotonic() + seconds
        while not condition():
            told = [path.read_text()[-500:] for path in tmp_path.glob("slurm-*.out")]
            assert time.monotonic() < until, told
            time.sleep(0.2)

    array(3, 40)  # seconds, which the first compilation is part of
    wait(lambda: len(running(folder)) == 3)
    victim, process = running(folder).popitem()
    os.kill(process, signal.SIGKILL)
    wait(lambda: not slurm("squeue", "-h").strip())
    states = {w.name: w.state for w in ex.replicas.read(folder).workers}
    assert states.pop(victim) == "dead" and set(states.values()) == {"ended"}
    array(1, 0.01)
    wait(lambda: not slurm("squeue", "-h").strip())
    report = ex.replicas.read(folder)
    assert {w.state for w in report.workers} == {"ended"} and len(report.workers) == 3
    assert report.bias == "none" and not report.ignored and report.num >= 3
