"""Data that stay where they are: the contract of a source, which is read in blocks.

A block is a set of rows, large enough that reading it costs little a row and small enough for the
memory of the device. Which rows are in block k of a chain follows from the chain's order and k
alone, so that a run can be repeated and resumed.
"""

import abc
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jaxtyping import Int64, PyTree, UInt32

from ergodax.checks import leaves, whole_number

BLOCK_BYTES = 2**25
ALIGNMENT = 64  # bytes: JAX on a CPU uses an array that begins at a multiple of it where it lies
Ranges = Int64[np.ndarray, "_ 2"]  # of rows: the first, and the one after the last
Order = UInt32[np.ndarray, " 2"]  # random words, drawn once for each chain


class Source(abc.ABC):
    """Rows on disk, or wherever; the host reads blocks of them while the device samples.

    A source has no arrays: in a tree it is part of the structure, and of what a compiled program
    is made for. Sources that are equal share their programs; unless a class says otherwise, a
    source equals itself alone.

    Attributes:
        num_rows: N, the rows of the whole data.
        block_rows: rows of a block.
        passes: how often the rows of a block are used before the next block.
        row: a tree of `jax.ShapeDtypeStruct`, the shape and dtype of one row in a block.
        example: the same, as a likelihood sees it: a batch is cast on the device.
    """

    num_rows: int
    block_rows: int
    passes: int
    row: PyTree
    example: PyTree

    def __init_subclass__(cls, **options: Any) -> None:
        """Make a source a node without leaves, for JAX."""
        super().__init_subclass__(**options)
        jax.tree_util.register_static(cls)

    @abc.abstractmethod
    def read_into(self, order: Order, number: int, out: PyTree) -> None:
        """Read block `number` of the chain with this order, counted from 0, into arrays.

        Args:
            order: of the chain.
            number: of the block.
            out: a tree of arrays like `block`.
        """

    def read(self, order: Order, number: int) -> PyTree:
        """The same, in new arrays."""
        out = room(self.block)
        self.read_into(order, number, out)
        return out

    @abc.abstractmethod
    def scan(self, rows: int) -> Iterator[PyTree]:
        """All rows once, in their own order, so many at a time; the last time perhaps fewer."""

    @abc.abstractmethod
    def rows_at(self, wanted: Int64[np.ndarray, " k"]) -> PyTree:
        """The rows with these numbers, which are distinct and in increasing order."""

    @abc.abstractmethod
    def facts(self) -> dict[str, Any]:
        """What identifies the data, for the check before a run is resumed: JSON values by name."""

    def _options(self, name: str, block_rows: Any, passes: Any, dtype: Any) -> None:
        """Check what a user chooses of a source, once `num_rows` and `row` are known."""
        if row_bytes(self.row) == 0:
            shapes = [list(x.shape) for x in jax.tree.leaves(self.row)]
            raise ValueError(
                f"{name} has rows without numbers, of shapes {shapes}. Check which columns were "
                "written or selected."
            )
        if block_rows is None:
            block_rows = min(self.num_rows, max(1, BLOCK_BYTES // row_bytes(self.row)))
        self.block_rows = whole_number("block_rows", block_rows, below=self.num_rows + 1)
        self.passes = whole_number("passes", passes, below=2**20 + 1)
        self.example = _as_dtype(self.row, dtype)

    def _numbers(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in ("num_rows", "block_rows", "passes")}

    @property
    def block(self) -> PyTree:
        """A tree of `jax.ShapeDtypeStruct`, the shapes and dtypes of one block."""
        return stacked(self.row, self.block_rows)

    @property
    def nbytes(self) -> int:
        """Bytes of one block."""
        return self.block_rows * row_bytes(self.row)

    def as_seen(self, batch: PyTree) -> PyTree:
        """Rows of a block in the dtypes of `example`."""
        return jax.tree.map(lambda x, like: x.astype(like.dtype), batch, self.example)

    def subset(self, rows: int, *, seed: int = 0) -> PyTree:
        """Some rows as arrays in memory, for a start, a mode or a scale.

        They are distinct, each row as likely as any other, and in the order of the data.

        Args:
            rows: how many.
            seed: which.

        Returns:
            A tree of NumPy arrays like `example`.

        Raises:
            ValueError: fewer than 1, or more than there are.
        """
        rows = whole_number("rows", rows, at_least=0, below=None)
        if not 1 <= rows <= self.num_rows:
            raise ValueError(f"rows must lie in [1, {self.num_rows}], not {rows}.")
        seed = whole_number("seed", seed, at_least=0, below=None)
        wanted = np.random.default_rng(seed).choice(self.num_rows, rows, replace=False)
        return self.as_seen(self.rows_at(np.sort(wanted)))


def found_in_a_scan(source: Source, wanted: Int64[np.ndarray, " k"]) -> PyTree:
    """The rows with these numbers, in increasing order, met on a pass up to the last of them."""
    found, begin = [], 0
    for some in source.scan(source.block_rows):
        end = begin + len(jax.tree.leaves(some)[0])
        inside = wanted[(wanted >= begin) & (wanted < end)] - begin
        found.append(jax.tree.map(lambda x, k=inside: x[k], some))
        begin = end
        if begin > wanted[-1]:
            break
    return jax.tree.map(lambda *parts: np.concatenate(parts), *found)


def stacked(row: PyTree, rows: int) -> PyTree:
    """The shapes and dtypes of so many rows."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct((rows, *x.shape), x.dtype), row)


def row_bytes(row: PyTree) -> int:
    """Bytes of one row."""
    leaves = jax.tree.leaves(row)
    return sum(int(np.prod(x.shape)) * np.dtype(x.dtype).itemsize for x in leaves)


def room(shapes: PyTree) -> PyTree:
    """New arrays of these shapes, which JAX need not copy where the device is a CPU."""

    def one(like: jax.ShapeDtypeStruct) -> np.ndarray:
        size = int(np.prod(like.shape, dtype=np.int64)) * np.dtype(like.dtype).itemsize
        memory = np.empty(size + ALIGNMENT, np.uint8)
        begin = -memory.ctypes.data % ALIGNMENT
        return memory[begin : begin + size].view(like.dtype).reshape(like.shape)

    return jax.tree.map(one, shapes)


def _as_dtype(row: PyTree, dtype: Any) -> PyTree:
    """The shapes of a row with other dtypes, one for all or a tree like it; None leaves one be."""
    if dtype is None:
        return row
    nested = isinstance(dtype, tuple | list | dict)
    is_none = lambda x: x is None  # noqa: E731
    if nested:
        leaves("dtype", dtype)
    if nested and jax.tree.structure(dtype, is_leaf=is_none) != jax.tree.structure(row):
        raise ValueError(f"dtype must be one dtype or a tree like the data, not {dtype!r}.")
    found, structure = jax.tree.flatten(row)
    wanted = jax.tree.leaves(dtype, is_leaf=is_none) if nested else [dtype] * len(found)

    def one(wanted: Any, x: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        if wanted is None:
            return x
        try:
            kind = delivered(np.dtype(wanted), "dtype")
        except (TypeError, ValueError) as error:
            raise TypeError(f"dtype must be a dtype such as 'float32', not {wanted!r}.") from error
        if x.dtype.kind == "c" and kind.kind != "c":
            raise TypeError(f"dtype={wanted!r} has no imaginary part, and the data have.")
        return jax.ShapeDtypeStruct(x.shape, kind)

    return structure.unflatten([one(*pair) for pair in zip(wanted, found, strict=True)])


def delivered(dtype: np.dtype, name: str) -> np.dtype:
    """The dtype in which an array's numbers reach the device. Raises: TypeError for others."""
    if dtype.hasobject:
        raise TypeError(
            f"{name} holds pickled Python objects, and unpickling runs code. Save numbers instead."
        )
    if dtype.names is not None:
        raise TypeError(
            f"{name} has the structured dtype {dtype}. Save each field as a file of its own."
        )
    if dtype.kind not in "biufc":
        raise TypeError(f"{name} has dtype {dtype}; data must be numbers.")
    if dtype.char in "gG":  # long double
        raise TypeError(
            f"{name} has dtype {dtype}, which no device has. Save it anew: "
            f"array.astype({'float64' if dtype.kind == 'f' else 'complex128'!r})."
        )
    return np.dtype(jax.dtypes.canonicalize_dtype(dtype.newbyteorder("=")))


def put(out: np.ndarray, values: np.ndarray, name: str) -> None:
    """Copy numbers of array `name` into one of another dtype. Raises: ValueError."""
    with np.errstate(over="ignore", invalid="ignore"):
        out[...] = values
    if values.dtype.kind in "iu" and not np.can_cast(values.dtype, out.dtype):
        if out.dtype.kind in "iu":
            check_integers(values, name, out.dtype)


def check_integers(array: np.ndarray, name: str, dtype: np.dtype | None = None) -> None:
    """Refuse integers that wrap around in a dtype, by default JAX's. Raises: ValueError."""
    if array.dtype.kind not in "iu" or not array.size:
        return
    kept = np.iinfo(jax.dtypes.canonicalize_dtype(array.dtype) if dtype is None else dtype)
    least, most = int(array.min()), int(array.max())
    if least < kept.min or most > kept.max:
        worst = most if most > kept.max else least
        raise ValueError(
            f"{name} has integers too large for {kept.dtype}, such as {worst}. Take an offset or "
            "a scale off them, or turn double precision on: "
            "jax.config.update('jax_enable_x64', True)."
        )


def check_values(array: np.ndarray, like: Any, rows: Ranges, name: str) -> None:
    """Refuse what is not finite, or does not fit the dtype of `like`. Raises: ValueError."""
    check_finite(array, rows, name)
    if array.dtype == like.dtype or not array.size:
        return
    kind, wanted = array.dtype.kind, np.dtype(like.dtype)
    wide = kind in "iu" and wanted.kind in "fc" and wanted.itemsize > 2
    if wide or np.can_cast(array.dtype, wanted):
        return
    if kind in "iu" or (kind == "f" and wanted.kind in "fc"):  # the two ends tell of all
        if not _lost(np.array([array.min(), array.max()]), wanted).any():
            return
    if (bad := np.argwhere(_lost(array, wanted))).size:
        place, row = tuple(bad[0].tolist()), _row_at(rows, int(bad[0, 0]))
        inside = f", place {list(place[1:])}," if len(place) > 1 else ""
        raise ValueError(
            f"{name} has the value {array[place]!s} in row {row}{inside} which "
            f"dtype={wanted.name!r} can't hold. Choose a dtype that can, or None for as stored."
        )


def _lost(values: np.ndarray, wanted: np.dtype) -> np.ndarray:
    """Which numbers are others in this dtype, beyond rounding to fewer digits."""
    with np.errstate(all="ignore"):
        there = values.astype(wanted)
        if wanted.kind in "fc":
            return np.isinf(there)
        low, high = (0, 1) if wanted.kind == "b" else (np.iinfo(wanted).min, np.iinfo(wanted).max)
        # What is out of range may come back as itself: -1 by way of uint32, or a float that is
        # put at the bound.
        return (there.astype(values.dtype) != values) | (values < low) | (values >= high + 1)


def _row_at(rows: Ranges, place: int) -> int:
    """The number of the row at this place of those of the ranges."""
    lengths = rows[:, 1] - rows[:, 0]
    k = int(np.searchsorted(np.cumsum(lengths), place, side="right"))
    return int(rows[k, 0] + place - lengths[:k].sum())


def check_finite(array: np.ndarray, rows: Ranges, name: str) -> None:
    """Refuse NaN and infinity in the rows of these ranges. Raises: ValueError."""
    if array.dtype.kind not in "fc":
        return
    with np.errstate(over="ignore", invalid="ignore"):
        # A sum of finite numbers may overflow, so only a finite sum says something.
        if np.isfinite(np.sum(array, dtype=None if array.itemsize > 2 else np.float32)):
            return
    bad = np.flatnonzero(~np.isfinite(array).reshape(len(array), -1).all(axis=1))
    if bad.size:
        raise ValueError(
            f"{name} has a value that is NaN or infinite (or too large for {array.dtype}) in row "
            f"{_row_at(rows, int(bad[0]))}. Drop or impute such rows."
        )


def check_rows(counts: dict[str, int]) -> int:
    """N, from the rows of all arrays by name, which must share it. Raises: ValueError."""
    if len(set(counts.values())) > 1:
        sizes = ", ".join(f"{name} has {n}" for name, n in counts.items())
        raise ValueError(
            f"data must have one leading axis in common, the examples, but {sizes} rows. Check "
            "for a truncated or transposed array or file."
        )
    for name, rows in counts.items():
        if rows == 0:
            raise ValueError(
                f"{name} is empty: it has 0 rows. Check the selection or the file it comes from."
            )
    return next(iter(counts.values()), 0)
