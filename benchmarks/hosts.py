"""Several devices and processes of one host: what a step costs, what the loss of one costs.

`python -m benchmarks hosts` prints three tables. `python -m benchmarks.hosts JOB FOLDER` is one
process of a job; `JOBS` says which there are. A process has one thread to compute with, so that two
devices are two threads, however they are had.
"""

import argparse
import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import ergodax as ex
from benchmarks.network_steps import WIDTHS, perceptron
from benchmarks.processes import Processes, child, environment, wait_for
from benchmarks.report import Table
from ergodax.driver.progress import Clock

ROWS, COLUMNS, BATCH_SIZE, THIN = 12_214, 129, 100, 10
DRAWS = 200  # that are compared
LONG = 20_000  # steps of the run that is killed
FOUR = "--xla_force_host_platform_device_count=4"


def posterior() -> Any:
    """A logistic regression, always the same."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, COLUMNS)).astype(np.float32)
    y = (rng.uniform(size=ROWS) < 1 / (1 + np.exp(-x[:, 0]))).astype(np.float32)

    def log_likelihood(w: Any, example: Any) -> Any:
        x, y = example
        return y * (x @ w) - jax.nn.softplus(x @ w)

    return ex.Posterior(lambda w: -0.5 * jnp.sum(w**2), log_likelihood, (x, y))


@dataclasses.dataclass(frozen=True)
class Case:
    """A kernel on a mesh.

    Attributes:
        name: of its row.
        chains: how many.
        shards: of `Stratified`; 0 for `Minibatch`.
        mesh: arguments of `ex.mesh`, or None.
        steps: timed.
    """

    name: str
    chains: int
    shards: int
    mesh: tuple[int, int] | None
    steps: int = 10_000

    def sample(self, posterior: Any, steps: int, seed: int, thin: int) -> Any:
        """A run of so many steps: this process's chains."""
        gradient: Any = ex.Minibatch(posterior, BATCH_SIZE)
        if self.shards:
            gradient = ex.Stratified(gradient, shards=self.shards)
        on = None if self.mesh is None else ex.mesh(*self.mesh)
        return ex.sample(
            ex.sghmc(gradient, 0.002, 10.0), jnp.zeros(COLUMNS), steps, thin=thin, mesh=on,
            num_chains=self.chains, key=jax.random.key(seed), progress=False,
        )  # fmt: skip


DEVICES = [
    Case("1 chain, no mesh", 1, 0, None),
    Case("1 chain, a mesh of one", 1, 0, (1, 1)),
    Case("1 chain, 2 shards, no mesh", 1, 2, None),
    Case("1 chain, 2 shards, 2 devices", 1, 2, (1, 2)),
    Case("4 chains, no mesh", 4, 0, None),
    Case("4 chains, 1 device", 4, 0, (1, 1)),
    Case("4 chains, 2 devices", 4, 0, (2, 1)),
    Case("4 chains, 4 devices", 4, 0, (4, 1)),
]
PROCESSES = [
    Case("1 chain, 2 shards, 2 processes", 1, 2, (1, 2), 2_000),
    Case("4 chains, 2 processes", 4, 0, (2, 1), 100_000),
]
LIKE = {  # whose draws those of a row are compared with
    "1 chain, a mesh of one": "1 chain, no mesh",
    "1 chain, 2 shards, 2 devices": "1 chain, 2 shards, no mesh",
    "1 chain, 2 shards, 2 processes": "1 chain, 2 shards, 2 devices",
    "4 chains, 1 device": "4 chains, no mesh",
    "4 chains, 2 devices": "4 chains, no mesh",
    "4 chains, 4 devices": "4 chains, no mesh",
    "4 chains, 2 processes": "4 chains, 2 devices",
}


def timed(cases: list[Case], folder: Path) -> dict[str, float]:
    """Microseconds a step of each case, the best of five rounds; the draws go to the folder."""
    model, best = posterior(), dict.fromkeys((case.name for case in cases), float("inf"))
    for case in cases:
        own = case.sample(model, DRAWS, 0, 1)
        if case.mesh is not None:
            own = ex.distributed.gather(own, ex.mesh(*case.mesh))
        if jax.process_index() == 0:
            np.save(folder / f"{case.name}.npy", own.position)
        case.sample(model, case.steps, 0, THIN)  # compiled
    for seed in range(5):
        for case in cases:
            begin = time.perf_counter()
            case.sample(model, case.steps, seed, THIN)
            seconds = time.perf_counter() - begin
            best[case.name] = min(best[case.name], 1e6 * seconds / case.steps)
    return best


def long(folder: Path) -> Any:
    """A run of some seconds; when this process begins to sample, and hears of the other's loss."""
    number, heard = jax.process_index(), folder / f"sampling-{os.getpid()}"

    def steps(self: Clock) -> int:
        if self.rate and not heard.exists():
            heard.write_text(str(time.time()))
        time.sleep(0.02)
        return 50

    Clock.steps = steps
    kernel = ex.sghmc(ex.Minibatch(posterior(), BATCH_SIZE), 0.002, 10.0)
    try:
        ex.sample(
            kernel, jnp.zeros(COLUMNS), LONG, thin=THIN, num_chains=4, mesh=ex.mesh(),
            key=jax.random.key(0), progress=False,
            checkpoint=ex.Checkpoint(folder / "run", every=0.5, resume=True),
        )  # fmt: skip
    except ex.ProcessLost:
        (folder / f"lost-{number}").write_text(str(time.time()))
        raise
    return None


def split(folder: Path) -> dict[str, list[float]]:
    """MB of a chain's state on a device, and milliseconds a step, by devices that share it."""
    model, start = perceptron()
    kernel = ex.sghmc(ex.Minibatch(model, BATCH_SIZE), 1e-4, 10.0)
    run: dict[str, Any] = dict(num_steps=50, thin=50, key=jax.random.key(0), progress=False)
    meshes = {"no mesh": None} | {str(k): ex.mesh(1, 1, k) for k in (1, 2, 4)}
    found, draws = {}, {}
    for name, mesh in meshes.items():
        samples = ex.sample(kernel, start, mesh=mesh, **run)
        state = [x for x in jax.tree.leaves(samples.final_state) if isinstance(x, jax.Array)]
        held = sum(x.addressable_shards[0].data.nbytes for x in state) / 1e6
        draws[name] = np.concatenate([np.ravel(x) for x in jax.tree.leaves(samples.position)])
        difference = float(np.abs(draws[name] - draws["no mesh"]).max())
        found[name] = [held, float("inf"), difference]
    for _ in range(5):
        for name, mesh in meshes.items():
            begin = time.perf_counter()
            ex.sample(kernel, start, mesh=mesh, **run)
            took = 1e3 * (time.perf_counter() - begin) / run["num_steps"]
            found[name][1] = min(found[name][1], took)
    return found


JOBS: dict[str, Callable[[Path], Any]] = {
    "devices": lambda folder: timed(DEVICES, folder),
    "processes": lambda folder: timed(PROCESSES, folder),
    "long": long,
    "split": split,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print what a step costs, whole and split, then what a loss costs."""
    parser = argparse.ArgumentParser(
        "python -m benchmarks hosts", description="Several devices and processes of one host."
    )
    parser.add_argument("--quick", action="store_true", help="each loss once, not three times")
    options = parser.parse_args(arguments)
    print(f"{steps_table().text()}\n\n{split_table().text()}\n", flush=True)
    print(losses_table(1 if options.quick else 3).text())


def run_job() -> None:
    """One process of a job; what it finds goes to its folder."""
    job, folder = sys.argv[1], Path(sys.argv[2])
    ex.distributed.start()
    found = JOBS[job](folder)
    (folder / f"found-{jax.process_index()}.json").write_text(json.dumps(found))


def _command(job: str, folder: Path) -> list[str]:
    return [sys.executable, "-m", "benchmarks.hosts", job, str(folder)]


# What a step costs


def steps_table() -> Table:
    """Microseconds a step, and whether the draws are the same."""
    table = Table(
        f"hosts: sghmc, {ROWS} rows of {COLUMNS} numbers, batch {BATCH_SIZE}, thin={THIN}, one "
        "thread a device",
        ["where", "us", "draws beside", "largest difference"],
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        flags = f"{os.environ.get('XLA_FLAGS', '')} {FOUR}"
        subprocess.run(_command("devices", folder), env=environment(XLA_FLAGS=flags), check=True)
        times = json.loads((folder / "found-0.json").read_text())
        with Processes(_command("processes", folder), folder) as two:
            times |= two.found()[0]
        for row, us in times.items():
            other, difference = LIKE.get(row), None
            if other is not None:
                pair = (np.load(folder / f"{one}.npy") for one in (row, other))
                difference = float(np.abs(np.subtract(*pair)).max())
            shown = "" if difference is None else f"{difference:.1e}" if difference else "none"
            table.rows.append([row, f"{us:.1f}", other or "", shown])
            table.data[row] = {"microseconds": us, "difference": difference}
    table.notes.append(
        f"none: equal to the bit, over {DRAWS} steps from 0. Times are the best of five rounds."
    )
    return table


def split_table() -> Table:
    """What the devices hold that share the arrays of one network, and what their steps cost."""
    columns = ["devices along parameters", "MB of the state on each", "ms a step", "difference"]
    table = Table(f"hosts: sghmc, a network of layers {WIDTHS}, one thread a device", columns)
    with tempfile.TemporaryDirectory() as name:
        flags = f"{os.environ.get('XLA_FLAGS', '')} {FOUR}"
        command = _command("split", Path(name))
        subprocess.run(command, env=environment(XLA_FLAGS=flags), check=True)
        found = json.loads((Path(name) / "found-0.json").read_text())
    for row, (held, took, difference) in found.items():
        table.rows.append([row, f"{held:.1f}", f"{took:.1f}", f"{difference:.1e}"])
        table.data[row] = {"megabytes": held, "milliseconds": took}
    return table


# What a loss costs


def losses_table(times: int) -> Table:
    """Two processes, of which one is killed or frozen."""
    table = Table(
        "hosts: one of two processes is lost, seconds from then",
        ["which", "the other knows", "it has ended", "both sample again", "finished draws"],
    )
    dice = random.Random()
    whole = _whole()
    for k in range(times):
        victim, after = dice.randrange(2), dice.uniform(0.0, 3.0)
        knows, ended = _lost(victim, after, signal.SIGKILL)
        again, same = _launched(victim, after, whole)
        name = f"process {victim} killed after {after:.1f} s"
        table.rows.append([name, knows, f"{ended:.2f}", f"{again:.1f}", same])
        table.data[f"{k}: {name}"] = {"ended": ended, "again": again, "draws": same}
    for victim in (0, 1):
        knows, ended = _lost(victim, 1.0, signal.SIGSTOP)
        table.rows.append([f"process {victim} frozen", knows, f"{ended:.1f}", "", ""])
        table.data[f"{victim} frozen"] = {"ended": ended}
    table.notes.append(
        "knows: ergodax.ProcessLost is raised; JAX: its runtime has ended the process before. A "
        "frozen process counts as lost after lost_after=20 seconds without a sign of life. `after`:"
        " since both sample. `ergodax launch` starts both again; the draws of the finished run are "
        "compared with those of a run of two processes that was left alone."
    )
    return table


def _whole() -> Any:
    """The draws of the run that is left alone."""
    with tempfile.TemporaryDirectory() as folder:
        with Processes(_command("long", Path(folder)), Path(folder)) as two:
            two.found()
        return _draws(Path(folder))


def _draws(folder: Path) -> np.ndarray:
    return np.asarray(ex.Samples.load(folder / "run" / "draws.zarr").position)


def _begun(folder: Path, *but: Path) -> list[Path]:
    return [file for file in folder.glob("sampling-*") if file not in but and file.read_text()]


def _lost(victim: int, after: float, how: signal.Signals) -> tuple[str, float]:
    """When the survivor knows, and how many seconds after the loss it has ended."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Processes(_command("long", folder), folder) as two:
            wait_for(lambda: len(_begun(folder)) == 2, two.running[0])
            time.sleep(after)
            lost = time.time()
            two.running[victim].send_signal(how)
            two.running[1 - victim].wait(120)
            ended = time.time() - lost
        told = folder / f"lost-{1 - victim}"
        return f"{float(told.read_text()) - lost:.2f}" if told.exists() else "JAX", ended


def _launched(victim: int, after: float, whole: np.ndarray) -> tuple[float, str]:
    """Seconds from a kill until both sample again, and what the finished draws are."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = [sys.executable, "-m", "ergodax", "launch", "--", *_command("long", folder)]
        launcher = subprocess.Popen(
            command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            wait_for(lambda: len(_begun(folder)) == 2, launcher)
            time.sleep(after)
            before, lost = _begun(folder), time.time()
            os.kill(child(launcher.pid, victim), signal.SIGKILL)
            wait_for(lambda: len(_begun(folder, *before)) == 2, launcher)
            again = max(float(file.read_text()) for file in _begun(folder, *before)) - lost
            if launcher.wait(120):
                raise RuntimeError("the run that was started again has not come to its end")
        finally:
            launcher.terminate()
            launcher.wait(20)
        draws = _draws(folder)
    if draws.shape != whole.shape:
        return again, f"{draws.shape[1]} of {whole.shape[1]}"
    difference = float(np.abs(draws - whole).max())
    return again, f"off by {difference:.1e}" if difference else "the same bits"


if __name__ == "__main__":
    run_job()
