"""`python -m benchmarks store`: what the checksums, the log and the lock of stored draws cost.

One run makes a gigabyte of draws and stores them. Its functions for checksums, log and lock are
timed from within; the share is theirs of all the seconds of the run, the reading back at its end
included. The same run in memory is the time of sampling alone.
"""

import argparse
import contextlib
import functools
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import ergodax as ex
from benchmarks import environment
from benchmarks.report import verdict
from ergodax.persist import checkpoint, disk, draws, log, zarr_files

DIMENSION, CHAINS = 100, 2
GOAL = 5.0  # percent
TIMED: dict[str, list[tuple[Any, str]]] = {
    "checksums": [(zarr_files.StoredArray, "checksum"), (zarr_files, "with_checksum")],
    "log": [(log.Log, "append")],
    "lock": [(checkpoint.Lock, "__init__"), (checkpoint.Lock, "release")],
    "folders' entries to the disk": [(disk, "sync")],
    "writing and reading, all of it": [(draws.DrawStore, "append"), (draws.DrawStore, "read")],
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the run twice, in memory and stored, and print the shares."""
    parser = argparse.ArgumentParser("python -m benchmarks store", description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.0, help="of draws (1)")
    parser.add_argument("--every", type=float, default=10.0, help="seconds between savings (10)")
    options = parser.parse_args(arguments)
    print("\n".join(f"{name:>12}: {value}" for name, value in environment.describe().items()))
    steps = int(options.gigabytes * 1e9 / (4 * DIMENSION * CHAINS))
    with tempfile.TemporaryDirectory() as folder:
        run(steps // 10, ex.Checkpoint(store=Path(folder) / "first"))  # compiles
        alone = timed(lambda: run(steps, None))
        where = Path(folder) / "run"
        with inner_times() as spent:
            whole = timed(lambda: run(steps, ex.Checkpoint(where, every=options.every)))
        bytes_there = sum(path.stat().st_size for path in where.rglob("*") if path.is_file())
        load = timed(lambda: ex.Samples.load(where / checkpoint.DRAWS))
    print(f"\n{steps:,} draws of {CHAINS} chains, {DIMENSION} numbers: {bytes_there / 1e9:.2f} GB")
    for name, seconds in {"in memory": alone, "stored and read back": whole, "read": load}.items():
        print(f"  {seconds:7.2f} s {name}")
    for name, seconds in spent.items():
        print(f"  {seconds:7.3f} s {name}: {100 * seconds / whole:.2f} % of the stored run")
    share = 100 * (spent["checksums"] + spent["log"] + spent["lock"]) / whole
    print(verdict("checksums, log and lock, in percent of the stored run", share, GOAL))


def run(steps: int, kept: ex.Checkpoint | None) -> ex.Samples:
    """SGLD on a Gaussian: a step costs little, so that storing costs much."""
    target = ex.targets.gaussian(jnp.zeros(DIMENSION), jnp.eye(DIMENSION))
    kernel = ex.sgld(ex.FullGradient(target), 0.01)
    return ex.sample(
        kernel, jnp.zeros(DIMENSION), steps, num_chains=CHAINS, key=jax.random.key(0),
        progress=False, checkpoint=kept,
    )  # fmt: skip


def timed(call: Callable[[], Any]) -> float:
    """Seconds that a call takes."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


@contextlib.contextmanager
def inner_times() -> Iterator[dict[str, float]]:
    """The seconds spent in the functions of `TIMED`, by the names there."""
    spent, real = dict.fromkeys(TIMED, 0.0), []
    for what, functions in TIMED.items():
        for owner, name in functions:
            function = getattr(owner, name)
            real.append((owner, name, function))
            setattr(owner, name, _counting(spent, what, function))
    try:
        yield spent
    finally:
        for owner, name, function in real:
            setattr(owner, name, function)


def _counting(spent: dict[str, float], what: str, function: Callable) -> Callable:
    @functools.wraps(function)
    def counted(*args: Any, **more: Any) -> Any:
        begin = time.perf_counter()
        try:
            return function(*args, **more)
        finally:
            spent[what] += time.perf_counter() - begin

    return counted
