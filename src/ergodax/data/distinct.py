"""Which rows of the data are the same."""

import jax
import numpy as np
from jaxtyping import Int, PyTree

from ergodax.data.arrays import num_rows


def distinct_rows(
    data: PyTree,
) -> tuple[Int[np.ndarray, " distinct"], Int[np.ndarray, " rows"]]:
    """The first of rows that are the same, and of each row which of them it is.

    By a sum of their words with random factors, which is then looked at: rows of which some are
    different by chance are taken as they are.

    Example:
        >>> distinct_rows((np.array([1.0, 2.0, 1.0, 1.0]), np.array([0, 0, 0, 1])))[1].tolist()
        [0, 1, 0, 2]
    """
    count, rng = num_rows(data), np.random.default_rng(0)
    arrays = [np.asarray(leaf).reshape(count, -1) for leaf in jax.tree.leaves(data)]
    parts = [part for x in arrays for part in ((x.real, x.imag) if np.iscomplexobj(x) else (x,))]
    columns = [column for part in parts for column in part.T]
    total = np.zeros(count, np.uint64)
    for column in columns:
        words = np.ascontiguousarray(column).view(f"u{column.dtype.itemsize}").astype(np.uint64)
        factor = rng.integers(2**63, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
        words = words * factor  # the upper half of a product by an odd number depends on all bits
        total += (words ^ (words >> np.uint64(32))) * factor
    _, first, which = np.unique(total, return_index=True, return_inverse=True)
    order = np.argsort(first)  # by where they are first
    first, which = first[order].astype(np.int32), np.argsort(order)[which].astype(np.int32)
    if not all((column == column[first][which]).all() for column in columns):
        first = which = np.arange(count, dtype=np.int32)
    return first, which
