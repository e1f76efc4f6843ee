"""Rows on disk that can be read from any place: the contract of a file format."""

import abc
from typing import Any

import jax
import numpy as np
from jaxtyping import Int64, PyTree

Ranges = Int64[np.ndarray, "_ 2"]


class Reader(abc.ABC):
    """Reads ranges of rows, from any thread.

    Attributes:
        num_rows: N.
        row: a tree of `jax.ShapeDtypeStruct`, the shape and dtype of one row as it is delivered.
        grain: rows that the format keeps together (a chunk), so that a part costs as much as all.
        pages: rows of each page where the format fixes them (row groups), otherwise None.
        names: a tree like `row`, what to call each array in an error.
    """

    num_rows: int
    row: PyTree
    grain: int
    pages: Int64[np.ndarray, " pages"] | None
    names: PyTree

    @abc.abstractmethod
    def read(self, ranges: Ranges, out: PyTree) -> None:
        """Put the rows of these ranges one after another into `out`.

        Args:
            ranges: first row, and the row after the last, of each.
            out: a tree of arrays like `row`, with a leading axis as long as all ranges together.
        """

    @abc.abstractmethod
    def identity(self) -> tuple:
        """Which files these are: equal for readers that read the same, hashable."""

    @abc.abstractmethod
    def facts(self) -> dict[str, Any]:
        """What identifies the data wherever they are kept: JSON values by name."""


def delivered(dtype: np.dtype, name: str) -> np.dtype:
    """The dtype in which numbers of this one reach the device.

    Args:
        dtype: as stored.
        name: of the array, for errors.

    Raises:
        TypeError: not numbers, or objects, which only running code from the file would read.
    """
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
    return np.dtype(jax.dtypes.canonicalize_dtype(dtype.newbyteorder("=")))


def put(out: np.ndarray, values: np.ndarray, name: str) -> None:
    """Copy numbers into an array of another dtype.

    Args:
        out: where.
        values: what.
        name: of the array, for errors.

    Raises:
        ValueError: integers that do not fit.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        out[...] = values
    if values.dtype.kind in "iu" and not np.can_cast(values.dtype, out.dtype):
        if out.dtype.kind in "iu" and not np.array_equal(out, values):
            raise ValueError(
                f"{name} has integers too large for {out.dtype}. Turn double precision on: "
                "jax.config.update('jax_enable_x64', True)."
            )


def check_finite(array: np.ndarray, rows: Ranges, name: str) -> None:
    """Refuse NaN and infinity.

    Args:
        array: rows as they were read.
        rows: the ranges that they are from.
        name: of the array.

    Raises:
        ValueError: there is one; says in which row.
    """
    if array.dtype.kind not in "fc":
        return
    with np.errstate(over="ignore", invalid="ignore"):
        # A sum of finite numbers may overflow, so only a finite sum says something.
        if np.isfinite(np.sum(array, dtype=None if array.itemsize > 2 else np.float32)):
            return
    bad = np.flatnonzero(~np.isfinite(array).reshape(len(array), -1).all(axis=1))
    if bad.size:
        lengths = rows[:, 1] - rows[:, 0]
        k = int(np.searchsorted(np.cumsum(lengths), bad[0], side="right"))
        row = int(rows[k, 0] + bad[0] - lengths[:k].sum())
        raise ValueError(
            f"{name} has a value that is NaN or infinite (or too large for {array.dtype}) in row "
            f"{row}. Drop or impute such rows."
        )


def check_rows(counts: dict[str, int]) -> int:
    """N, which all arrays must share.

    Args:
        counts: rows by name.

    Raises:
        ValueError: they differ, or there are none.
    """
    if len(set(counts.values())) > 1:
        sizes = ", ".join(f"{name} has {n}" for name, n in counts.items())
        raise ValueError(
            f"data must have one leading axis in common, the examples, but {sizes} rows. Check "
            "for a truncated or transposed file."
        )
    name, rows = next(iter(counts.items()))
    if rows == 0:
        raise ValueError(f"{name} is empty: there is nothing to learn from.")
    return rows
