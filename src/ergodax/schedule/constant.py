"""A number as a schedule, and the check that every step size passes."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ergodax import tree

Schedule = Callable[[Any], Any]  # the step, an int32 scalar -> a scalar


class Constant(eqx.Module):
    """The same value at every step.

    Args:
        value: a number. It is held as an array, so that a new value needs no recompilation.
    """

    value: Float[Array, ""] = eqx.field(converter=jnp.asarray)

    def __call__(self, step: Int[Array, ""]) -> Float[Array, ""]:
        """The value."""
        return self.value


def as_schedule(value: Any, name: str, *, allow_zero: bool = False) -> Schedule:
    """Make a number or a function of the step a schedule.

    Args:
        value: a positive number, or a function step -> number (an optax schedule, say).
        name: the argument's name, for errors.
        allow_zero: whether zero is a legal value, as it is for a temperature.

    Raises:
        TypeError: neither a real number nor a function.
        ValueError: a number that is not positive and finite.
    """
    if callable(value):
        return value
    if tree.is_traced(value):
        return Constant(value)
    try:
        number = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        number = None
    if number is None or number.ndim != 0:
        raise TypeError(
            f"{name} must be a number or a function of the step, not {value!r}. "
            f"Try {name}=1e-3, or an ergodax.schedule or optax schedule."
        )
    if not np.isfinite(number) or number < 0 or (number == 0 and not allow_zero):
        least = "zero or positive" if allow_zero else "positive"
        raise ValueError(f"{name} must be {least} and finite, not {value!r}.")
    return Constant(float(number))
