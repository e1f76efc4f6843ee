"""Data in .npy files, one for each array or a folder of shards.

They are read through the operating system's cache of files or past it. Data that are much larger
than memory are never found in the cache, and to put them there costs more time than the disk needs.
So they are read past it, which wants aligned memory in large pages, and several requests at a time.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Int64, PyTree, UInt8

from ergodax.checks import leaves
from ergodax.data import digests
from ergodax.data.paged import AsOpened, Paged, Reader
from ergodax.data.source import Ranges, check_rows, delivered, put

Places = Int64[np.ndarray, "_ 2"]
Bytes = UInt8[np.ndarray, " _"]

ALIGNMENT = 2**12  # bytes, of places in a file and in memory, for reading past the cache
LARGE_PAGE = 2**21
REQUEST = 2**19  # bytes read at a time
SHARE = 2**21  # bytes that a thread reads before it takes up others
THREADS = 8  # that read past the cache
GROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def npy(
    *paths: Any,
    block_rows: Any = None,
    page_rows: Any = None,
    passes: Any = 1,
    dtype: Any = None,
) -> Paged:
    """Data in .npy files, read in blocks while a chain runs.

    Files of an array that are larger than half of the memory are read past the operating system's
    cache of files, where it can be done.

    Args:
        paths: the files, as many as there are arrays, or one tree of them; their structure is
            that of the data. A folder is one array whose shards are its .npy files in the order
            of their names.
        block_rows: rows of a block, in memory twice for each chain, three times for one alone;
            32 MiB of them by default, or all rows where they take no more.
        page_rows: contiguous rows that are read together; by default 128 KiB of them. Where the
            rows are not in random order, fewer mean less noise and slower reading.
        passes: how often each row of a block is used before the next block. More need less
            reading, and are noisier in the long run.
        dtype: what a batch is cast to on the device, one for all arrays or a tree like `paths`
            with None for as stored. Small integers are read and kept as such.

    Returns:
        A source: the `data` of ex.Posterior.

    Raises:
        FileNotFoundError: no such file.
        TypeError: a file of something other than numbers, or an argument of the wrong type.
        ValueError: a file that is not .npy, is damaged, or in Fortran's order; files that differ
            in their number of rows; a number out of range; when read, NaN or infinity.

    Example:
        >>> import ergodax as ex, numpy as np, tempfile, pathlib
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> np.save(folder / "x.npy", np.ones((1_000, 3), np.float32))
        >>> ex.data.npy(folder / "x.npy").num_rows
        1000
    """
    if not paths:
        raise ValueError("paths is empty: pass at least one file, such as 'X.npy'.")
    tree = paths[0] if len(paths) == 1 else paths
    for path in leaves("paths", tree):
        if not isinstance(path, str | os.PathLike):
            raise TypeError(f"paths must be names of files or a tree of them, not {path!r}.")
    reader = _NpyReader(jax.tree.map(Path, tree))
    return Paged(reader, block_rows=block_rows, page_rows=page_rows, passes=passes, dtype=dtype)


class Shard(NamedTuple):
    """One file: where its numbers begin, how many rows, and of what."""

    path: Path
    opened: AsOpened
    offset: int
    rows: int
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


class _NpyReader(Reader):
    """Reads a tree of .npy files, or folders of them."""

    grain, pages = 1, None

    def __init__(self, paths: PyTree) -> None:
        leaves, structure = jax.tree.flatten(paths)
        self.arrays = [_shards(path) for path in leaves]
        self.files = [shard.path for shards in self.arrays for shard in shards]
        self.ways = [way_to_read([shard.path for shard in shards]) for shards in self.arrays]
        counts = {str(p): sum(s.rows for s in a) for p, a in zip(leaves, self.arrays, strict=True)}
        self.num_rows = check_rows(counts)
        firsts = [shards[0] for shards in self.arrays]
        shapes = [jax.ShapeDtypeStruct(s.shape, delivered(s.dtype, str(s.path))) for s in firsts]
        self.row = structure.unflatten(shapes)
        self.names = structure.unflatten([str(path) for path in leaves])

    def read(self, ranges: Ranges, out: PyTree) -> None:
        """Read straight into `out`, without a copy where the dtype is that of the file."""
        for shards, way, array in zip(self.arrays, self.ways, jax.tree.leaves(out), strict=True):
            _read_array(shards, way, ranges, array)

    def identity(self) -> tuple:
        """Paths, and what the file system said of them."""
        shards = [shard for array in self.arrays for shard in array]
        return tuple(shard.opened.identity for shard in shards)

    def facts(self) -> dict[str, Any]:
        """Names, sizes and digests of the files."""
        return {"format": "npy", "files": digests.of_files(self.files)}


def _shards(path: Path) -> list[Shard]:
    files = sorted(path.glob("*.npy")) if path.is_dir() else [path]
    if not files:
        raise ValueError(f"the folder {path} has no .npy files.")
    shards = [_header(file) for file in files]
    for shard in shards:
        if (shard.shape, shard.dtype) != (shards[0].shape, shards[0].dtype):
            raise ValueError(
                f"the shards of an array must agree, but a row of {shard.path} is "
                f"{shard.dtype}{list(shard.shape)} and of {shards[0].path} "
                f"{shards[0].dtype}{list(shards[0].shape)}."
            )
    return shards


def _header(path: Path) -> Shard:
    opened = AsOpened(path)
    with open(path, "rb") as file:
        try:
            version = np.lib.format.read_magic(file)
            read = {
                (1, 0): np.lib.format.read_array_header_1_0,
                (2, 0): np.lib.format.read_array_header_2_0,
            }[version]
            shape, fortran, dtype = read(file)
        # The header is a Python literal: a damaged one can fail in any stage of a parser.
        except Exception as error:
            raise ValueError(f"{path} is not a .npy file that can be read: {error}") from error
        offset = file.tell()
    delivered(dtype, str(path))
    if len(shape) == 0:
        raise ValueError(f"{path} is a single number; it needs a leading axis of examples.")
    if fortran and len(shape) > 1:
        raise ValueError(
            f"{path} is in Fortran's order, column after column, so that a row lies scattered. "
            "Write it anew in rows: np.save(new, np.ascontiguousarray(np.load(old))), or, where "
            "that takes too much memory, column by column into np.lib.format.open_memmap(new)."
        )
    shard = Shard(path, opened, offset, shape[0], tuple(shape[1:]), dtype)
    if (size := opened.stamp[1]) < offset + shard.rows * shard.row_bytes:
        raise ValueError(
            f"{path} is truncated: its header promises {shard.rows} rows of {shard.row_bytes} "
            f"bytes, and the file has {size} bytes."
        )
    return shard


def _read_array(
    shards: list[Shard], way: "Cached | PastTheCache", ranges: Ranges, out: np.ndarray
) -> None:
    """The rows of these ranges, from whichever shards they are in."""
    ends = np.cumsum([shard.rows for shard in shards])
    done = 0
    for k in range(int(np.searchsorted(ends, ranges[0, 0], side="right")), len(shards)):
        shard, first = shards[k], int(ends[k]) - shards[k].rows
        inside = np.clip(ranges, first, ends[k]) - first
        inside = inside[inside[:, 0] < inside[:, 1]]
        if not inside.size:
            continue
        rows = int((inside[:, 1] - inside[:, 0]).sum())
        part, done = out[done : done + rows], done + rows
        target = part if out.dtype == shard.dtype else np.empty(part.shape, shard.dtype)
        places = shard.offset + inside * shard.row_bytes
        with shard.opened:
            way.read(shard.path, places, target.reshape(-1).view(np.uint8))
        if target is not part:
            put(part, target, str(shard.path))


class Cached:
    """Reads through the cache."""

    def read(self, path: Path, places: Places, out: Bytes) -> None:
        """Put the bytes of these ranges of a file one after another into `out`."""
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
        """Put the bytes of these ranges of a file one after another into `out`."""
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
    """Past the cache, where these files together are larger than half of the memory."""
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
