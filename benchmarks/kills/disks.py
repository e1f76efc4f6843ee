"""Disks that are full or can't be written: small file systems in memory, which are mounted."""

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.kills.kinds import KINDS
from benchmarks.kills.outcomes import Arrays, Outcome, Row, begun_rightly, ended_rightly, judged
from benchmarks.kills.runs import RUN, Kept

SECONDS = 120.0  # after which a run hangs
FULL = ("data in memory", "network")
ROOM = "256m"


class CannotMount(Exception):
    """File systems can't be mounted here; says why."""


@contextlib.contextmanager
def small_disk(place: Path, size: str) -> Iterator[Path]:
    """A file system of its own, such as one of "256k", at a folder that is made.

    Raises:
        CannotMount: only the superuser may, where there is a command for it.
    """
    place.mkdir(parents=True)
    _mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place))
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def remount(place: Path, option: str) -> None:
    """Change a mounted file system: "ro" forbids to write, "size=64m" makes room."""
    _mount("-o", f"remount,{option}", str(place))


def _mount(*arguments: str) -> None:
    try:
        done = subprocess.run(["mount", *arguments], capture_output=True, text=True)
    except FileNotFoundError:
        raise CannotMount("there is no command mount") from None
    if done.returncode:
        raise CannotMount(done.stderr.strip())


def full_disk(kind: str, sizes: list[int], folder: Path) -> list[Row]:
    """Runs on disks of so many kB, which are too small for them, and then with room.

    Returns:
        A row of what came of the full disk, and one of the runs that went on when there was room.
    """
    run, data = KINDS[kind], folder / "data"
    data.mkdir()
    run.go_on(data, folder / "whole")
    saved, ended = run.saved(data, folder / "whole"), run.ended(data, folder / "whole")
    rows = Row(f"disk full: {kind}"), Row(f"disk full, then room: {kind}")
    rows[0].expected, rows[1].expected = (Outcome.REFUSED,), (Outcome.RIGHT,)
    for size in sizes:
        with small_disk(folder / f"{size}", f"{size}k") as disk:
            trial = _Trial(run, data, disk, saved, ended)
            # Whatever the full disk comes to, what it has is right.
            outcomes = [judged(disk, SECONDS, call) for call in (trial.must_fail, trial.read)]
            there, words = outcomes[1]
            rows[0].add(*(outcomes[0] if there is Outcome.RIGHT else (there, words)))
            remount(disk, f"size={ROOM}")
            rows[1].add(*judged(disk, SECONDS, trial.go_on))
        (folder / f"{size}").rmdir()
    return list(rows)


class _Trial(NamedTuple):
    """A run on such a disk, and what a run elsewhere has saved and ended in."""

    run: Kept
    data: Path
    disk: Path
    saved: Arrays
    ended: Arrays

    def must_fail(self) -> Outcome:
        """Go on; to come to the end would be wrong."""
        self.run.go_on(self.data, self.disk)
        return Outcome.WRONG

    def read(self) -> Outcome:
        """Read what there is."""
        found = self.run.saved(self.data, self.disk)
        return begun_rightly(found, self.saved, self.run.counted(self.disk))

    def go_on(self) -> Outcome:
        """Go on to the end."""
        self.run.go_on(self.data, self.disk)
        return ended_rightly(self.run.ended(self.data, self.disk), self.ended)


def read_only(folder: Path) -> list[Row]:
    """Runs on a disk that is mounted for reading, and where a file is in the place of a folder.

    The superuser may write to any folder, whatever its rights, so these stand for them.
    """
    row = Row("read only: begin, go on, save", expected=(Outcome.REFUSED,))
    read = Row("read only: read", expected=(Outcome.RIGHT,))
    blocked = Row("a file in the place of the folder", expected=(Outcome.REFUSED,))
    for kind in FULL:
        run, data = KINDS[kind], folder / "data"
        data.mkdir(exist_ok=True)
        with small_disk(folder / "disk", ROOM) as disk:
            run.go_on(data, disk / "begun", part=0.5)
            saved = run.saved(data, disk / "begun")
            remount(disk, "ro")
            for name in ("begun", "new"):
                trial = _Trial(run, data, disk / name, saved, [])
                row.add(*judged(disk, SECONDS, trial.must_fail))
            read.add(*judged(disk, SECONDS, _Trial(run, data, disk / "begun", saved, []).read))
            remount(disk, "rw")
        (folder / "disk").rmdir()
        place = folder / "blocked"
        place.mkdir()
        (place / RUN).write_text("not a folder")
        blocked.add(*judged(place, SECONDS, _Trial(run, data, place, [], []).must_fail))
        shutil.rmtree(place)
    return [row, read, blocked]
