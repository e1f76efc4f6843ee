"""Adam on a network's potential, several members at once: modes, ensembles, and warm starts."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.gradient import Minibatch


class Optimised(NamedTuple):
    """Where the members came to.

    Attributes:
        positions: leading axis members.
        moment: Adam's average of the squared gradient of U / N there, likewise.
    """

    positions: PyTree
    moment: PyTree


@eqx.filter_jit
def adam(
    gradient: Minibatch,
    positions: PyTree,
    steps: Int[Array, ""],
    rate: Float[Array, ""],
    key: PRNGKeyArray,
) -> Optimised:
    """Minimise U / N by Adam, its rate falling to zero along a half cosine.

    Args:
        gradient: of the posterior, from batches.
        positions: starts, leading axis members.
        steps: of each member.
        rate: the first.
        key: of the batches.
    """
    optimiser, num_data = optax.scale_by_adam(), gradient.target.num_data

    def member(key: PRNGKeyArray, position: PyTree) -> tuple[PyTree, PyTree]:
        def step(t: Any, carry: tuple) -> tuple:
            position, state, batches = carry
            estimate, batches = gradient.estimate(jax.random.fold_in(key, t), batches, position)
            mean = tree.scale(1.0 / num_data, estimate.gradient)
            # optax mixes dtypes, which strict promotion would refuse.
            with jax.numpy_dtype_promotion("standard"):
                direction, state = optimiser.update(mean, state)
            place = t.astype(jnp.float32) / jnp.maximum(steps, 1).astype(jnp.float32)
            now = 0.5 * rate * (1.0 + jnp.cos(jnp.pi * place))
            return tree.add_scaled(position, -now, direction), state, batches

        start = (position, optimiser.init(position), gradient.init(key, position))
        position, state, _ = lax.fori_loop(jnp.int32(0), steps, step, start)
        weight = 1.0 - 0.999 ** jnp.maximum(steps, 1).astype(jnp.float32)
        return position, tree.scale(1.0 / weight, state.nu)

    count = jax.tree.leaves(positions)[0].shape[0]
    return Optimised(*jax.vmap(member)(jax.random.split(key, count), positions))
