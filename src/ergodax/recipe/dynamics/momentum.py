"""How the auxiliary variables of the named recipes start, and what drives them."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.checks import real_number
from ergodax.recipe.operators import Operator, Scalar, as_operator
from ergodax.recipe.scheduled import Scheduled
from ergodax.schedule import as_schedule


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


def thermal_mass(value: Any) -> Float[Array, ""] | None:
    """The mass mu of a thermostat as a checked number; None for the default.

    Raises:
        TypeError: not a number.
        ValueError: not positive and finite.
    """
    if value is None:
        return None
    hint = "None is for the dimension."
    return jnp.asarray(real_number("thermal_mass", value, above=0.0, hint=hint))


def friction_rate(friction: Any) -> Float[Array, ""] | Scheduled:
    """The rate gamma as a checked number, or as a schedule.

    Raises:
        TypeError: neither one number nor a function of the step.
        ValueError: negative.
    """
    if callable(friction):
        return Scheduled(as_schedule(friction, "friction"))
    rate = as_operator(friction, "friction").factorise("friction")
    if not isinstance(rate, Scalar):
        raise TypeError("friction must be one number, a rate; the friction matrix is C = gamma M.")
    return rate.value


def damping(friction: Any, mass: Operator) -> Operator | Scheduled:
    """C = gamma M, computed once where gamma is a number.

    Raises:
        TypeError: gamma is neither one number nor a function of the step.
        ValueError: negative.
    """
    rate = friction_rate(friction)
    if isinstance(rate, Scheduled):
        return Scheduled(rate.schedule, mass)
    return mass.scaled(rate)
