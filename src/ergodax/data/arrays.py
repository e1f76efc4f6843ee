"""Trees of arrays with one leading axis in common, or a source of them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from ergodax import tree
from ergodax.data.source import Source


def as_data(data: PyTree) -> PyTree:
    """Check a user's data once and put them on the device.

    Args:
        data: arrays or any tree of them, leading axis N in common; or a source.

    Returns:
        The same tree as JAX arrays that share no memory with the caller's; a source as it is,
        since it checks what it reads.

    Raises:
        TypeError: a leaf is not numeric, or is a source.
        ValueError: no arrays, no rows, leading axes that disagree, or values not finite.
    """
    if isinstance(data, Source):
        return data
    if any(isinstance(x, Source) for x in jax.tree.leaves(data, is_leaf=_is_source)):
        raise TypeError(
            "data has a source among its arrays, but must be one source of all of them, such as "
            "ex.data.npy('X.npy', 'y.npy')."
        )
    leaves = jax.tree_util.tree_leaves_with_path(data)
    if not leaves:
        raise ValueError("data is empty: pass at least one array, such as data=(X, y).")
    rows = {}
    for path, leaf in leaves:
        name = "data" + jax.tree_util.keystr(path)
        if tree.is_traced(leaf):
            continue
        rows[name] = _check_leaf(name, leaf)
    if len(set(rows.values())) > 1:
        sizes = ", ".join(f"{name} has {n}" for name, n in rows.items())
        raise ValueError(
            f"data must have one leading axis in common, the examples, but {sizes}. "
            "Check for a transposed or truncated array."
        )
    # jnp.array copies; device_put may alias NumPy's memory, and later writes would show up.
    with np.errstate(over="ignore"):
        arrays = jax.tree.map(jnp.array, data)
    for path, array in jax.tree_util.tree_leaves_with_path(arrays):
        name = "data" + jax.tree_util.keystr(path)
        if jnp.issubdtype(array.dtype, jnp.inexact) and not tree.is_traced(array):
            if not bool(jnp.all(jnp.isfinite(array))):
                raise ValueError(
                    f"{name} has values too large for {array.dtype}. Standardise it, or turn "
                    "double precision on: jax.config.update('jax_enable_x64', True)."
                )
    return arrays


def _is_source(node: Any) -> bool:
    return isinstance(node, Source)


def _check_leaf(name: str, leaf: Any) -> int:
    array = leaf if isinstance(leaf, jax.Array) else np.asarray(leaf)
    if array.dtype == object or array.dtype.kind in "USO":
        raise TypeError(f"{name} has dtype {array.dtype}; data must be numbers.")
    if array.ndim == 0:
        raise ValueError(f"{name} is a single number; it needs a leading axis of examples.")
    if array.shape[0] == 0:
        raise ValueError(f"{name} is empty (shape {array.shape}): there is nothing to learn from.")
    if jnp.issubdtype(array.dtype, jnp.inexact):
        library = jnp if isinstance(array, jax.Array) else np
        bad = ~library.isfinite(array)
        count = int(bad.sum())
        if count:
            row = int(library.argwhere(bad)[0][0])
            raise ValueError(
                f"{name} has {count} values that are NaN or infinite, the first in row {row}. "
                "Drop or impute these rows."
            )
    return array.shape[0]


def num_rows(data: PyTree) -> int:
    """The length of the leading axis."""
    if isinstance(data, Source):
        return data.num_rows
    return jax.tree.leaves(data)[0].shape[0]


def take(data: PyTree, indices: Int[Array, " n"]) -> PyTree:
    """The rows `indices`, which must lie in range (no bounds are checked).

    Args:
        data: a tree of arrays.
        indices: numbers of rows.

    Raises:
        TypeError: the data are a source.
    """
    if isinstance(data, Source):
        raise TypeError(needs_memory("taking any of its rows"))
    return jax.tree.map(lambda x: x.at[indices].get(mode="promise_in_bounds"), data)


def needs_memory(what: str, instead: str = "ex.Minibatch or ex.ControlVariate") -> str:
    """What to say where something needs all data in memory and they are a source.

    Args:
        what: needs them.
        instead: what does without.
    """
    return (
        f"{what} needs all data in memory, but the posterior's are a source, read in blocks. Use "
        f"{instead}, or, where they fit, arrays: data = source.subset(source.num_rows)."
    )
