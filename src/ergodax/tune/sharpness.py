"""How sharply rows of the data bend the potential."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PyTree

from ergodax import tree
from ergodax.exact.condensed import Rows


@eqx.filter_jit
def sharpness(rows: Rows, draws: PyTree) -> Float[Array, " rows"]:
    """The largest curvature of each row's log-likelihood along its own score, over some draws.

    Args:
        rows: of the data.
        draws: positions with a leading axis.
    """

    def of(row: PyTree, position: PyTree) -> Float[Array, ""]:
        single = jax.tree.map(lambda x: x[None], row)
        slope = jax.grad(lambda x: rows.posterior.log_likelihoods(x, single)[0])
        score = slope(position)
        bend = jax.jvp(slope, (position,), (score,))[1]
        square = tree.dot(score, score)
        # Far from its wall a row has no score left in the dtype, and bends nothing.
        return jnp.abs(tree.dot(score, bend)) / jnp.maximum(square, jnp.finfo(square.dtype).tiny)

    def at(position: PyTree) -> Float[Array, " rows"]:
        return jax.vmap(of, in_axes=(0, None))(rows.rows, position)

    return jnp.max(lax.map(at, draws), axis=0)
