"""Rows that stand for all."""

import jax
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from ergodax.data.arrays import take
from ergodax.target.base import AbstractTarget
from ergodax.target.posterior import Posterior
from ergodax.tune.host import generator


def some_rows(target: AbstractTarget, key: PRNGKeyArray, max_rows: int) -> PyTree:
    """Random rows of the data, all of them where there are no more; None without data.

    Args:
        target: a Posterior, or a target without data.
        key: for the rows.
        max_rows: at most so many.
    """
    if not isinstance(target, Posterior):
        return None
    if target.num_data <= max_rows:
        return target.data
    rows = generator(key).choice(target.num_data, max_rows, replace=False, shuffle=False)
    return _take(target.data, rows.astype(np.int32))


_take = jax.jit(take)
