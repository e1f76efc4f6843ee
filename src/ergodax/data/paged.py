"""A source that reads random pages of a file format."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jaxtyping import Int64, PyTree, UInt32

from ergodax.checks import whole_number
from ergodax.data.memory import room
from ergodax.data.pages import MOST_PAGES, Pages, equal_pages
from ergodax.data.reader import Ranges, Reader, check_finite, delivered
from ergodax.data.source import Source, found_in_a_scan, row_bytes, stacked

BLOCK_BYTES = 2**25
PAGE_BYTES = 2**17


class Paged(Source):
    """Random pages of contiguous rows; see `pages` for the order.

    Args:
        reader: of the files.
        block_rows: rows of a block; None for 32 MiB, or all rows where they take no more.
        page_rows: contiguous rows that are read together; None for 128 KiB, or what the format
            keeps together if that is more.
        passes: how often the rows of a block are used before the next block.
        dtype: in which the likelihood sees the rows, a tree like them or one for all; None for
            as they are stored.

    Raises:
        TypeError: a number that must be an integer and is not, or an unknown dtype.
        ValueError: a number out of range, or a dtype for an array that is not there.
    """

    def __init__(
        self,
        reader: Reader,
        *,
        block_rows: Any = None,
        page_rows: Any = None,
        passes: Any = 1,
        dtype: Any = None,
    ) -> None:
        self.reader, self.num_rows, self.row = reader, reader.num_rows, reader.row
        size = row_bytes(reader.row)
        if block_rows is None:
            block_rows = min(self.num_rows, max(1, BLOCK_BYTES // size))
        self.block_rows = checked_count(block_rows, "block_rows", self.num_rows)
        self.passes = checked_count(passes, "passes", 2**20)
        self.example = as_dtype(reader.row, dtype)
        self.page_rows = self._page_rows(page_rows, size)
        lengths = reader.pages
        if lengths is None:
            lengths = equal_pages(self.num_rows, self.page_rows)
        self.pages = Pages(lengths, self.block_rows)
        self._identity = self._identified()

    def read(self, order: UInt32[np.ndarray, " 2"], number: int) -> PyTree:
        """Block `number`: random pages, their rows in the order of the data.

        Args:
            order: the chain's words.
            number: counts the chain's blocks from 0.
        """
        return self._read(self.pages.ranges(order, number))

    def read_into(self, order: UInt32[np.ndarray, " 2"], number: int, out: PyTree) -> None:
        """The same, into arrays that are there.

        Args:
            order: the chain's words.
            number: of the block.
            out: a tree of arrays like `block`.
        """
        self._fill(self.pages.ranges(order, number), out)

    def scan(self, rows: int) -> Iterator[PyTree]:
        """All rows once, in their own order.

        Args:
            rows: how many at a time; the last time there may be fewer.
        """
        for begin in range(0, self.num_rows, rows):
            yield self._read(np.array([[begin, min(begin + rows, self.num_rows)]], np.int64))

    def rows_at(self, wanted: Int64[np.ndarray, " k"]) -> PyTree:
        """The rows with these numbers; from chunks, which are decoded whole, by a pass."""
        if self.reader.grain > 1:
            return found_in_a_scan(self, wanted)
        return self._read(np.stack([wanted, wanted + 1], axis=1))

    def facts(self) -> dict[str, Any]:
        """The reader's, and how the rows are divided."""
        numbers = {name: getattr(self, name) for name in ("num_rows", "block_rows", "passes")}
        return {**self.reader.facts(), **numbers, "page_rows": self.page_rows}

    def __eq__(self, other: Any) -> bool:
        """Whether the other reads the same blocks of the same files."""
        return type(other) is Paged and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def _identified(self) -> tuple:
        leaves, structure = jax.tree.flatten((self.row, self.example))
        shapes = tuple((x.shape, np.dtype(x.dtype).name) for x in leaves)
        numbers = (self.block_rows, self.page_rows, self.passes)
        return self.reader.identity(), structure, shapes, numbers

    def _page_rows(self, page_rows: Any, size: int) -> int:
        reader = self.reader
        if reader.pages is not None:
            if page_rows is not None:
                raise ValueError(
                    f"page_rows={page_rows!r} can't be chosen: a page is what the file keeps "
                    "together, up to "
                    f"{int(reader.pages.max())} rows. Leave it out, or see ex.data.shuffle."
                )
            return int(reader.pages.max())
        if page_rows is None:
            least = max(1, PAGE_BYTES // size, self.num_rows // MOST_PAGES + 1)
            page_rows = min(self.num_rows, -(-least // reader.grain) * reader.grain)
        return checked_count(page_rows, "page_rows", self.num_rows)

    def _read(self, ranges: Ranges) -> PyTree:
        rows = int((ranges[:, 1] - ranges[:, 0]).sum())
        out = room(stacked(self.row, rows))
        self._fill(ranges, out)
        return out

    def _fill(self, ranges: Ranges, out: PyTree) -> None:
        self.reader.read(ranges, out)
        jax.tree.map(lambda x, name: check_finite(x, ranges, name), out, self.reader.names)


def checked_count(value: Any, name: str, most: int) -> int:
    """An integer in [1, most].

    Args:
        value: what was given.
        name: of the argument.
        most: the largest.

    Raises:
        TypeError: not an integer.
        ValueError: out of range.
    """
    return whole_number(name, value, below=most + 1)


def as_dtype(row: PyTree, dtype: Any) -> PyTree:
    """The shapes of a row with other dtypes.

    Args:
        row: a tree of `jax.ShapeDtypeStruct`.
        dtype: one for all, or a tree like `row`; None leaves an array as it is.

    Raises:
        TypeError: not a dtype of numbers.
        ValueError: a tree that is not like `row`.
    """
    if dtype is None:
        return row
    nested = isinstance(dtype, tuple | list | dict)
    is_none = lambda x: x is None  # noqa: E731
    if nested and jax.tree.structure(dtype, is_leaf=is_none) != jax.tree.structure(row):
        raise ValueError(f"dtype must be one dtype or a tree like the data, not {dtype!r}.")
    wanted = dtype if nested else jax.tree.map(lambda x: dtype, row)

    def one(wanted: Any, x: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        if wanted is None:
            return x
        try:
            kind = delivered(np.dtype(wanted), "dtype")
        except TypeError as error:
            raise TypeError(f"dtype must be a dtype such as 'float32', not {wanted!r}.") from error
        return jax.ShapeDtypeStruct(x.shape, kind)

    return jax.tree.map(one, wanted, row, is_leaf=is_none)
