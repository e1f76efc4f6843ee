"""What of meshes and several processes can be seen in one process with one device."""

import signal
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax import distributed
from ergodax.cli import launch as launcher
from ergodax.cluster import processes
from ergodax.cluster.meshes import mesh
from ergodax.cluster.processes import Agreement, Together
from ergodax.driver import executor
from ergodax.driver.executor import Executor
from ergodax.persist.checkpoint import Checkpointer
from ergodax.persist.draws import name_of

KEY = jax.random.key(2)
TARGET = ex.targets.gaussian(jnp.zeros(2), jnp.array([1.0, 0.25]))
KERNEL = ex.sgld(ex.FullGradient(TARGET), 0.1)


def sample(**more):
    return ex.sample(KERNEL, jnp.zeros(2), 50, key=KEY, num_chains=3, progress=False, **more)


@pytest.mark.slow
def test_a_mesh_of_one_device_is_that_device():
    jax.tree.map(np.testing.assert_array_equal, sample(), sample(mesh=mesh(1)))


@pytest.mark.slow
def test_without_a_mesh_nothing_is_split(monkeypatch):
    """The programs are those of the loop, without `shard_map`."""
    texts = []

    def noted(program):
        def run(*args):
            texts.append(program.lower(*args).as_text())
            return program(*args)

        return run

    monkeypatch.setattr(executor, "start", noted(executor.start))
    for small, programs in executor.PROGRAMS.items():
        parts = {name: noted(getattr(programs, name)) for name in ("advance", "draw")}
        monkeypatch.setitem(executor.PROGRAMS, small, programs._replace(**parts))
    sample(burn_in=5)
    assert len(texts) >= 3 and not any("sdy.mesh @mesh" in text for text in texts)
    sample(burn_in=5, mesh=mesh(1))
    assert "sdy.mesh @mesh" in texts[-1], "which is what a mesh makes of them"
    alone = Executor(KERNEL, None, None, 3)
    assert alone.processes.count == 1 and not alone.part


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: mesh(2), "there are 1"),
        (lambda: mesh(0), "chains=0"),
        (lambda: mesh(1, 0), "data=0"),
    ],
)
def test_a_mesh_needs_devices(make, message):
    with pytest.raises(ValueError, match=message):
        make()


class Told(Together):
    """A process that is told what the others say: in turn, a list of all."""

    def __init__(self, *answers, number=0):
        self.number, self.count = number, 2
        self.answers = [np.asarray(a) for a in answers]

    def gather(self, value):
        return self.answers.pop(0)


@pytest.mark.parametrize(
    "every, step",
    [
        ([[30, 20], [30, 20]], 30),
        ([[30, 20], [20, 10]], 20),  # the second was killed before it wrote that of step 30
        ([[20, -1], [30, 20]], 20),
        ([[0, -1], [-1, -1]], None),
        ([[0, -1], [0, -1]], 0),
        ([[-1, -1], [-1, -1]], None),
        ([[0, -1], [10, 0]], 0),
    ],
)
def test_processes_go_on_from_a_step_that_all_have(every, step):
    assert Told(every).common([]) == step


def test_without_a_common_step_they_say_what_they_have():
    with pytest.raises(ex.CheckpointError, match=r"process 0 those of \[20, 30\], process 1 those"):
        Told([[30, 20], [-1, -1]]).common([30, 20])


def test_process_0_says_how_long_and_anyone_when_to_stop():
    every = [Agreement(8, 0, False), Agreement(99, signal.SIGINT, True)]
    assert Told(every).agree(every[0]) == Agreement(8, signal.SIGINT, True)


def test_an_error_of_one_is_an_error_of_all():
    with pytest.raises(ZeroDivisionError), Told([[True], [False]]).together():
        raise ZeroDivisionError
    with pytest.raises(processes.ProcessFailed, match="process 1 of 2"):
        with Told([[False], [True]]).together():
            pass
    with Told([[False], [False]]).together():
        pass


def test_only_a_broken_connection_is_a_lost_process():
    with pytest.raises(processes.ProcessLost, match="Start all of them again"):
        with processes.watched():
            raise ValueError("UNKNOWN: Gloo AllGather failed: Connection reset by peer")
    with pytest.raises(ValueError, match="^other$"), processes.watched():
        raise ValueError("other")


@pytest.mark.parametrize(
    "part, there", [("", name_of(0, 0, 2, 4)), (name_of(0, 0, 1, 4), name_of(0, 0, 2, 4))]
)
def test_the_folder_of_other_processes_is_refused(part, there, tmp_path):
    (tmp_path / there).mkdir()
    with pytest.raises(ex.CheckpointError, match="has the run of 1 processes"):
        Checkpointer(ex.Checkpoint(tmp_path, resume=True), part)
    Checkpointer(ex.Checkpoint(tmp_path, resume=True), there)


@pytest.fixture
def joined(monkeypatch):
    """What `start` asks of JAX."""
    asked = []
    for name in ("ERGODAX_COORDINATOR", "ERGODAX_PROCESSES", "ERGODAX_PROCESS_ID", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    for name in ("SLURM_NTASKS", "SLURM_PROCID", "JOB_COMPLETION_INDEX", "OMPI_COMM_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    found = lambda name: sys if name == "kubernetes" else None  # noqa: E731
    monkeypatch.setattr("importlib.util.find_spec", found)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(jax.distributed, "initialize", lambda *a, **more: asked.append((a, more)))
    return asked


def test_one_process_starts_nothing(joined):
    distributed.start()
    assert not joined


@pytest.mark.parametrize(
    "environment, expected",
    [
        (
            {"ERGODAX_COORDINATOR": "a:1", "ERGODAX_PROCESSES": "3", "ERGODAX_PROCESS_ID": "2"},
            ("a:1", 3, 2),
        ),
        ({"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_PROCID": "1"}, (None, 4, 1)),
        (
            {"ERGODAX_COORDINATOR": "p:1", "ERGODAX_PROCESSES": "2", "JOB_COMPLETION_INDEX": "0"},
            ("p:1", 2, 0),
        ),
        (
            {
                "OMPI_MCA_orte_hnp_uri": "4096.0;tcp://10.0.0.1:34911",
                "OMPI_COMM_WORLD_SIZE": "3",
                "OMPI_COMM_WORLD_RANK": "2",
            },
            (None, 3, 2),
        ),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": "0"}, (None, None, 0)),
        ({"TPU_WORKER_HOSTNAMES": "a,b"}, (None, None, None)),
    ],
)
def test_the_environment_says_which_process_this_is(environment, expected, joined, monkeypatch):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    distributed.start(lost_after=7)
    settings = {"heartbeat_timeout_seconds": 7, "coordinator_bind_address": expected[0]}
    assert joined == [(expected, settings)]


@pytest.mark.parametrize(
    "arguments, message",
    [(("a:1",), "must all be known"), (("a:1", 2), "must all"), (("a:1", 2, 2), r"in \[0, 2\)")],
)
def test_what_is_not_known_is_asked_for(arguments, message, joined):
    with pytest.raises(ValueError, match=message):
        distributed.start(*arguments)


@pytest.mark.parametrize(
    "environment",
    [
        {"TPU_WORKER_HOSTNAMES": "a"},
        {"KUBERNETES_SERVICE_HOST": "10.0.0.1"},
        {"JOB_COMPLETION_INDEX": "0"},
        {"SLURM_JOB_ID": "7"},
    ],
)
def test_what_speaks_of_one_process_starts_nothing(environment, joined, monkeypatch):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    distributed.start()
    assert not joined


def test_launch_starts_again_what_fails(tmp_path, capfd):
    log = tmp_path / "log"
    command = f"echo $ERGODAX_PROCESS_ID >> {log}; sleep 0.2; test $(wc -l < {log}) -ge 4 || exit 3"
    assert launcher.launch("sh", "-c", command, processes=2, restarts=2) == 0
    assert sorted(log.read_text().split()) == ["0", "0", "1", "1"]
    assert "ended with status 3; starting all again (1 of 2)" in capfd.readouterr().err


def test_launch_ends_the_others_and_gives_up():
    began = time.monotonic()
    command = 'test "$ERGODAX_PROCESS_ID" = 1 && exit 5; exec sleep 60'
    assert launcher.launch("sh", "-c", command, processes=2, restarts=1) == 5
    assert time.monotonic() - began < 30, "it does not wait for process 0"


@pytest.mark.slow
def test_launch_hands_on_a_signal_and_does_not_start_again():
    code = "import sys; from ergodax.cli.launch import launch; sys.exit(launch(*sys.argv[1:]))"
    nap = "trap 'echo stopped; exit 4' INT; echo ready; while :; do sleep 0.1; done"
    with subprocess.Popen(
        [sys.executable, "-c", code, "sh", "-c", nap], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert [process.stdout.readline() for _ in range(2)] == ["ready\n"] * 2
            process.send_signal(signal.SIGINT)
            rest, _ = process.communicate(timeout=60)
        finally:
            process.terminate()
    assert rest.split() == ["stopped"] * 2 and process.returncode == 4


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: launcher.launch(), "no command"),
        (lambda: launcher.launch("true", processes=0), "processes=0"),
    ],
)
def test_launch_needs_something_to_do(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_shards_of_all_rows_are_the_posterior():
    """A batch of every row has no noise, neither in the gradient nor in the potential."""
    posterior = ex.Posterior(
        lambda w: -0.7 * jnp.sum(w**2),
        lambda w, x: -0.5 * jnp.sum((w - x) ** 2),
        np.arange(6.0, dtype=np.float32),
    )
    at, key = jnp.array([0.3, -1.0]), jax.random.key(0)
    estimator = ex.Stratified(ex.Minibatch(posterior, 6), 2)
    found, _ = estimator.estimate(key, estimator.init(key, at), at)
    np.testing.assert_allclose(found.potential, posterior.potential(at), rtol=1e-5)
    np.testing.assert_allclose(found.gradient, jax.grad(posterior.potential)(at), rtol=1e-5)
