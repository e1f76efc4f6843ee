"""Rows in arrays with one leading axis in common, or in a source: checks, and sums over all.

Sums are taken of arrays in chunks, and of a source while the next rows are read.
"""

import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from ergodax import tree
from ergodax.checks import leaves
from ergodax.data.source import Source, check_integers, check_rows, row_bytes

BYTES = 2**25  # of a source, read at a time
PATIENCE = 2.0  # seconds before a pass reports how far it is


def as_data(data: PyTree, name: str = "data") -> PyTree:
    """Check a user's data once and put them on the device.

    Args:
        data: arrays or any tree of them, leading axis N in common; or a source.
        name: what to call the argument in an error.

    Returns:
        The same tree as JAX arrays that share no memory with the caller's; a source as it is,
        since it checks what it reads.

    Raises:
        TypeError: a leaf is not numeric, or is a source.
        ValueError: no arrays, no rows, leading axes that disagree, values not finite, or integers
            that the device's dtype can't hold.
    """
    if isinstance(data, Source):
        return data
    there = leaves(name, data)
    found = jax.tree.leaves(data, is_leaf=lambda node: isinstance(node, Source))
    if any(isinstance(x, Source) for x in found):
        raise TypeError(
            f"{name} has a source among its arrays, but must be one source of all of them, such as "
            "ex.data.npy('X.npy', 'y.npy')."
        )
    if not there:
        raise ValueError(f"{name} is empty: pass at least one array, such as data=(X, y).")
    found = jax.tree_util.tree_leaves_with_path(data)
    named = {name + jax.tree_util.keystr(path): leaf for path, leaf in found}
    check_rows({n: _check_leaf(n, x) for n, x in named.items() if not tree.is_traced(x)})
    with np.errstate(over="ignore"):
        arrays = jax.tree.map(_copied, data)
    for (where, leaf), array in zip(named.items(), jax.tree.leaves(arrays), strict=True):
        narrower = jnp.issubdtype(array.dtype, jnp.inexact) and not tree.is_traced(leaf)
        if narrower and not _fits(np.asarray(leaf), array.dtype):
            raise ValueError(
                f"{where} has values too large for {array.dtype}. Standardise it, or turn "
                "double precision on: jax.config.update('jax_enable_x64', True)."
            )
    return arrays


def _copied(leaf: Any) -> Array:
    """On the device, as a copy: device_put may alias NumPy's memory, where later writes show up."""
    if isinstance(leaf, jax.Array):
        return jnp.array(leaf)
    return jax.device_put(np.array(leaf))


def _fits(finite: np.ndarray, dtype: Any) -> bool:
    """Whether finite numbers stay so in a dtype that may be narrower."""
    if finite.dtype == dtype or not finite.size or finite.dtype.kind != "f":
        return True
    with np.errstate(over="ignore"):
        return bool(np.isfinite(np.array([finite.min(), finite.max()]).astype(dtype)).all())


def _bad(array: np.ndarray) -> np.ndarray:
    return ~np.isfinite(array)


@jax.jit
def _not_finite(array: Array) -> Int[Array, ""]:
    return jnp.sum(~jnp.isfinite(array))


def _count_not_finite(array: Array | np.ndarray) -> int:
    """How many numbers are NaN or infinite; on a host nothing is compiled for it."""
    if on_host(array):
        return int(_bad(np.asarray(array)).sum())
    return int(_not_finite(array))


def _check_leaf(name: str, leaf: Any) -> int:
    array = leaf if isinstance(leaf, jax.Array) else np.asarray(leaf)
    if not (array.dtype == bool or jnp.issubdtype(array.dtype, np.number)):
        raise TypeError(f"{name} has dtype {array.dtype}; data must be numbers.")
    if array.ndim == 0:
        raise ValueError(f"{name} is a single number; it needs a leading axis of examples.")
    if jnp.issubdtype(array.dtype, jnp.inexact):
        if count := _count_not_finite(array):
            row = int(np.argwhere(_bad(np.asarray(array)))[0][0])
            raise ValueError(
                f"{name} has {count} values that are NaN or infinite, the first in row {row}. "
                "Drop or impute these rows."
            )
    if isinstance(array, np.ndarray):
        check_integers(array, name)
    return array.shape[0]


def num_rows(data: PyTree) -> int:
    """The length of the leading axis."""
    if isinstance(data, Source):
        return data.num_rows
    return jax.tree.leaves(data)[0].shape[0]


def take(data: PyTree, indices: Int[Array, "*n"]) -> PyTree:
    """Rows of arrays by numbers, whose range is not checked. Raises: TypeError for a source."""
    if isinstance(data, Source):
        raise TypeError(needs_memory("taking any of its rows"))
    return jax.tree.map(lambda x: x.at[indices].get(mode="promise_in_bounds"), data)


def take_at_once(data: PyTree, indices: Int[Array | np.ndarray, " n"]) -> PyTree:
    """As `take`, where on a host nothing is compiled. Raises: TypeError for a source."""
    if isinstance(data, Source):
        raise TypeError(needs_memory("taking any of its rows"))
    if not all(on_host(x) for x in jax.tree.leaves(data)):
        return _take(data, indices.astype(np.int32))
    where, rows = (lambda x: x.sharding if x.committed else None), np.asarray(indices)
    return jax.tree.map(lambda x: jax.device_put(np.asarray(x)[rows], where(x)), data)


def on_host(array: Array | np.ndarray) -> bool:
    """Whether NumPy can read it where it is."""
    devices = array.devices() if isinstance(array, jax.Array) else ()
    return len(devices) <= 1 and all(place.platform == "cpu" for place in devices)


_take = jax.jit(take)  # in which each operation would be a program of its own


def needs_memory(what: str, instead: str = "ex.Minibatch or ex.ControlVariate") -> str:
    """What to say where something needs all data in memory and they are a source."""
    return (
        f"{what} needs all data in memory, but the posterior's are a source, read in blocks. Use "
        f"{instead}, or, where they fit, arrays: data = source.subset(source.num_rows)."
    )


def summed(source: Source, function: Callable[[PyTree], PyTree]) -> PyTree:
    """The sum of function(some rows) over all rows, each a tree of sums over them.

    It is added up on the host in double precision, and returned in the function's dtypes.
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
    """The sum of function(chunk of the data), itself a sum over examples, over chunks.

    A chunk has at most so many of the `rows` that there are.
    """
    first = take(data, jnp.arange(_even(rows, chunk), dtype=jnp.int32))
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(function, first))
    return fold_in_chunks(
        lambda total, some: tree.add(total, function(some)), zeros, data, rows, chunk
    )


def fold_in_chunks(
    function: Callable[[PyTree, PyTree], PyTree], start: PyTree, data: PyTree, rows: int, chunk: int
) -> PyTree:
    """function(... function(start, first chunk) ..., last chunk)."""
    numbers, chunk = jnp.arange(rows, dtype=jnp.int32), _even(rows, chunk)
    whole = rows - rows % chunk
    result, _ = jax.lax.scan(
        lambda sofar, some: (function(sofar, take(data, some)), None),
        start,
        numbers[:whole].reshape(-1, chunk),
    )
    return result if whole == rows else function(result, take(data, numbers[whole:]))


def _even(rows: int, chunk: int) -> int:
    """A chunk that leaves no rest, which would be compiled apart, if there is one near."""
    near = range(min(chunk, rows), max(1, chunk // 4), -1)
    return next((size for size in near if rows % size == 0), min(chunk, rows))
