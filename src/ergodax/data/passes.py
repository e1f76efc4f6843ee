"""Sums over all rows: of arrays in chunks, of a source read ahead while the device computes."""

import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from ergodax import tree
from ergodax.data.arrays import take
from ergodax.data.source import Source, row_bytes

BYTES = 2**25  # read at a time
PATIENCE = 2.0  # seconds before a pass reports how far it is


def summed(source: Source, function: Callable[[PyTree], PyTree]) -> PyTree:
    """The sum of function(rows) over all rows, added up on the host in double precision.

    Args:
        source: of the rows.
        function: of some rows as they are in a block, a tree of sums over them.

    Returns:
        A tree of NumPy arrays, each in the dtype that the function has.
    """
    rows = min(source.num_rows, max(1, BYTES // row_bytes(source.row)))
    total, kinds = None, None
    for part in map(function, _told(_ahead(source.scan(rows)), source.num_rows)):
        kinds = jax.tree.map(lambda x: x.dtype, part)
        part = jax.tree.map(lambda x: np.asarray(x, np.float64), part)
        total = part if total is None else jax.tree.map(np.add, total, part)
    return jax.tree.map(lambda x, kind: np.asarray(x, kind), total, kinds)


def _ahead(parts: Iterator[PyTree]) -> Iterator[PyTree]:
    """The same, the next one read while this one is used."""
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(next, parts, None)
        while (part := following.result()) is not None:
            following = pool.submit(next, parts, None)
            yield part


def _told(parts: Iterator[PyTree], num_rows: int) -> Iterator[PyTree]:
    """The same, with a line on standard error, where that is a terminal, once it takes long."""
    begin, done, told = time.perf_counter(), 0, False
    for part in parts:
        yield part
        done += len(jax.tree.leaves(part)[0])
        if sys.stderr.isatty() and time.perf_counter() - begin > PATIENCE:
            told = True
            print(f"\rpass over the data: {done / num_rows:.0%}", end="", file=sys.stderr)
    if told:
        print(file=sys.stderr)


def sum_in_chunks(
    function: Callable[[PyTree], PyTree], data: PyTree, rows: int, chunk: int
) -> PyTree:
    """The sum of function(chunk of the data) over chunks.

    Args:
        function: of a batch, a sum over its examples.
        data: a tree of arrays with leading axis `rows`.
        rows: N.
        chunk: rows at a time, at most and at least 1.
    """
    numbers, chunk = jnp.arange(rows, dtype=jnp.int32), _even(rows, chunk)
    whole = rows - rows % chunk

    def part(rows: Int[Array, " n"]) -> PyTree:
        return function(take(data, rows))

    shapes = jax.eval_shape(part, numbers[:chunk])
    total, _ = jax.lax.scan(
        lambda sofar, some: (tree.add(sofar, part(some)), None),
        jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes),
        numbers[:whole].reshape(-1, chunk),
    )
    return total if whole == rows else tree.add(total, part(numbers[whole:]))


def _even(rows: int, chunk: int) -> int:
    """A chunk that leaves no rest, which would be compiled apart, if there is one near."""
    near = range(min(chunk, rows), max(1, chunk // 4), -1)
    return next((size for size in near if rows % size == 0), min(chunk, rows))
