"""`python -m benchmarks kills`: runs are killed again and again, resumed, and compared to the bit.

The figures of docs/reliability.md come from here, and those of the memory of a long run.
"""

import argparse
import contextlib
import dataclasses
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import ergodax as ex
from benchmarks import environment
from benchmarks.kills import runs

PATIENCE = 120.0  # seconds to the first draws of a run
DRAWS = "draws.zarr"  # in the folder of checkpoints


def main(arguments: Sequence[str] | None = None) -> None:
    """Kill and resume each run, then measure the memory of long ones."""
    parser = argparse.ArgumentParser(
        "python -m benchmarks kills", description="What survives, measured."
    )
    parser.add_argument("--kills", type=int, default=50, help="of each run (50)")
    parser.add_argument("--only", nargs="+", choices=("kills", "memory"))
    parser.add_argument("--quick", action="store_true", help="five kills, shorter runs")
    options = parser.parse_args(arguments)
    print("\n".join(f"{name:>12}: {value}" for name, value in environment.describe().items()))
    if "kills" in (options.only or ["kills"]):
        print("\nkilled at random instants, resumed, compared with the run that was not killed")
        for kind in runs.KERNELS:
            with tempfile.TemporaryDirectory() as folder:
                times = 5 if options.quick else options.kills
                found = kill_and_resume(kind, times, Path(folder), seed=time.time_ns(), say=print)
            print(f"  {found.sentence}", flush=True)
    if "memory" in (options.only or ["memory"]):
        _memory(1_000_000 if options.quick else 10_000_000)


def _memory(steps: int) -> None:
    """Resident memory of a run as it gets longer, its draws thinned to 1,000 or stored."""
    print(f"\nmemory of SGHMC on 20,000 rows in memory, up to {steps:,} steps of each of 2 chains")
    with tempfile.TemporaryDirectory() as folder:
        for count in (steps // 100, steps // 10, steps):
            kernel = ex.online.accumulate(runs.in_memory(Path(folder)), moments=ex.online.Moments())
            ex.sample(
                kernel, jnp.zeros(runs.COLUMNS), count, thin=count // 1000, num_chains=2,
                key=jax.random.key(0), progress=False,
                checkpoint=ex.Checkpoint(store=Path(folder) / str(count)),
            )  # fmt: skip
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            resident = pages * os.sysconf("SC_PAGE_SIZE") / 1e6
            print(f"  {count:>12,} steps: {resident:.0f} MB resident", flush=True)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came of runs that were killed.

    Attributes:
        kind: which run.
        kills: how many times.
        in_writing: how many of them left a file half written beside its place.
        finished: runs that came to their end in spite of them.
        lost: draws that they have less or more than the run that was not killed, in all.
        different: arrays of draws, infos and final states that are not equal to the bit.
        unreadable: times that the store could not be opened after a kill, or held draws that the
            run that was not killed does not have.
        seconds: the whole took.
    """

    kind: str
    kills: int
    in_writing: int
    finished: int
    lost: int
    different: int
    unreadable: int
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether nothing was lost, doubled or changed."""
        return self.finished > 0 and self.lost == self.different == self.unreadable == 0

    @property
    def sentence(self) -> str:
        """All of it in words."""
        return (
            f"{self.kind}: {self.kills} kills, {self.in_writing} of them in the middle of writing "
            f"a file; {self.finished} runs came to their end, with {self.lost} draws lost or "
            f"doubled, {self.different} arrays that differ in a bit; the store could not be read, "
            f"or was wrong, after {self.unreadable} kills; {self.seconds:.0f} s"
        )


def kill_and_resume(
    kind: str,
    kills: int,
    folder: Path,
    *,
    seed: int = 0,
    say: Callable[[str], None] = lambda text: None,
) -> Outcome:
    """Kill runs at random instants, resume them, and compare.

    A run that comes to its end is compared, and the next one begins.

    Args:
        kind: a key of `runs.KERNELS`.
        kills: how many.
        folder: an empty one.
        seed: of the instants.
        say: called with a line at every tenth kill.

    Raises:
        RuntimeError: the run can't be started, or makes no draws.
    """
    begin, run = time.perf_counter(), folder / "run"
    folder.mkdir(parents=True, exist_ok=True)
    dice, done, halves, unreadable, ends = random.Random(seed), 0, 0, 0, []
    with _Worker(kind, folder) as worker:
        worker.live(None)  # not killed
        whole = _ended(folder)
        shutil.rmtree(run)
        longest = 2.0 * _start_up(worker, run / DRAWS)
        while done < kills:
            if worker.live(dice.uniform(0.0, longest)):
                ends.append(_compared(_ended(folder), whole))
                shutil.rmtree(run)
                continue
            done += 1
            halves += any(run.rglob(".*.new"))
            unreadable += not _rightly_begun(run / DRAWS, whole)
            if done % 10 == 0:
                say(f"  {kind}: killed {done} times")
        worker.live(None)
        ends.append(_compared(_ended(folder), whole))
    lost, different = (sum(each) for each in zip(*ends, strict=True))
    seconds = time.perf_counter() - begin
    return Outcome(kind, done, halves, len(ends), lost, different, unreadable, seconds)


def _ended(folder: Path) -> tuple[ex.Samples, ex.Samples]:
    """What a finished run has stored while it went on, and what it returned at its end."""
    return ex.Samples.load(folder / "run" / DRAWS), ex.Samples.load(folder / runs.RETURNED)


def _compared(
    found: tuple[ex.Samples, ex.Samples], whole: tuple[ex.Samples, ex.Samples]
) -> tuple[int, int]:
    """By how many draws a finished run is off, and how many of its arrays differ."""
    lost = max(abs(a.num_draws - b.num_draws) for a, b in zip(found, whole, strict=True))
    pairs = zip(_arrays(found), _arrays(whole), strict=True)
    return lost, sum(x.tobytes() != y.tobytes() for x, y in pairs)


def _arrays(ended: tuple[ex.Samples, ex.Samples]) -> list[np.ndarray]:
    parts = [(samples.position, samples.info, samples.final_state) for samples in ended]
    return [
        np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
        for leaf in jax.tree.leaves(parts)
    ]


def _is_key(leaf: object) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _rightly_begun(store: Path, whole: tuple[ex.Samples, ex.Samples]) -> bool:
    """Whether a killed run's store can be read and has the right draws."""
    if not store.exists():
        return True
    try:
        found = ex.Samples.load(store)
    except ex.CheckpointError:
        return False
    return np.array_equal(found.position, whole[0].position[:, : found.num_draws])


class _Worker:
    """The process whose copies are killed."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.command = [sys.executable, "-m", "benchmarks.kills.worker", kind, str(folder)]

    def __enter__(self) -> "_Worker":
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=runs.ROOT
        )
        return self

    def __exit__(self, *exception: object) -> None:
        self.process.kill()
        self.process.communicate()

    def begin(self) -> int:
        """Start a copy; its number."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self._answer()

    def end(self, process: int) -> bool:
        """Kill a copy; whether it had come to its own end before."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        return self._finished()

    def live(self, seconds: float | None) -> bool:
        """Let a copy live for so long, or to its end; whether it came to it."""
        process = self.begin()
        if seconds is None:
            return self._finished()
        time.sleep(seconds)
        return self.end(process)

    def _finished(self) -> bool:
        code = self._answer()
        if code not in (0, -signal.SIGKILL):
            raise RuntimeError(f"the run that is to be killed ended with {code}")
        return code == 0

    def _answer(self) -> int:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("the process that is to be killed can't be started")
        return int(line)


def _start_up(worker: _Worker, store: Path) -> float:
    """Seconds that a copy takes to its first draws; it is killed then."""
    begin, process = time.perf_counter(), worker.begin()
    while not (store.exists() and ex.Samples.load(store).num_draws):
        if time.perf_counter() - begin > PATIENCE:
            raise RuntimeError("the run makes no draws")
        time.sleep(0.01)
    seconds = time.perf_counter() - begin
    worker.end(process)
    return seconds
