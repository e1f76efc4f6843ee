"""Ranges of bytes of a file, read through the operating system's cache of files or past it.

Data that are much larger than memory are never found in the cache, and to put them there costs more
time than the disk needs. So they are read past it, which wants aligned memory in large pages, and
several requests at a time.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from queue import SimpleQueue

import numpy as np
from jaxtyping import Int64, UInt8

Places = Int64[np.ndarray, "_ 2"]
Bytes = UInt8[np.ndarray, " _"]

ALIGNMENT = 2**12  # bytes, of places in a file and in memory, for reading past the cache
LARGE_PAGE = 2**21
REQUEST = 2**19  # bytes read at a time
SHARE = 2**21  # bytes that a thread reads before it takes up others
THREADS = 8  # that read past the cache
GROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


class Cached:
    """Reads through the cache."""

    def read(self, path: Path, places: Places, out: Bytes) -> None:
        """Put these bytes one after another into `out`.

        Args:
            path: of the file.
            places: first byte, and the byte after the last, of each range.
            out: where.

        Raises:
            ValueError: the file is too short.
        """
        memory, done = memoryview(out), 0
        with open(path, "rb", buffering=0) as file:
            if hasattr(os, "posix_fadvise"):  # told of all at once, a disk is three times faster
                for first, last in places.tolist():
                    os.posix_fadvise(file.fileno(), first, last - first, os.POSIX_FADV_WILLNEED)
            for first, last in places.tolist():
                file.seek(first)
                while first < last:
                    count = file.readinto(memory[done : done + last - first])
                    if not count:
                        raise _cut(path, first)
                    first, done = first + count, done + count


class PastTheCache:
    """Reads past the cache, by several threads, each into a piece of aligned memory of its own."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        memory = np.empty(THREADS * REQUEST + LARGE_PAGE, np.uint8)
        begin = -memory.ctypes.data % LARGE_PAGE
        self.free: SimpleQueue[Bytes] = SimpleQueue()
        for k in range(THREADS):
            self.free.put(memory[begin + k * REQUEST : begin + (k + 1) * REQUEST])
        self.threads, self.process = ThreadPoolExecutor(THREADS), os.getpid()

    def read(self, path: Path, places: Places, out: Bytes) -> None:
        """Put these bytes one after another into `out`.

        Args:
            path: of the file.
            places: first byte, and the byte after the last, of each range.
            out: where.

        Raises:
            ValueError: the file is too short.
        """
        if self.process != os.getpid():  # a fork has no threads
            self._begin()
        file = os.open(path, os.O_RDONLY | os.O_DIRECT)
        try:
            futures = [
                self.threads.submit(self._part, file, path, part, out[k * SHARE : (k + 1) * SHARE])
                for k, part in enumerate(_divided(places, SHARE))
            ]
            wait(futures)  # all of them: the file is about to be closed
            for future in futures:
                future.result()
        finally:
            os.close(file)

    def _part(self, file: int, path: Path, places: Places, out: Bytes) -> None:
        piece, done = self.free.get(), 0
        try:
            for first, last in places.tolist():
                while first < last:
                    begin = first - first % ALIGNMENT
                    wanted = min(REQUEST, -(-(last - begin) // ALIGNMENT) * ALIGNMENT)
                    count = os.preadv(file, [piece[:wanted]], begin)
                    some = min(begin + count, last) - first
                    if some <= 0:
                        raise _cut(path, first)
                    out[done : done + some] = piece[first - begin : first - begin + some]
                    first, done = first + some, done + some
        finally:
            self.free.put(piece)


def way_to_read(paths: list[Path]) -> Cached | PastTheCache:
    """Past the cache, where these files together are larger than half of the memory.

    Args:
        paths: of the files, on one file system.
    """
    if not hasattr(os, "O_DIRECT") or sum(path.stat().st_size for path in paths) <= memory() // 2:
        return Cached()
    past = PastTheCache()
    try:
        past.read(paths[0], np.array([[0, 1]]), np.empty(1, np.uint8))
    except OSError:  # a file system without it
        return Cached()
    return past


def memory() -> int:
    """Bytes that this process may have in memory, the cache of its files among them."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    try:
        limits.append(int(GROUP_LIMIT.read_text()))
    except (OSError, ValueError):  # no such group, or no limit
        pass
    return min(limits)


def _divided(places: Places, size: int) -> Iterator[Places]:
    """The same bytes, so many at a time; the last time there may be fewer."""
    lengths = (places[:, 1] - places[:, 0])[:, None]
    before = np.cumsum(lengths)[:, None] - lengths
    for begin in range(0, int(lengths.sum()), size):
        inside = np.clip(np.array([[begin, begin + size]]) - before, 0, lengths)
        some = inside[:, 0] < inside[:, 1]
        yield places[some, :1] + inside[some]


def _cut(path: Path, place: int) -> ValueError:
    return ValueError(f"{path} ends at byte {place}: cut since it was opened.")
