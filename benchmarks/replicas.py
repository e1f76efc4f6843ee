"""Workers killed on each engine that is installed, and what workers, results and levels cost.

`python -m benchmarks replicas` prints all tables; --only chooses. Half of the workers that run are
killed again and again; what is looked at is whether any other one restarts, whether the estimate
is still right, and how much finished work is lost.
"""

import argparse
import contextlib
import functools
import os
import resource
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import ergodax as ex
from benchmarks.report import Table

KEY = jax.random.key(0)
WORKERS = 16


def estimator() -> Any:
    """Of E x = 0 and E x^2 = 1, from a start that is three standard deviations off."""
    target = ex.FullGradient(ex.targets.gaussian(jnp.zeros(10), jnp.ones(10)))
    options = {"burn_in": 16, "num_draws": 16, "rate": 0.3}
    return ex.replicas.unbiased(target, jnp.full(10, 3.0), 0.5, 2.0, **options)


def sleeper(key: jax.Array) -> dict[str, Any]:
    """A replica that takes as long as its value says, so that what is long is killed more often.

    Exponential, of mean 1 and mean square 2; a second on average. Were those that a kill cuts short
    lost, the mean would be too small.
    """
    value = float(jax.random.exponential(key))
    time.sleep(value)
    return {"mean": np.array([value - 1.0]), "second_moment": np.array([0.5 * value**2])}


def worst_z(report: Any) -> float:
    """The largest distance of a moment from the truth, in standard errors."""
    means = np.abs(report.estimate["mean"] / report.error["mean"])
    squares = np.abs((report.estimate["second_moment"] - 1.0) / report.error["second_moment"])
    return float(max(means.max(), squares.max()))


class Killer(threading.Thread):
    """Kills half of the running workers again and again, and watches the others.

    Attributes:
        rounds: how often.
        killed: how many in all.
        restarted: survivors that had another process afterwards.
        lost: seconds since the last result of those that were killed.
    """

    def __init__(self, folder: Path, seconds: float) -> None:
        super().__init__(daemon=True)
        self.folder, self.until = folder, time.monotonic() + seconds
        self.rounds = self.killed = self.restarted = 0
        self.lost: list[float] = []
        self.start()

    def running(self) -> dict[str, Any]:
        """The workers that run, by name."""
        with contextlib.suppress(FileNotFoundError):
            found = ex.replicas.read(self.folder).workers
            return {w.name: w for w in found if w.state == "running" and w.process and w.num}
        return {}

    def run(self) -> None:
        """Until time is over."""
        dice = np.random.default_rng(0)
        while time.monotonic() < self.until:
            time.sleep(0.2)
            now = self.running()
            if len(now) < WORKERS * 3 // 4:
                continue
            victims = set(dice.permutation(sorted(now))[: len(now) // 2].tolist())
            for name in victims:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(now[name].process, signal.SIGKILL)
                    self.killed += 1
                    begun = self.folder / f".{name}.log.process"  # a later start lost no more
                    since = time.time() - begun.stat().st_mtime if begun.exists() else np.inf
                    self.lost.append(min(now[name].last, since))
            self.rounds += 1
            time.sleep(0.5)
            after = self.running()
            others = set(now) - victims
            same = [n for n in others if n in after and after[n].process == now[n].process]
            self.restarted += len(others) - len(same)


@contextlib.contextmanager
def ray_engine() -> Iterator[Callable[..., Any]]:
    """Ray of this host, which takes it for one of 16 processors."""
    import ray

    ray.init(num_cpus=WORKERS, log_to_driver=False, include_dashboard=False)
    try:
        yield ex.replicas.ray
    finally:
        ray.shutdown()


@contextlib.contextmanager
def dask_engine() -> Iterator[Callable[..., Any]]:
    """Dask of this host, with 16 worker processes."""
    import dask

    from distributed import Client, LocalCluster

    cluster = {"n_workers": WORKERS, "threads_per_worker": 1, "dashboard_address": None}
    with dask.config.set({"distributed.scheduler.allowed-failures": 10_000}):
        with LocalCluster(**cluster) as local, Client(local) as client:
            yield lambda *a, **more: ex.replicas.dask(*a, client=client, **more)


@contextlib.contextmanager
def process_engine() -> Iterator[Callable[..., Any]]:
    """Plain processes of this host."""
    yield lambda *a, **more: ex.replicas.processes(*a, restarts=10_000, **more)


ENGINES = {"processes": process_engine, "ray": ray_engine, "dask": dask_engine}


def engines(seconds: float, *, asleep: bool = False) -> Table:
    """Half of 16 workers killed again and again, for so long on each engine.

    Args:
        seconds: of each engine.
        asleep: replicas that sleep, instead of unbiased estimates that compute.
    """
    function, identity = (sleeper, "sleeper") if asleep else (estimator(), None)
    options = {"key": KEY, "seconds": seconds, "identity": identity}
    table = Table(
        f"{WORKERS} workers on {os.cpu_count()} cores, half of them killed again and again",
        ("engine", "rounds", "killed", "others restarted", "replicas", "worst z",
         "s lost a kill", "ignored"),
    )  # fmt: skip
    for name, engine in ENGINES.items():
        try:
            with engine() as call, tempfile.TemporaryDirectory() as folder:
                killer = Killer(Path(folder), seconds - 5.0)
                report = call(folder, function, WORKERS, **options)
                killer.join()
        except ImportError as error:
            table.notes.append(f"{name}: not installed ({error})")
            continue
        lost = f"{np.mean(killer.lost):.3f}" if killer.lost else "-"
        cells = [killer.rounds, killer.killed, killer.restarted, report.num]
        ignored = len(report.ignored)
        table.rows.append([name, *map(str, cells), f"{worst_z(report):.2f}", lost, str(ignored)])
        print(table.rows[-1], f"load {os.getloadavg()[0]:.1f}", flush=True)
    return table


def of_children() -> float:
    """CPU seconds of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def one_replica(num_workers: int) -> tuple[float, float]:
    """Seconds from a call to its end, and CPU seconds, where each worker makes one replica."""
    with tempfile.TemporaryDirectory() as folder:
        begun, spent = time.perf_counter(), of_children()
        ex.replicas.processes(folder, estimator(), num_workers, key=KEY, num=1)
        return time.perf_counter() - begun, of_children() - spent


def workers(seconds: float) -> Table:
    """Seconds from the start of a worker to its end with one replica; two workers against one."""
    table = Table("What a worker costs, of start, one replica and end", ("", "", "CPU seconds"))
    with tempfile.TemporaryDirectory() as cache:
        os.environ["ERGODAX_CACHE"] = cache
        first, again, two = one_replica(1), one_replica(1), one_replica(2)
        for which, cost in {
            "the first worker of a host, nothing compiled": first,
            "the first worker of another call": again,
            "each further worker of a call": tuple(b - a for a, b in zip(again, two, strict=True)),
        }.items():
            table.rows.append([which, f"{cost[0]:.2f} s", f"{cost[1]:.2f}"])
            print(table.rows[-1], f"load {os.getloadavg()[0]:.1f}", flush=True)
        speeds = []
        for count in (1, 2):
            with tempfile.TemporaryDirectory() as folder:
                report = ex.replicas.processes(folder, estimator(), count, key=KEY, seconds=seconds)
            speeds.append(sum(w.num / w.seconds for w in report.workers))
            table.rows.append([f"replicas a second of {count}", f"{speeds[-1]:.1f}", ""])
            print(table.rows[-1], f"load {os.getloadavg()[0]:.1f}", flush=True)
        del os.environ["ERGODAX_CACHE"]
    table.rows.append(["speed-up of two processes", f"{speeds[1] / speeds[0]:.2f}", ""])
    table.notes.append(f"load at the end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    return table


def reading() -> Table:
    """Ten thousand results of 16 workers, by the numbers in each."""
    table = Table("Reading 10,000 results of 16 workers", ("numbers", "MB", "seconds"))
    for size in (10, 7_850):
        with tempfile.TemporaryDirectory() as folder:
            options = {"key": KEY, "num": 625, "identity": "counts"}
            value = functools.partial(np.full, size, dtype=np.float32)
            for k in range(WORKERS):
                ex.replicas.work(folder, lambda _, f=value: f(1.0), worker=str(k), **options)
            bytes_ = sum(path.stat().st_size for path in Path(folder).glob("*.log"))
            begun = time.perf_counter()
            assert ex.replicas.read(folder).num == 10_000
            took = time.perf_counter() - begun
        table.rows.append([str(size), f"{bytes_ / 1e6:.1f}", f"{took:.2f}"])
        print(table.rows[-1], flush=True)
    return table


TABLES = {
    "engines": engines,
    "asleep": lambda seconds: engines(seconds, asleep=True),
    "workers": workers,
    "reading": lambda _: reading(),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser("python -m benchmarks replicas", description=__doc__)
    parser.add_argument("--only", choices=TABLES, action="append", help="of the tables")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each engine")
    parser.add_argument("--engine", choices=ENGINES, action="append", help="of the engines")
    given = parser.parse_args(arguments)
    for name in set(ENGINES) - set(given.engine or ENGINES):
        del ENGINES[name]
    print("load:", os.getloadavg(), flush=True)
    tables = [TABLES[name](given.seconds) for name in given.only or TABLES]
    print("\n" + "\n\n".join(table.text() for table in tables))


if __name__ == "__main__":
    main()
