"""Random pages of contiguous rows, cut into blocks.

In epoch e the pages of a chain are laid end to end in a random order, as a circle of N rows; from
a random place on the circle is cut into N // b blocks of b rows. Every row is in one block of an
epoch but for the last N mod b rows of the circle, and each row is as likely as any other to be
one of those: pages may have any lengths. Where all pages have p rows and p divides b, the circle
is cut between pages, so that a block is a simple random sample of pages.
"""

import abc
import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Int64, PyTree

from ergodax.checks import whole_number
from ergodax.data.source import (
    Order,
    Ranges,
    Source,
    check_values,
    found_in_a_scan,
    room,
    row_bytes,
    stacked,
)

MOST_PAGES = 2**24
CACHED = 2**22  # pages of all orders that are kept
PAGE_BYTES = 2**17


class Reader(abc.ABC):
    """The contract of a file format: ranges of rows are read, from any thread."""

    num_rows: int  # N
    row: PyTree  # of `jax.ShapeDtypeStruct`, the shape and dtype of one row as it is delivered
    grain: int  # rows that the format keeps together (a chunk): a part costs as much as all
    pages: Int64[np.ndarray, " pages"] | None  # rows of each where the format fixes them
    names: PyTree  # like `row`, what to call each array in an error

    @abc.abstractmethod
    def read(self, ranges: Ranges, out: PyTree) -> None:
        """Put the rows of these ranges one after another into `out`, a tree of arrays."""

    @abc.abstractmethod
    def identity(self) -> tuple:
        """Which files these are: equal for readers that read the same, hashable."""

    @abc.abstractmethod
    def facts(self) -> dict[str, Any]:
        """What identifies the data wherever they are kept: JSON values by name."""


class Pages:
    """The division of N rows into pages.

    Args:
        lengths: rows of each page, in the order of the data.
        block_rows: b.

    Raises:
        ValueError: too many pages.
    """

    def __init__(self, lengths: Int64[np.ndarray, " pages"], block_rows: int) -> None:
        if len(lengths) > MOST_PAGES:
            raise ValueError(
                f"page_rows divides the data into {len(lengths)} pages, more than {MOST_PAGES}. "
                "Try larger pages."
            )
        self.lengths, self.block_rows = lengths, block_rows
        self.num_rows = int(lengths.sum())
        self.begins = np.cumsum(lengths) - lengths
        self.aligned = bool((lengths == lengths[0]).all()) and block_rows % int(lengths[0]) == 0
        keep = max(2, CACHED // len(lengths))
        self.circle = functools.lru_cache(maxsize=keep)(self._circle)

    def ranges(self, order: Order, number: int) -> Ranges:
        """The rows of block `number`, in the order of the data."""
        epoch, k = divmod(number, self.num_rows // self.block_rows)
        low, high = (int(word) for word in order)
        pages, ends, start = self.circle(low | high << 32, epoch)
        begin = (start + k * self.block_rows) % self.num_rows
        end = begin + self.block_rows
        spans = [self._span(pages, ends, begin, min(end, self.num_rows))]
        if end > self.num_rows:
            spans.append(self._span(pages, ends, 0, end - self.num_rows))
        return _merged(np.concatenate(spans))

    def _circle(self, seed: int, epoch: int) -> tuple[np.ndarray, np.ndarray, int]:
        """The pages in their order, where each ends, and the place where the first block begins."""
        bits = np.random.Philox(key=np.array([seed, epoch], np.uint64))
        pages = np.argsort(bits.random_raw(len(self.lengths)), kind="stable").astype(np.uint32)
        start = 0 if self.aligned else int(bits.random_raw() % self.num_rows)
        return pages, np.cumsum(self.lengths[pages]), start

    def _span(self, pages: np.ndarray, ends: np.ndarray, begin: int, end: int) -> Ranges:
        """The rows at the places [begin, end) of the circle."""
        first, last = np.searchsorted(ends, [begin, end - 1], side="right")
        these = pages[first : last + 1]
        ranges = self.begins[these][:, None] + np.array([0, 1]) * self.lengths[these][:, None]
        ranges[-1, 1] -= ends[last] - end
        ranges[0, 0] += begin - (ends[first] - self.lengths[these[0]])
        return ranges


def stamp(path: Path) -> tuple[int, int, int]:
    """What the file system tells one content of a file from another by."""
    found = os.stat(path)
    return found.st_ino, found.st_size, found.st_mtime_ns


class AsOpened:
    """A file as it was when this was made; also a context in which it is read.

    Whether it still is so is looked for at the end: a change while it is read is seen, and what its
    decoder says of another file is not passed on.

    Args:
        path: of the file.

    Attributes:
        identity: what tells it from other files and from itself with another content.

    Raises:
        ValueError: at the end of the context, it is not as it was.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.stamp = path, stamp(path)

    @property
    def identity(self) -> tuple:
        """Its place and its stamp."""
        return str(self.path.resolve()), self.stamp

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if (error is None or isinstance(error, Exception)) and stamp(self.path) != self.stamp:
            raise ValueError(
                f"{self.path} has been written anew or cut since it was opened, so its rows may be "
                "others. Open the data again, and begin anew with them."
            ) from error


def _merged(ranges: Ranges) -> Ranges:
    """In increasing order, with ranges that meet made one."""
    ranges = ranges[np.argsort(ranges[:, 0])]
    starts = np.concatenate([[True], ranges[1:, 0] != ranges[:-1, 1]])
    return np.stack([ranges[starts, 0], ranges[np.append(starts[1:], True), 1]], axis=1)


def equal_pages(num_rows: int, page_rows: int) -> Int64[np.ndarray, " pages"]:
    """Pages of `page_rows` rows; the last may be shorter."""
    whole, rest = divmod(num_rows, page_rows)
    lengths = np.full(whole + (rest > 0), page_rows, np.int64)
    if rest:
        lengths[-1] = rest
    return lengths


class Paged(Source):
    """A source that reads random pages of a file format.

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
        self._options(", ".join(jax.tree.leaves(reader.names)), block_rows, passes, dtype)
        named = jax.tree.leaves(self.example), jax.tree.leaves(reader.names)
        self._checked = list(zip(*named, strict=True))
        self.page_rows = self._page_rows(page_rows)
        lengths = reader.pages
        if lengths is None:
            lengths = equal_pages(self.num_rows, self.page_rows)
        self.pages = Pages(lengths, self.block_rows)
        self._identity = self._identified()

    def read_into(self, order: Order, number: int, out: PyTree) -> None:
        """Read random pages, their rows in the order of the data."""
        self._fill(self.pages.ranges(order, number), out)

    def scan(self, rows: int) -> Iterator[PyTree]:
        """All rows once, in their own order."""
        for begin in range(0, self.num_rows, rows):
            yield self._read(np.array([[begin, min(begin + rows, self.num_rows)]], np.int64))

    def rows_at(self, wanted: Int64[np.ndarray, " k"]) -> PyTree:
        """The rows with these numbers; from chunks, which are decoded whole, by a pass."""
        if self.reader.grain > 1:
            return found_in_a_scan(self, wanted)
        return self._read(np.stack([wanted, wanted + 1], axis=1))

    def facts(self) -> dict[str, Any]:
        """The reader's, and how the rows are divided."""
        return {**self.reader.facts(), **self._numbers(), "page_rows": self.page_rows}

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

    def _page_rows(self, page_rows: Any) -> int:
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
            least = max(1, PAGE_BYTES // row_bytes(self.row), self.num_rows // MOST_PAGES + 1)
            page_rows = min(self.num_rows, -(-least // reader.grain) * reader.grain)
        return whole_number("page_rows", page_rows, below=self.num_rows + 1)

    def _read(self, ranges: Ranges) -> PyTree:
        rows = int((ranges[:, 1] - ranges[:, 0]).sum())
        out = room(stacked(self.row, rows))
        self._fill(ranges, out)
        return out

    def _fill(self, ranges: Ranges, out: PyTree) -> None:
        self.reader.read(ranges, out)
        for array, (like, name) in zip(jax.tree.leaves(out), self._checked, strict=True):
            check_values(array, like, ranges, name)
