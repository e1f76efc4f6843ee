"""Data in .npy files, one for each array or a folder of shards."""

import os
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from ergodax.data.files import way_to_read
from ergodax.data.paged import Paged
from ergodax.data.reader import Ranges, Reader, check_rows, delivered, put

ENDS = 2**16  # bytes at either end of a file that tell it from another


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
    """
    if not paths:
        raise ValueError("paths is empty: pass at least one file, such as 'X.npy'.")
    tree = paths[0] if len(paths) == 1 else paths
    for path in jax.tree.leaves(tree):
        if not isinstance(path, str | os.PathLike):
            raise TypeError(f"paths must be names of files or a tree of them, not {path!r}.")
    reader = NpyReader(jax.tree.map(Path, tree))
    return Paged(reader, block_rows=block_rows, page_rows=page_rows, passes=passes, dtype=dtype)


class Shard(NamedTuple):
    """One file: where its numbers begin, how many rows, and of what."""

    path: Path
    offset: int
    rows: int
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


class NpyReader(Reader):
    """Reads .npy files.

    Args:
        paths: a tree of files and folders.
    """

    grain, pages = 1, None

    def __init__(self, paths: PyTree) -> None:
        leaves, structure = jax.tree.flatten(paths)
        self.arrays = [_shards(path) for path in leaves]
        self.ways = [way_to_read([shard.path for shard in shards]) for shards in self.arrays]
        counts = {str(p): sum(s.rows for s in a) for p, a in zip(leaves, self.arrays, strict=True)}
        self.num_rows = check_rows(counts)
        shapes = [
            jax.ShapeDtypeStruct(a[0].shape, delivered(a[0].dtype, str(a[0].path)))
            for a in self.arrays
        ]
        self.row = structure.unflatten(shapes)
        self.names = structure.unflatten([str(path) for path in leaves])

    def read(self, ranges: Ranges, out: PyTree) -> None:
        """Read straight into `out`, without a copy where the dtype is that of the file.

        Args:
            ranges: first row, and the row after the last, of each.
            out: where.
        """
        for shards, way, array in zip(self.arrays, self.ways, jax.tree.leaves(out), strict=True):
            _read_array(shards, way, ranges, array)

    def identity(self) -> tuple:
        """Paths, and what the file system says of them."""
        stats = [(s.path.resolve(), s.path.stat()) for a in self.arrays for s in a]
        return tuple((str(path), x.st_ino, x.st_size, x.st_mtime_ns) for path, x in stats)

    def facts(self) -> dict[str, Any]:
        """Names, sizes, and checksums of the ends."""
        shards = [shard for array in self.arrays for shard in array]
        return {"format": "npy", "files": [_facts(shard.path) for shard in shards]}


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
    shard = Shard(path, offset, shape[0], tuple(shape[1:]), dtype)
    if path.stat().st_size < offset + shard.rows * shard.row_bytes:
        raise ValueError(
            f"{path} is truncated: its header promises {shard.rows} rows of {shard.row_bytes} "
            f"bytes, and the file has {path.stat().st_size} bytes."
        )
    return shard


def _read_array(shards: list[Shard], way: Any, ranges: Ranges, out: np.ndarray) -> None:
    """The rows of these ranges, from whichever shards they are in."""
    ends = np.cumsum([shard.rows for shard in shards])
    done = 0
    for k in range(int(np.searchsorted(ends, ranges[0, 0], side="right")), len(shards)):
        shard, first = shards[k], int(ends[k]) - shards[k].rows
        inside = np.clip(ranges, first, ends[k]) - first
        inside = inside[inside[:, 0] < inside[:, 1]]
        if inside.size:
            rows = int((inside[:, 1] - inside[:, 0]).sum())
            _read_shard(shard, way, inside, out[done : done + rows])
            done += rows


def _read_shard(shard: Shard, way: Any, ranges: Ranges, out: np.ndarray) -> None:
    direct = out.dtype == shard.dtype
    target = out if direct else np.empty(out.shape, shard.dtype)
    places = shard.offset + ranges * shard.row_bytes
    way.read(shard.path, places, target.reshape(-1).view(np.uint8))
    if not direct:
        put(out, target, str(shard.path))


def _facts(path: Path) -> dict[str, Any]:
    size = path.stat().st_size
    with open(path, "rb") as file:
        head = file.read(ENDS)
        file.seek(max(0, size - ENDS))
        ends = zlib.crc32(file.read(ENDS), zlib.crc32(head))
    return {"name": path.name, "bytes": size, "crc32": ends}
