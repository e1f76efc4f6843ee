"""The check of every number that a schedule is made of."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ergodax import tree

# What single precision can hold.
LEAST, MOST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)


def positive(name: str, *, allow_zero: bool = False) -> Callable[[Any], Array]:
    """A function that makes a number a floating-point array, or says what is wrong with it.

    A number that is known only to a running transformation passes.

    Args:
        name: the argument's name, for errors.
        allow_zero: whether zero is a legal value, as it is for a temperature.

    Raises:
        TypeError: by the function, for what is no number.
        ValueError: by the function, for a number that is not positive and finite.
    """

    def convert(value: Any) -> Array:
        if tree.is_traced(value):
            return value
        number = plain(value)
        if number is None:
            raise TypeError(f"{name} must be a number, not {value!r}. Try {name}=1e-3.")
        if not ((allow_zero and number == 0) or LEAST <= number <= MOST):
            least = "zero or positive" if allow_zero else "positive"
            beyond = " in single precision" if np.isfinite(number) and number > 0 else ""
            raise ValueError(f"{name} must be {least} and finite{beyond}, not {value!r}.")
        return jnp.asarray(number)

    return convert


def plain(value: Any) -> float | None:
    """A real number as a float; None for anything else, text and truth values among them."""
    if isinstance(value, str | bytes | bool | np.bool_) or value is None:
        return None
    try:
        array = np.asarray(value)
        return float(array) if array.ndim == 0 and array.dtype.kind in "fiu" else _other(array)
    except (TypeError, ValueError, OverflowError):
        return None


def _other(array: np.ndarray) -> float | None:
    """Numbers of JAX's own small precisions."""
    known = array.ndim == 0 and jnp.issubdtype(array.dtype, jnp.floating)
    return float(array.astype(np.float64)) if known else None
