"""A number as a schedule, and the check that every step size passes."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ergodax import tree
from ergodax.checks import plain, positive

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


class Function(eqx.Module):
    """A user's function of the step, whatever kind of number it returns.

    Args:
        function: step -> number.
        name: the argument's name, for errors.

    Raises:
        TypeError: it does not return one number.
    """

    function: Schedule
    name: str = eqx.field(static=True)

    def __check_init__(self) -> None:
        """Ask for one value, without computing it."""
        shape = jax.eval_shape(self, jax.ShapeDtypeStruct((), jnp.int32)).shape
        if shape != ():
            raise TypeError(
                f"{self.name} must return one number for a step, not an array of shape {shape}. "
                "Try a schedule of ergodax.schedule or optax."
            )

    def __call__(self, step: Int[Array, ""]) -> Array:
        """The function's value as a floating-point array."""
        value = jnp.asarray(self.function(step))
        return value if jnp.issubdtype(value.dtype, jnp.floating) else value.astype(float)


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
    if isinstance(value, Constant | Function):
        return value
    if callable(value):
        return Function(value, name)
    if not tree.is_traced(value) and plain(value) is None:
        raise TypeError(
            f"{name} must be a number or a function of the step, not {value!r}. "
            f"Try {name}=1e-3, or an ergodax.schedule or optax schedule."
        )
    return Constant(positive(name, allow_zero=allow_zero)(value))
