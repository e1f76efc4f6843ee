"""Data that a user's iterator yields: whatever can be read from its beginning."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jaxtyping import Int64, PyTree

from ergodax.checks import whole_number
from ergodax.data.source import (
    Order,
    Ranges,
    Source,
    check_rows,
    check_values,
    delivered,
    found_in_a_scan,
    put,
    room,
    stacked,
)

KEPT = 2  # blocks: chains go on at the same time, each asking for the same one or the next


def stream(
    factory: Any,
    *,
    num_rows: Any,
    block_rows: Any = None,
    passes: Any = 1,
    dtype: Any = None,
    identity: Any = None,
) -> Source:
    """Data from any iterator of batches.

    A block is the next rows that the iterator yields, so it is as random as the iterator makes it:
    let it yield its rows in random order. All chains are given the same blocks, and draw
    different batches from them.

    Args:
        factory: starts the iterator; called at the beginning of every pass. A batch is a tree of
            arrays with one leading axis in common, of any length; one of length 0 is passed over.
            To repeat or resume a run it must yield the same again.
        num_rows: N, how many rows a pass has. A pass with more or fewer is an error.
        block_rows: rows of a block; 32 MiB of them by default, or all rows where they take no
            more.
        passes: how often each row of a block is used before the next block.
        dtype: what a batch is cast to on the device, one for all arrays or a tree like the data
            with None for as they come.
        identity: a text that tells these rows from others, such as the name and version of a
            table. A run with a checkpoint needs it, since a stream can't be compared with what it
            was: give another one when the rows change.

    Returns:
        A source: the `data` of ex.Posterior.

    Raises:
        TypeError: not a function that starts an iterator, batches that are not numbers, or an
            argument of the wrong type.
        ValueError: no batches, or a number out of range; when read, another number of rows than
            num_rows, rows of another shape or dtype than the first, NaN or infinity.

    Example:
        >>> import ergodax as ex, numpy as np
        >>> def blocks():  # of an epoch
        ...     for number in range(10):
        ...         yield np.full(100, number, np.float32)
        >>> ex.data.stream(blocks, num_rows=1_000).num_rows
        1000
    """
    if not callable(factory):
        raise TypeError(
            f"factory must be a function that starts an iterator of batches, not {factory!r}. "
            "Try lambda: iter(batches)."
        )
    if identity is not None and not isinstance(identity, str):
        raise TypeError(f"identity must be a text, not {identity!r}. Try 'clicks of 2026-11'.")
    return _Stream(factory, num_rows, block_rows, passes, dtype, identity)


class _Stream(Source):
    """Blocks from an iterator, in its order, the same for every chain."""

    def __init__(
        self,
        factory: Callable[[], Any],
        num_rows: Any,
        block_rows: Any,
        passes: Any,
        dtype: Any,
        identity: str | None,
    ) -> None:
        self.identity = identity
        self.factory = factory
        self.num_rows = whole_number("num_rows", num_rows)
        self.row = _row_of(next(_not_empty(_begun(factory)), (0, None))[1])
        self._options("a batch", block_rows, passes, dtype)
        self._lock = threading.Lock()
        self._kept: dict[int, PyTree] = {}
        self._blocks = self._from_the_beginning()
        self._next = 0
        self._failure: Exception | None = None  # a broken iterator stays broken

    def read_into(self, order: Order, number: int, out: PyTree) -> None:
        """Copy block `number`; going back begins a pass anew."""
        jax.tree.map(np.copyto, out, self._block(number))

    def scan(self, rows: int) -> Iterator[PyTree]:
        """All rows once, in the order of the iterator."""
        return _cut(self._pass(), rows, self.row)

    def rows_at(self, wanted: Int64[np.ndarray, " k"]) -> PyTree:
        """The rows with these numbers, met on a pass."""
        return found_in_a_scan(self, wanted)

    def facts(self) -> dict[str, Any]:
        """The user's name for the rows, None without one, and their numbers and shapes."""
        shapes = [[np.dtype(x.dtype).name, *x.shape] for x in jax.tree.leaves(self.row)]
        return {"format": "stream", "identity": self.identity, "row": shapes, **self._numbers()}

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

    def _advance(self, number: int) -> None:
        each = self.num_rows // self.block_rows
        if not self._next <= number < self._next + each:
            # Blocks of passes that nobody wants any more are not read.
            self._next = number - number % each
            self._blocks = self._from_the_beginning()
        while number not in self._kept:
            self._kept[self._next] = next(self._blocks)
            self._next += 1
            for old in sorted(self._kept)[:-KEPT]:
                if old != number:
                    del self._kept[old]

    def _from_the_beginning(self) -> Iterator[PyTree]:
        """Blocks from the beginning of a pass on, pass after pass."""
        while True:
            for block in self.scan(self.block_rows):
                if len(jax.tree.leaves(block)[0]) == self.block_rows:
                    yield block

    def _pass(self) -> Iterator[PyTree]:
        """One pass, its batches as they are delivered, checked and counted."""
        seen = 0
        for number, batch in _not_empty(iter(self.factory())):
            found = _row_of(batch)
            if found != self.row:
                raise ValueError(
                    f"after {seen} rows the iterator yields rows of {found}, not {self.row}."
                )
            rows = np.array([[seen, seen + len(jax.tree.leaves(batch)[0])]], np.int64)
            seen = int(rows[0, 1])
            if seen > self.num_rows:
                break
            yield self._delivered(batch, rows, number)
        if seen != self.num_rows:
            more = "more than" if seen > self.num_rows else "only"
            raise ValueError(
                f"num_rows={self.num_rows}, but a pass of the iterator has {more} "
                f"{min(seen, self.num_rows)} rows. N scales the likelihood: pass the right one."
            )

    def _delivered(self, batch: PyTree, rows: Ranges, number: int) -> PyTree:
        """A batch in the dtypes of a block, and checked in these, since a cast can overflow."""

        def one(path: Any, leaf: Any, row: Any, like: Any) -> np.ndarray:
            name = f"batch{jax.tree_util.keystr(path)} number {number} of the iterator"
            values = array = np.asarray(leaf)
            if values.dtype != row.dtype:
                array = np.empty(values.shape, row.dtype)
                put(array, values, name)
            check_values(array, like, rows, name)
            return array

        return jax.tree_util.tree_map_with_path(one, batch, self.row, self.example)


def _not_empty(batches: Iterator[PyTree]) -> Iterator[tuple[int, PyTree]]:
    """The batches that have rows, and their numbers: a filter may leave none of one."""
    for number, batch in enumerate(batches):
        shapes = [np.shape(leaf) for leaf in jax.tree.leaves(batch)]
        if not shapes or any(shape[:1] != (0,) for shape in shapes):
            yield number, batch


def _begun(factory: Callable[[], Any]) -> Iterator[PyTree]:
    try:
        return iter(factory())
    except TypeError as error:
        raise TypeError(
            f"factory must be a function without arguments that returns an iterator of batches, "
            f"but calling it fails: {error}. Try lambda: iter(batches)."
        ) from error


def _row_of(batch: PyTree) -> PyTree:
    """The shape and dtype of a row."""
    counts, row = {}, []
    for path, leaf in jax.tree_util.tree_leaves_with_path(batch):
        name, array = "batch" + jax.tree_util.keystr(path), np.asarray(leaf)
        dtype = delivered(array.dtype, name)
        if array.ndim == 0:
            raise ValueError(f"{name} is a single number; it needs a leading axis of examples.")
        counts[name] = array.shape[0]
        row.append(jax.ShapeDtypeStruct(array.shape[1:], dtype))
    if not row:
        raise ValueError("factory starts an iterator without batches, or with empty ones.")
    check_rows(counts)
    return jax.tree.structure(batch).unflatten(row)


def _cut(batches: Iterator[PyTree], rows: int, row: PyTree) -> Iterator[PyTree]:
    """The same rows, `rows` at a time."""
    out, filled = room(stacked(row, rows)), 0
    for batch in batches:
        begin, count = 0, len(jax.tree.leaves(batch)[0])
        while begin < count:
            some = min(rows - filled, count - begin)
            for whole, part in zip(jax.tree.leaves(out), jax.tree.leaves(batch), strict=True):
                whole[filled : filled + some] = part[begin : begin + some]
            begin, filled = begin + some, filled + some
            if filled == rows:
                yield out
                out, filled = room(stacked(row, rows)), 0
    if filled:
        yield jax.tree.map(lambda x: x[:filled], out)
