"""How the auxiliary variables of the named recipes start, and what drives them."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.recipe.operators import Operator, Scalar, as_operator


def draw_momentum(
    key: PRNGKeyArray, position: PyTree, mass: Operator, temperature: Any = 1.0
) -> PyTree:
    """A momentum r ~ N(0, T M), shaped like the position."""
    noise = mass.sqrt_mv(tree.normal_like(key, position))
    return tree.scale(jnp.sqrt(jnp.asarray(temperature, float)), noise)


def thermostat_start(friction: Any, position: PyTree, *, per_coordinate: bool) -> PyTree:
    """zeta = A at the start: one number, or a tree like the position."""
    if per_coordinate:
        return tree.map_leaves(lambda x: jnp.full_like(x, tree.cast(friction, x)), position)
    return jnp.asarray(friction).astype(tree.result_dtype(position))


def friction_rate(friction: Any) -> Float[Array, ""]:
    """The rate gamma as a checked number.

    Raises:
        TypeError: not one number.
        ValueError: negative.
    """
    rate = as_operator(friction, "friction").factorise("friction")
    if not isinstance(rate, Scalar):
        raise TypeError("friction must be one number, a rate; the friction matrix is C = gamma M.")
    return rate.value
