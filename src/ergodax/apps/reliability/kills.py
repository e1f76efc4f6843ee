"""A run that is killed again and again, and whose draws are compared with one that was not."""

import dataclasses
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np

import ergodax as ex
from ergodax.apps.reliability import runs
from ergodax.driver.keeper import DRAWS


@dataclasses.dataclass(frozen=True)
class Drill:
    """What came of a run that was killed.

    Attributes:
        kind: which run.
        kills: how many times.
        in_writing: how many of them left a file half written beside its place.
        draws: of each chain, when it was finished.
        expected: of the uninterrupted run.
        different: draws, info and final states that are not equal to the bit.
        unreadable: times that the store could not be opened between two lives, or held draws
            that the uninterrupted run does not have.
        least, most: draws in the store at the first kill and at the last.
        seconds: the whole took.
    """

    kind: str
    kills: int
    in_writing: int
    draws: int
    expected: int
    different: int
    unreadable: int
    least: int
    most: int
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether nothing was lost, doubled or changed."""
        return self.draws == self.expected and self.different == 0 and self.unreadable == 0


def drill(
    kind: str,
    kills: int,
    folder: Path,
    *,
    seed: int = 0,
    say: Callable[[str], None] = lambda text: None,
) -> Drill:
    """Kill a run at random instants, resume it, and compare.

    Args:
        kind: a key of `runs.KERNELS`.
        kills: how many.
        folder: an empty one.
        seed: of the instants.
        say: called with a line at every tenth kill.

    Raises:
        RuntimeError: the run ended before it was killed often enough, or makes no draws.
    """
    begin = time.perf_counter()
    folder.mkdir(parents=True, exist_ok=True)
    num_steps = 20 * 1_000 * max(4, kills)
    whole = runs.run(kind, folder, num_steps)
    dice, found, unreadable, halves = random.Random(seed), [], 0, 0
    with _worker(kind, folder, num_steps) as ask:
        longest = _first_life(ask, folder)
        while len(found) < kills:
            process = ask()
            time.sleep(dice.uniform(0.0, longest))
            os.kill(process, signal.SIGKILL)
            if ask.wait() == 0:
                raise RuntimeError("the run ended before it was killed often enough")
            halves += any((folder / "run").rglob(".checkpoint.new")) or any(
                (folder / "run").rglob("*.partial")
            )
            draws, fine = _look(folder / "run" / DRAWS, whole)
            found.append(draws)
            unreadable += not fine
            if len(found) % 10 == 0:
                say(f"  {kind}: killed {len(found)} times, {draws} draws in the store")
    resumed = runs.run(kind, folder, num_steps, checkpoint=folder / "run", resume=True)
    stored = ex.Samples.load(folder / "run" / DRAWS)
    different = _different(whole, resumed) + _different(
        (whole.position, whole.info), (stored.position, stored.info)
    )
    return Drill(
        kind, kills, halves, resumed.num_draws, whole.num_draws, different, unreadable,
        found[0] if found else 0, found[-1] if found else 0, time.perf_counter() - begin,
    )  # fmt: skip


def _look(store: Path, whole: ex.Samples) -> tuple[int, bool]:
    """How many draws a killed run's store has, and whether they are the right ones."""
    if not store.exists():
        return 0, True
    try:
        found = ex.Samples.load(store)
    except ex.CheckpointError:
        return 0, False
    n = found.num_draws
    return n, np.array_equal(found.position, whole.position[:, :n])


def _different(a: object, b: object) -> int:
    """How many arrays of two trees are not equal to the bit."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return sum(np.asarray(x).tobytes() != np.asarray(y).tobytes() for x, y in pairs)


class _worker:
    """The process whose copies are killed."""

    def __init__(self, kind: str, folder: Path, num_steps: int) -> None:
        module = "ergodax.apps.reliability.worker"
        self.command = [sys.executable, "-m", module, kind, str(folder), str(num_steps)]

    def __enter__(self) -> "_worker":
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, *exception: object) -> None:
        self.process.kill()
        self.process.communicate()

    def __call__(self) -> int:
        """Start a copy; its number."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self._answer()

    def wait(self) -> int:
        """How the copy ended."""
        return self._answer()

    def _answer(self) -> int:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("the process that is to be killed can't be started")
        return int(line)


def _first_life(ask: _worker, folder: Path) -> float:
    """Let a first copy come to its first draws, so that programs are compiled, and kill it.

    Returns:
        Seconds in which the later ones are killed: twice what a start took.
    """
    times = []
    for _ in range(2):
        begin, process = time.perf_counter(), ask()
        before = _draws(folder)
        while _draws(folder) <= before:
            if time.perf_counter() - begin > 120:
                raise RuntimeError("the run makes no draws")
            time.sleep(0.01)
        times.append(time.perf_counter() - begin)
        os.kill(process, signal.SIGKILL)
        ask.wait()
    return 2.0 * times[-1]


def _draws(folder: Path) -> int:
    store = folder / "run" / DRAWS
    return ex.Samples.load(store).num_draws if store.exists() else 0
