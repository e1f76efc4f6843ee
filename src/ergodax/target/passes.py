"""The potential of a posterior whose data are read, not held: for the few who need all of them."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ergodax.data.arrays import num_rows
from ergodax.data.passes import sum_in_chunks, summed
from ergodax.target.posterior import Posterior

CHUNK = 1024  # examples at a time, so that the intermediate results stay small


def value_and_gradient(posterior: Posterior, position: PyTree) -> tuple[Any, PyTree]:
    """U and its gradient, in one pass over the source.

    Args:
        posterior: of a source.
        position: a tree of floating-point arrays.
    """
    value, score = summed(posterior.data, lambda rows: _sums(posterior, position, rows))
    prior, slope = _prior(posterior, position)
    return -prior - value, jax.tree.map(lambda p, s: -p - s, slope, score)


@eqx.filter_jit
def _sums(posterior: Posterior, position: PyTree, rows: PyTree) -> tuple[Array, PyTree]:
    def of(batch: PyTree) -> tuple[Array, PyTree]:
        return jax.value_and_grad(lambda x: jnp.sum(posterior.log_likelihoods(x, batch)))(position)

    seen = posterior.data.as_seen(rows)
    return sum_in_chunks(of, seen, num_rows(seen), CHUNK)


@eqx.filter_jit
def _prior(posterior: Posterior, position: PyTree) -> tuple[Float[Array, ""], PyTree]:
    return posterior.prior_and_gradient(position)
