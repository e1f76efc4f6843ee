"""A process that stops in the middle of a write, to be killed there.

Only what is written below one folder counts. The process stops for good, so that the kill comes at
this instant and at no other, in one of three places: where a part of a file's content has been
written, where all of it is there under the name that it has for the time of writing, or where it
has just been renamed into its place, and nothing after it is written.
"""

import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

BESIDE = ".new"  # how the name of a file ends that is being written beside its place


class Stop:
    """Stops this process at one of the operations by which files are written.

    Args:
        folder: whose files count.
        number: of the operation, from 1.
        seed: of how much of the file is written then.
        announce: called with a line of where it is, before it stops.
    """

    def __init__(
        self, folder: Path, number: int, seed: int, announce: Callable[[str], None]
    ) -> None:
        self.folder, self.left, self.dice = str(folder.resolve()), number, random.Random(seed)
        self.announce, self.fsync, self.replace = announce, os.fsync, os.replace
        # What files that are added to have had before: it is on the disk, and stays.
        self.sizes = {str(p): p.stat().st_size for p in folder.rglob("*") if p.is_file()}
        os.fsync, os.replace = self._fsync, self._replace

    def _fsync(self, descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if os.path.isfile(path) and self._due(path):
            size = os.fstat(descriptor).st_size
            least = 0 if path.endswith(BESIDE) else min(self.sizes.get(path, 0), size)
            os.ftruncate(descriptor, self.dice.randint(least, size))
            self._stop("part of", path)
        self.fsync(descriptor)
        self.sizes[path] = os.fstat(descriptor).st_size

    def _replace(self, old: Any, new: Any) -> None:
        if not self._due(new):
            self.replace(old, new)
            return
        if self.dice.random() < 0.5:
            self._stop("before the renaming to", new)
        self.replace(old, new)
        self._stop("after the renaming to", new)

    def _due(self, path: Any) -> bool:
        if os.path.abspath(path).startswith(self.folder + os.sep):
            self.left -= 1
            return self.left == 0
        return False

    def _stop(self, where: str, path: Any) -> NoReturn:
        self.announce(f"{where} {os.path.basename(path)}")
        while True:
            signal.pause()
