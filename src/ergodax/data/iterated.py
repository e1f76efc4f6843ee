"""Data that a user's iterator yields: whatever can be read from its beginning."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jaxtyping import Int64, PyTree, UInt32

from ergodax.data.paged import BLOCK_BYTES, as_dtype, checked_count
from ergodax.data.reader import check_finite, check_rows, delivered, put
from ergodax.data.source import Source, found_in_a_scan, row_bytes, stacked

KEPT = 2  # blocks: chains go on at the same time, each asking for the same one or the next


def stream(
    factory: Any,
    *,
    num_rows: Any,
    block_rows: Any = None,
    passes: Any = 1,
    dtype: Any = None,
) -> "Iterated":
    """Data from any iterator of batches.

    A block is the next rows that the iterator yields, so it is as random as the iterator makes it:
    let it yield its rows in random order. All chains are given the same blocks, and draw
    different batches from them.

    Args:
        factory: starts the iterator; called at the beginning of every pass. A batch is a tree of
            arrays with one leading axis in common, of any length. To repeat or resume a run it
            must yield the same again.
        num_rows: N, how many rows a pass has. A pass with more or fewer is an error.
        block_rows: rows of a block; 32 MiB of them by default, or all rows where they take no
            more.
        passes: how often each row of a block is used before the next block.
        dtype: what a batch is cast to on the device, one for all arrays or a tree like the data
            with None for as they come.

    Returns:
        A source: the `data` of ex.Posterior.

    Raises:
        TypeError: not a function that starts an iterator, batches that are not numbers, or an
            argument of the wrong type.
        ValueError: no batches, or a number out of range; when read, another number of rows than
            num_rows, rows of another shape or dtype than the first, NaN or infinity.
    """
    return Iterated(factory, num_rows, block_rows, passes, dtype)


class Iterated(Source):
    """Blocks from an iterator, in its order; see `stream`.

    Args:
        factory: starts the iterator.
        num_rows: N.
        block_rows: rows of a block, or None.
        passes: over a block.
        dtype: of the examples, or None.

    Raises:
        TypeError: the factory is not a function.
    """

    def __init__(
        self, factory: Any, num_rows: Any, block_rows: Any, passes: Any, dtype: Any
    ) -> None:
        if not callable(factory):
            raise TypeError(
                f"factory must be a function that starts an iterator of batches, not {factory!r}. "
                "Try lambda: iter(batches)."
            )
        self.factory: Callable[[], Any] = factory
        self.num_rows = checked_count(num_rows, "num_rows", 2**31 - 1)
        self.row = _row_of(next(iter(self.factory()), None))
        if block_rows is None:
            block_rows = min(self.num_rows, max(1, BLOCK_BYTES // row_bytes(self.row)))
        self.block_rows = checked_count(block_rows, "block_rows", self.num_rows)
        self.passes = checked_count(passes, "passes", 2**20)
        self.example = as_dtype(self.row, dtype)
        self._lock = threading.Lock()
        self._kept: dict[int, PyTree] = {}
        self._blocks = self._from(0)
        self._next = 0
        self._failure: Exception | None = None  # a broken iterator stays broken

    def read(self, order: UInt32[np.ndarray, " 2"], number: int) -> PyTree:
        """Block `number`, the same for every chain.

        Args:
            order: not used.
            number: counts the blocks from 0. Going back begins a pass anew.
        """
        return jax.tree.map(np.copy, self._block(number))

    def read_into(self, order: UInt32[np.ndarray, " 2"], number: int, out: PyTree) -> None:
        """The same, into arrays that are there.

        Args:
            order: not used.
            number: of the block.
            out: a tree of arrays like `block`.
        """
        jax.tree.map(np.copyto, out, self._block(number))

    def _block(self, number: int) -> PyTree:
        """What is kept of the iterator, not to be changed."""
        with self._lock:
            if self._failure is not None:
                raise self._failure
            try:
                if number not in self._kept:
                    self._advance(number)
            except Exception as error:
                self._failure = error
                raise
            return self._kept[number]

    def scan(self, rows: int) -> Iterator[PyTree]:
        """All rows once, in the order of the iterator.

        Args:
            rows: how many at a time; the last time there may be fewer.
        """
        return _cut(self._pass(), rows, self.row)

    def rows_at(self, wanted: Int64[np.ndarray, " k"]) -> PyTree:
        """The rows with these numbers, met on a pass."""
        return found_in_a_scan(self, wanted)

    def facts(self) -> dict[str, Any]:
        """Numbers and shapes of rows."""
        shapes = [[np.dtype(x.dtype).name, *x.shape] for x in jax.tree.leaves(self.row)]
        numbers = {name: getattr(self, name) for name in ("num_rows", "block_rows", "passes")}
        return {"format": "stream", "row": shapes, **numbers}

    def _advance(self, number: int) -> None:
        each = self.num_rows // self.block_rows
        if not self._next <= number < self._next + each:
            # Blocks of passes that nobody wants any more are not read.
            self._next = number - number % each
            self._blocks = self._from(self._next)
        while number not in self._kept:
            self._kept[self._next] = next(self._blocks)
            self._next += 1
            for old in sorted(self._kept)[:-KEPT]:
                if old != number:
                    del self._kept[old]

    def _from(self, number: int) -> Iterator[PyTree]:
        """Blocks from the beginning of a pass on, pass after pass."""
        while True:
            for block in self.scan(self.block_rows):
                if len(jax.tree.leaves(block)[0]) == self.block_rows:
                    yield block

    def _pass(self) -> Iterator[PyTree]:
        """One pass, its batches checked and counted."""
        seen = 0
        for batch in self.factory():
            found = _row_of(batch)
            if found != self.row:
                raise ValueError(
                    f"after {seen} rows the iterator yields rows of {found}, not {self.row}."
                )
            count = len(jax.tree.leaves(batch)[0])
            _check(batch, seen)
            seen += count
            if seen > self.num_rows:
                break
            yield batch
        if seen != self.num_rows:
            more = "more than" if seen > self.num_rows else "only"
            raise ValueError(
                f"num_rows={self.num_rows}, but a pass of the iterator has {more} "
                f"{min(seen, self.num_rows)} rows. N scales the likelihood: pass the right one."
            )


def _row_of(batch: PyTree) -> PyTree:
    """The shape and dtype of a row."""
    leaves = jax.tree_util.tree_leaves_with_path(batch)
    if not leaves:
        raise ValueError("factory starts an iterator without batches, or with empty ones.")
    counts, names = {}, jax.tree.map(lambda x: "", batch)
    for path, leaf in leaves:
        name = "batch" + jax.tree_util.keystr(path)
        array = np.asarray(leaf)
        delivered(array.dtype, name)
        if array.ndim == 0:
            raise ValueError(f"{name} is a single number; it needs a leading axis of examples.")
        counts[name] = array.shape[0]
    check_rows(counts)

    def one(leaf: Any, name: str) -> jax.ShapeDtypeStruct:
        array = np.asarray(leaf)
        return jax.ShapeDtypeStruct(array.shape[1:], delivered(array.dtype, name))

    return jax.tree.map(one, batch, names)


def _check(batch: PyTree, begin: int) -> None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(batch):
        array = np.asarray(leaf)
        rows = np.array([[begin, begin + len(array)]], np.int64)
        check_finite(array, rows, "batch" + jax.tree_util.keystr(path))


def _cut(batches: Iterator[PyTree], rows: int, row: PyTree) -> Iterator[PyTree]:
    """The same rows, `rows` at a time."""
    make = lambda: jax.tree.map(lambda x: np.empty(x.shape, x.dtype), stacked(row, rows))  # noqa: E731
    out, filled = make(), 0
    for batch in batches:
        begin, count = 0, len(jax.tree.leaves(batch)[0])
        while begin < count:
            some = min(rows - filled, count - begin)
            for whole, part in zip(jax.tree.leaves(out), jax.tree.leaves(batch), strict=True):
                values = np.asarray(part)[begin : begin + some]
                put(whole[filled : filled + some], values, "a batch")
            begin, filled = begin + some, filled + some
            if filled == rows:
                yield out
                out, filled = make(), 0
    if filled:
        yield jax.tree.map(lambda x: x[:filled], out)
