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
    def read(self, order: UInt32[np.ndarray, " 2"], number: int) -> PyTree:
        """Block `number` of the chain with this order.

        Args:
            order: two random words, drawn once for each chain.
            number: counts the chain's blocks from 0.

        Returns:
            A tree like `row` of new arrays with leading axis `block_rows`.
        """

    def read_into(self, order: UInt32[np.ndarray, " 2"], number: int, out: PyTree) -> None:
        """Read a block as `read` does, into arrays that are there.

        Args:
            order: of the chain.
            number: of the block.
            out: a tree of arrays like `block`.
        """
        jax.tree.map(np.copyto, out, self.read(order, number))

    @abc.abstractmethod
    def scan(self, rows: int) -> Iterator[PyTree]:
        """All rows once, in their own order.

        Args:
            rows: how many at a time; the last time there may be fewer.
        """

    @abc.abstractmethod
    def rows_at(self, wanted: Int64[np.ndarray, " k"]) -> PyTree:
        """The rows with these numbers, which are distinct and in increasing order."""

    @abc.abstractmethod
    def facts(self) -> dict[str, Any]:
        """What identifies the data, for the check before a run is resumed: JSON values by name."""

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
        if not 1 <= rows <= self.num_rows:
            raise ValueError(f"rows must lie in [1, {self.num_rows}], not {rows}.")
        wanted = np.random.default_rng(seed).choice(self.num_rows, rows, replace=False)
        return self.as_seen(self.rows_at(np.sort(wanted)))


def found_in_a_scan(source: Source, wanted: Int64[np.ndarray, " k"]) -> PyTree:
    """The rows with these numbers, met on a pass up to the last of them.

    Args:
        source: of the rows.
        wanted: in increasing order.
    """
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
