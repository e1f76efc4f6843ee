"""Files of a run that are cut, changed by a bit, deleted, old, or in each other's place.

Every file of the store and of the checkpoint is damaged, one at a time, in a copy of the run's
folder. The store is read then, and the run goes on. An outcome is the worse of the two.
"""

import itertools
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.kills.kinds import SHORT
from benchmarks.kills.outcomes import (
    Arrays,
    Outcome,
    Row,
    begun_rightly,
    ended_rightly,
    judged,
)
from benchmarks.kills.runs import Kept

SECONDS = 60.0  # after which reading or going on hangs
SELDOM = 10.0  # seconds to a saving: what is written when is of no matter here


class Subject:
    """A run that has come half of its way, or to its end.

    Args:
        kind: a key of `SHORT`.
        folder: an empty one.
        finished: whether it has come to its end.

    Attributes:
        now: the folder as it is.
        before: as it was when the run had come a quarter of its way.
        files: that may be damaged: of the run, and what it ended in.
    """

    def __init__(self, kind: str, folder: Path, *, finished: bool) -> None:
        self.kind: Kept = SHORT[kind]
        self.data, self.now, self.before = (folder / n for n in ("data", "now", "before"))
        self.copy, whole = folder / "copy", folder / "whole"
        self.data.mkdir(parents=True)
        self.kind.go_on(self.data, whole, every=SELDOM)
        self.ended = self.kind.ended(self.data, whole)
        self.kind.go_on(self.data, self.now, part=0.25)
        shutil.copytree(self.now, self.before)
        self.finished = finished
        self.kind.go_on(self.data, self.now, part=1.0 if finished else 0.5)
        self.saved: Arrays = self.kind.saved(self.data, self.now)
        self.files = [
            path.relative_to(self.now)
            for path in sorted(self.now.rglob("*"))
            if path.is_file() and path.stat().st_size  # the locks have no content
        ]

    def trial(self, harm: Callable[[Path], None]) -> tuple[Outcome, str]:
        """Damage a copy, read it and go on with it."""
        shutil.rmtree(self.copy, ignore_errors=True)
        shutil.copytree(self.now, self.copy)
        harm(self.copy)

        def read() -> Outcome:
            if self.finished:
                same = ended_rightly(self.kind.ended(self.data, self.copy), self.ended)
                return Outcome.RIGHT if same is Outcome.RIGHT else Outcome.WRONG
            found = self.kind.saved(self.data, self.copy)
            return begun_rightly(found, self.saved, len(self.saved[0]))

        def go_on() -> Outcome:
            self.kind.go_on(self.data, self.copy, every=SELDOM)
            return ended_rightly(self.kind.ended(self.data, self.copy), self.ended)

        return max(judged(self.copy, SECONDS, call) for call in (read, go_on))


def cut(path: Path, before: Path, dice: random.Random) -> None:
    """Some of the end is missing."""
    content = path.read_bytes()
    path.write_bytes(content[: dice.randrange(len(content))])


def flipped(path: Path, before: Path, dice: random.Random) -> None:
    """A bit is another one."""
    content = bytearray(path.read_bytes())
    content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
    path.write_bytes(content)


def deleted(path: Path, before: Path, dice: random.Random) -> None:
    """It is not there."""
    path.unlink()


def older(path: Path, before: Path, dice: random.Random) -> None:
    """It is as it was when the run had come less far."""
    shutil.copyfile(before, path)


FAULTS: dict[str, Callable[[Path, Path, random.Random], None]] = {
    "cut short": cut,
    "changed by a bit": flipped,
    "deleted": deleted,
    "an older version of itself": older,
}
AT_RANDOM = cut, flipped  # at another place each time
TRIALS = 60  # of these, at least, of all files together
SWAPS = 50  # pairs of files, at most


def damaged(
    kind: str,
    folder: Path,
    *,
    finished: bool,
    seed: int,
    quick: bool,
    say: Callable[[str], None],
) -> list[Row]:
    """Damage all files of a run in all ways.

    Args:
        kind: a key of `SHORT`.
        folder: an empty one.
        finished: whether the run has come to its end.
        seed: of what is done to the files.
        quick: each file once, and few pairs.
        say: called with a line before each way.
    """
    subject, dice, rows = Subject(kind, folder, finished=finished), random.Random(seed), []
    name_of_run = f"{kind}, {'finished' if finished else 'half of it'}"
    most = 1 if quick else -(-TRIALS // len(subject.files))
    for name, fault in FAULTS.items():
        row = Row(f"a file {name}: {name_of_run}")
        say(row.fault)
        for path in subject.files:
            if fault is older and not _changed(subject, path):
                continue
            for _ in range(most if fault in AT_RANDOM else 1):
                harm = lambda copy: fault(copy / path, subject.before / path, dice)  # noqa: B023, E731
                outcome, words = subject.trial(harm)
                row.add(outcome, f"{path}: {words}")
        rows.append(row)
    row = Row(f"two files swapped: {name_of_run}")
    say(row.fault)
    pairs = list(_pairs(subject))
    for one, other in dice.sample(pairs, min(len(pairs), 10 if quick else SWAPS)):
        outcome, words = subject.trial(lambda copy: _swap(copy, one, other))  # noqa: B023
        row.add(outcome, f"{one}, {other}: {words}")
    return [row for row in (*rows, row) if row.trials]


def _changed(subject: Subject, path: Path) -> bool:
    """Whether there is an older version of a file, and another one."""
    before = subject.before / path
    return before.exists() and before.read_bytes() != (subject.now / path).read_bytes()


def _pairs(subject: Subject) -> Iterator[tuple[Path, Path]]:
    for one, other in itertools.combinations(subject.files, 2):
        if (subject.now / one).read_bytes() != (subject.now / other).read_bytes():
            yield one, other


def _swap(copy: Path, one: Path, other: Path) -> None:
    aside = copy / "aside"
    (copy / one).rename(aside)
    (copy / other).rename(copy / one)
    aside.rename(copy / other)
