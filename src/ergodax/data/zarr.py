"""Data in Zarr arrays."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from ergodax.data.paged import Paged
from ergodax.data.reader import Ranges, Reader, check_rows, delivered, put

METADATA = ("zarr.json", ".zarray")  # of an array, in the third format and the second


def zarr(
    path: Any,
    names: Any = None,
    *,
    block_rows: Any = None,
    page_rows: Any = None,
    passes: Any = 1,
    dtype: Any = None,
) -> Paged:
    """Data in a Zarr array or group, read in blocks while a chain runs.

    Args:
        path: the folder, or whatever else zarr.open takes.
        names: the arrays of the group, one name or a tree of them, such as ("X", "y"); its
            structure is that of the data. By default the array at `path`, or a dict of all
            arrays of the group.
        block_rows: rows of a block, in memory twice for each chain, three times for one alone;
            32 MiB of them by default, or all rows where they take no more.
        page_rows: contiguous rows that are read together, best a multiple of the rows of a
            chunk; by default whole chunks of 128 KiB or more.
        passes: how often each row of a block is used before the next block.
        dtype: what a batch is cast to on the device, one for all arrays or a tree like the data
            with None for as stored.

    Returns:
        A source: the `data` of ex.Posterior.

    Raises:
        FileNotFoundError: nothing at `path`.
        TypeError: an array of something other than numbers, or an argument of the wrong type.
        ValueError: no such array in the group, arrays that differ in their number of rows, a
            number out of range; when read, NaN or infinity.
    """
    reader = ZarrReader(path, names)
    return Paged(reader, block_rows=block_rows, page_rows=page_rows, passes=passes, dtype=dtype)


class ZarrReader(Reader):
    """Reads Zarr arrays.

    Args:
        path: of the array or group.
        names: a tree of names of arrays in the group, or None.

    Raises:
        ValueError: an array without a leading axis.
    """

    pages = None

    def __init__(self, path: Any, names: Any) -> None:
        tree = _opened(path, names)
        self.arrays, structure = jax.tree.flatten(tree)
        labels = [f"{path}/{array.path}".rstrip("/") for array in self.arrays]
        for array, label in zip(self.arrays, labels, strict=True):
            delivered(array.dtype, label)
            if array.ndim == 0:
                raise ValueError(f"{label} is a single number; it needs a leading axis.")
        counts = {name: a.shape[0] for name, a in zip(labels, self.arrays, strict=True)}
        self.num_rows = check_rows(counts)
        self.grain = min(self.num_rows, max((a.shards or a.chunks)[0] for a in self.arrays))
        shapes = [
            jax.ShapeDtypeStruct(a.shape[1:], delivered(a.dtype, label))
            for a, label in zip(self.arrays, labels, strict=True)
        ]
        self.row, self.names = structure.unflatten(shapes), structure.unflatten(labels)

    def read(self, ranges: Ranges, out: PyTree) -> None:
        """Read range by range; chunks are decoded by Zarr's own threads.

        Args:
            ranges: first row, and the row after the last, of each.
            out: where.
        """
        names = jax.tree.leaves(self.names)
        for array, name, whole in zip(self.arrays, names, jax.tree.leaves(out), strict=True):
            done = 0
            for begin, end in ranges.tolist():
                put(whole[done : done + end - begin], array[begin:end], name)
                done += end - begin

    def identity(self) -> tuple:
        """Of arrays in folders, where and when these were made; others are themselves alone."""
        return tuple(_identity(array) for array in self.arrays)

    def facts(self) -> dict[str, Any]:
        """Names, shapes, dtypes and chunks, and the sums of the first and last rows."""
        arrays = []
        for array in self.arrays:
            ends = [float(np.sum(rows, dtype=float)) for rows in (array[:1], array[-1:])]
            shape, chunks = list(array.shape), list(array.chunks)
            arrays.append({"name": array.path, "shape": shape, "chunks": chunks, "ends": ends})
        return {"format": "zarr", "arrays": arrays}


def _identity(array: Any) -> Any:
    root = getattr(array.store, "root", None)
    if not isinstance(root, Path):
        return id(array)
    folder = root.resolve() / array.path
    stats = [(path.name, path.stat()) for path in map(folder.joinpath, METADATA) if path.exists()]
    return str(folder), *((name, x.st_ino, x.st_size, x.st_mtime_ns) for name, x in stats)


def _opened(path: Any, names: Any) -> PyTree:
    """A tree of Zarr arrays."""
    import zarr

    if isinstance(path, str | Path) and "://" not in str(path) and not Path(path).exists():
        raise FileNotFoundError(f"there is no Zarr array or group at {path}.")
    try:
        found = zarr.open(path, mode="r")
    except (ValueError, OSError, KeyError) as error:
        raise ValueError(f"{path} is not a Zarr array or group: {error}") from error
    if isinstance(found, zarr.Array):
        if names is not None:
            raise ValueError(f"names={names!r}, but {path} is a single array. Leave names out.")
        return found
    arrays = dict(found.arrays())
    if names is None:
        if not arrays:
            raise ValueError(f"the Zarr group {path} has no arrays.")
        return arrays

    def one(name: Any) -> Any:
        if name not in arrays:
            raise ValueError(f"the Zarr group {path} has no array {name!r}, only {list(arrays)}.")
        return arrays[name]

    return jax.tree.map(one, names)
