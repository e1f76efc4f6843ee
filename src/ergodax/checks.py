"""Checks of arguments: numbers, arrays of them, choices, flags, paths, trees and classes.

Each names the argument. A number that is known only to a running transformation passes.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ergodax import tree

# What becomes an array of numbers.
Numbers = tree.Number | Sequence[Any]

# What single precision can hold.
LEAST, MOST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)


def whole_number(
    name: str, value: Any, *, at_least: int = 1, below: int | None = 2**31, hint: str = ""
) -> int:
    """An integer in [at_least, below): Python's, or NumPy's or JAX's scalar.

    By default below what a counter of 32 bits can hold; `hint` says what to try, in a sentence.
    Raises: TypeError for what is none, ValueError out of range.
    """
    hint = f" {hint}" if hint else ""
    array = isinstance(value, np.ndarray | jax.Array) and value.ndim == 0
    if array and not tree.is_traced(value) and jnp.issubdtype(value.dtype, np.integer):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an integer, not {value!r}.{hint}")
    if value < at_least:
        raise ValueError(f"{name} must be at least {at_least}, not {value}.{hint}")
    if below is not None and value >= below:
        most = "2^31" if below == 2**31 else below
        raise ValueError(f"{name} must be below {most}, not {value}.{hint}")
    return int(value)


def real_number(
    name: str,
    value: Any,
    *,
    above: float | int | None = None,
    at_least: float | int | None = None,
    below: float | int = np.inf,
    hint: str = "",
) -> Any:
    """A real number above `above` or at least `at_least`, and below `below`; or a traced one.

    Raises: TypeError for what is none, ValueError out of range or not finite.
    """
    if tree.is_traced(value):
        return value
    hint = f" {hint}" if hint else ""
    number = plain(value)
    if number is None:
        raise TypeError(f"{name} must be a number, not {value!r}.{hint}")
    low = -np.inf if above is None else above
    low_enough = number > low if at_least is None else number >= at_least
    if not (low_enough and number < below and np.isfinite(number)):
        if at_least is None and above == 0:
            rule = "be positive"
        else:
            rule = f"be above {low:g}" if at_least is None else f"be at least {at_least:g}"
        rule += " and finite" if below == np.inf else f" and below {below:g}"
        raise ValueError(f"{name} must {rule}, not {value!r}.{hint}")
    return number


def positive(name: str, *, allow_zero: bool = False) -> Callable[[Any], Array]:
    """A function that makes a number a floating-point array, or says what is wrong with it.

    What is traced passes. Raises: TypeError for what is no number, ValueError out of range.
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


def numbers(name: str, value: Any) -> Any:
    """Numbers as they are, a list of them as an array. Raises: TypeError for anything else."""
    if tree.is_traced(value) or hasattr(value, "__jax_array__"):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return value if abs(value) < 2**31 else float(value)
    try:
        array = value if isinstance(value, jax.Array) else np.asarray(value)
        flags = array.dtype == bool and array.ndim > 0  # such as labels
    except (TypeError, ValueError, OverflowError):  # lists of unequal lengths, foreign arrays
        array, flags = np.empty((), object), False
    real = jnp.issubdtype(array.dtype, np.integer) or jnp.issubdtype(array.dtype, np.floating)
    if not (real or flags):
        raise TypeError(f"{name} must be a number or an array of numbers, not {shown(value)}.")
    return value if hasattr(value, "dtype") or isinstance(value, float) else array


def real_array(
    name: str, value: Any, *, ndim: int | tuple[int, ...] | None = None, hint: str = ""
) -> np.ndarray:
    """Finite numbers in double precision, with so many axes (or one of several counts of them).

    Raises: TypeError for what is none; ValueError for other axes, none at all, NaN or infinity.
    """
    hint = f" {hint}" if hint else ""
    array = np.asarray(numbers(name, value), np.float64)
    counts = (ndim,) if isinstance(ndim, int) else ndim
    if counts is not None and array.ndim not in counts:
        wanted = " or ".join(map(str, counts))
        raise ValueError(f"{name} must have {wanted} axes, not shape {array.shape}.{hint}")
    if not array.size:
        raise ValueError(f"{name} is empty: its shape is {array.shape}.{hint}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, but has NaN or infinity.{hint}")
    return array


def choice(name: str, value: Any, options: Sequence[str]) -> str:
    """One of several words. Raises: ValueError: none of them."""
    if not isinstance(value, str) or value not in options:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, options))}, not {value!r}.")
    return value


def flag(name: str, value: Any) -> bool:
    """True or False. Raises: TypeError: neither."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, not {shown(value)}.")
    return bool(value)


def file_path(name: str, value: Any) -> Path:
    """A path of the file system. Raises: TypeError: neither text nor a path."""
    if not isinstance(value, str | os.PathLike):
        raise TypeError(f"{name} must be the path of a file or folder, not {shown(value)}.")
    return Path(value)


def leaves(name: str, value: Any) -> list[Any]:
    """The leaves of a tree. Raises: TypeError: JAX can't take it apart."""
    try:
        return jax.tree.leaves(value)
    except (TypeError, ValueError, RecursionError, SystemError) as error:
        raise TypeError(
            f"{name} must be a tree of arrays, such as a dict; the keys of each dict must be of "
            "one kind, so that they can be sorted, and the tree be a few levels deep."
        ) from error


def callable_function(name: str, value: Any, *, hint: str = "") -> Any:
    """A function, or something else that can be called. Raises: TypeError: it can't."""
    if not callable(value):
        hint = f" {hint}" if hint else ""
        raise TypeError(f"{name} must be a function, not {shown(value)}.{hint}")
    return value


def instance(name: str, value: Any, kind: Any, wanted: str) -> Any:
    """An object of a class. Raises: TypeError: of another class."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be {wanted}, not {shown(value)}.")
    return value


def shown(value: Any, most: int = 80) -> str:
    """A value in an error, cut where it is long."""
    text = " ".join(repr(value).split())
    return text if len(text) <= most else f"{text[:most]}..."


def legible(name: str, most: int = 60) -> str:
    r"""A user's name on one line of characters that print, the others by their codes.

    Example:
        >>> print(legible("a\nb"), legible(""), legible("a" * 100, most=3))
        a\nb '' aaa...
    """
    codes = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in name[:most])
    return ("".join(codes) + ("..." if len(name) > most else "")) or "''"


def plain(value: Any) -> float | None:
    """A real number as a float; None for anything else, text and truth values among them."""
    if isinstance(value, str | bytes | bool | np.bool_) or value is None:
        return None
    try:
        array = np.asarray(value)
        # JAX's own small precisions are of another kind than NumPy's floating point.
        real = array.dtype.kind in "iu" or jnp.issubdtype(array.dtype, jnp.floating)
        return float(array.astype(np.float64)) if array.ndim == 0 and real else None
    except (TypeError, ValueError, OverflowError):
        return None
