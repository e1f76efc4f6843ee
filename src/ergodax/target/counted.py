"""A posterior whose equal rows are computed once and counted.

Rows with the same numbers have the same likelihood, whatever it is. Tables of categories, counts
and rounded measurements have few that are different.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ergodax.data.arrays import take_at_once
from ergodax.data.distinct import distinct_rows
from ergodax.target.posterior import Posterior

LOOK = 4096  # rows, among which there must be two that are the same
WORTH = 1 / 3  # the share of the rows that is left, from which counting is worth it
HEAVIEST = 2.0  # times the mean count of a distinct row: what counts more is there several times


class _Counted(eqx.Module):
    """A log-likelihood of a row, or of a batch, times how often it is in the data."""

    log_likelihood: Any

    def __call__(
        self, position: PyTree, example: tuple[PyTree, Float[Array, " *n"]]
    ) -> Float[Array, " *n"]:
        row, times = example
        value = jnp.asarray(self.log_likelihood(position, row))
        return value * times.astype(value.dtype)


def counted(posterior: Posterior) -> Posterior | None:
    """The same posterior with fewer rows, each with its count; None where most are different.

    A row that is there far more often than others would make batches noisy, by whether they have
    it. So it stands there several times, and its count is divided among these.

    Args:
        posterior: with its data in memory.

    Example:
        >>> import ergodax as ex
        >>> normal = lambda mean, x: -0.5 * (x - mean) ** 2
        >>> data = np.arange(10_000.0, dtype=np.float32) % 10
        >>> fewer = counted(ex.Posterior(lambda mean: 0.0, normal, data))
        >>> fewer.num_data, float(fewer.data[1].sum())
        (10, 10000.0)
    """
    count = posterior.num_data
    look = np.random.default_rng(0).choice(count, min(count, LOOK), replace=False)
    some = take_at_once(posterior.data, look)
    if len(distinct_rows(some)[0]) == len(look):
        return None
    first, which = distinct_rows(posterior.data)
    times = np.bincount(which)
    copies = np.ceil(times / (HEAVIEST * times.mean())).astype(int)
    if copies.sum() > WORTH * count:
        return None
    kept = np.repeat(first, copies)
    weights = np.repeat(times / copies, copies).astype(np.float32)
    return Posterior(
        posterior.log_prior,
        _Counted(posterior.log_likelihood),
        (take_at_once(posterior.data, kept), weights),
        batched=posterior.batched,
        constraints=posterior.constraints,
    )
