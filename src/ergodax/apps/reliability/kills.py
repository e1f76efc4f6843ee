"""Runs that are killed again and again, and whose draws are compared with one that was not."""

import contextlib
import dataclasses
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np

import ergodax as ex
from ergodax.persist import checkpoint
from ergodax.persist.checkpointer import DRAWS, FILE


@dataclasses.dataclass(frozen=True)
class Drill:
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


def drill(
    kind: str,
    kills: int,
    folder: Path,
    *,
    seed: int = 0,
    say: Callable[[str], None] = lambda text: None,
) -> Drill:
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
        whole = _uninterrupted(worker, run, folder / "whole")
        longest = 2.0 * _start_up(worker, folder)
        while done < kills:
            if worker.live(dice.uniform(0.0, longest)):
                ends.append(_compared(run, whole))
                shutil.rmtree(run)
                continue
            done += 1
            halves += any(run.rglob(".checkpoint.new")) or any(run.rglob("*.partial"))
            unreadable += not _rightly_begun(run / DRAWS, whole)
            if done % 10 == 0:
                say(f"  {kind}: killed {done} times")
        worker.live(None)
        ends.append(_compared(run, whole))
    lost, different = (sum(each) for each in zip(*ends, strict=True))
    return Drill(
        kind, done, halves, len(ends), lost, different, unreadable, time.perf_counter() - begin
    )


@dataclasses.dataclass(frozen=True)
class _Ended:
    """What a finished run has left."""

    samples: ex.Samples
    state: dict[str, np.ndarray]


def _ended(run: Path) -> _Ended:
    return _Ended(ex.Samples.load(run / DRAWS), checkpoint.read(run / FILE)[1])


def _uninterrupted(worker: "_Worker", run: Path, place: Path) -> _Ended:
    worker.live(None)
    run.rename(place)
    return _ended(place)


def _compared(run: Path, whole: _Ended) -> tuple[int, int]:
    """By how many draws a finished run is off, and how many of its arrays differ."""
    found = _ended(run)
    lost = abs(found.samples.num_draws - whole.samples.num_draws)
    drawn = [(s.position, s.info) for s in (found.samples, whole.samples)]
    pairs = [(jax.tree.leaves(a), jax.tree.leaves(b)) for a, b in [(drawn[0], drawn[1])]]
    pairs.append((list(found.state.values()), list(whole.state.values())))
    each = [pair for a, b in pairs for pair in zip(a, b, strict=True)]
    return lost, sum(np.asarray(x).tobytes() != np.asarray(y).tobytes() for x, y in each)


def _rightly_begun(store: Path, whole: _Ended) -> bool:
    """Whether a killed run's store can be read and has the right draws."""
    if not store.exists():
        return True
    try:
        found = ex.Samples.load(store)
    except ex.CheckpointError:
        return False
    right = whole.samples.position[:, : found.num_draws]
    return np.array_equal(found.position, right)


class _Worker:
    """The process whose copies are killed."""

    def __init__(self, kind: str, folder: Path) -> None:
        module = "ergodax.apps.reliability.worker"
        self.command = [sys.executable, "-m", module, kind, str(folder)]

    def __enter__(self) -> "_Worker":
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
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


def _start_up(worker: _Worker, folder: Path) -> float:
    """Seconds that a copy takes to its first draws; it is killed then."""
    begin, process = time.perf_counter(), worker.begin()
    store = folder / "run" / DRAWS
    while not (store.exists() and ex.Samples.load(store).num_draws):
        if time.perf_counter() - begin > 120:
            raise RuntimeError("the run makes no draws")
        time.sleep(0.01)
    seconds = time.perf_counter() - begin
    worker.end(process)
    return seconds
