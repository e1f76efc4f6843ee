"""What the functions of a recipe must return. All is seen while a program is traced: no step waits.

Each check names the function, what it returned and what it must return.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from ergodax.checks import shown


def made(
    auxiliary: Callable[[PRNGKeyArray, PyTree], Any], key: PRNGKeyArray, position: PyTree
) -> dict[str, PyTree]:
    """The variables that `auxiliary` makes.

    Raises:
        TypeError: it returns no dict by name, or what is no floating-point array.
        ValueError: it makes a variable called "position".
    """
    example = '{"momentum": ex.normal_like(key, position)}'
    found = blocks("auxiliary", auxiliary(key, position), "of variables", example)
    for name, value in found.items():
        if name == "position":
            raise ValueError(
                "auxiliary makes a variable 'position', but that is the name of what the recipe "
                "is given. Call it something else."
            )
        leaves = jax.tree.leaves(value)  # None within a tree is no leaf, as in a position
        if not leaves or not all(map(_floating, leaves)):
            raise TypeError(
                f"auxiliary[{name!r}] must be a floating-point array or a tree of them, not "
                f"{_told(value)}. Try jnp.asarray(..., float)."
            )
    return found


def scalar(value: Any) -> Any:
    """An energy. Raises: TypeError: not one real number."""
    if not (isinstance(value, float) or _floating(value)) or np.shape(value) != ():
        raise TypeError(
            f"energy must return one real number, not {_told(value)}. For an array try jnp.sum."
        )
    return value


def blocks(name: str, value: Any, of: str, example: str) -> dict[str, Any]:
    """A dict by the names of variables. Raises: TypeError: none."""
    if not (isinstance(value, dict) and all(isinstance(key, str) for key in value)):
        raise TypeError(
            f"{name} must return a dict {of} by name, such as {example}, not {_told(value)}."
        )
    return value


def pairs(value: Any) -> dict[tuple[str, str], Any]:
    """A dict by pairs of names. Raises: TypeError: none."""
    paired = isinstance(value, dict) and all(
        isinstance(key, tuple) and len(key) == 2 and all(isinstance(name, str) for name in key)
        for key in value
    )
    if not paired:
        raise TypeError(
            "curl must return a dict of blocks of Q by pairs of variables, such as "
            f'{{("momentum", "position"): 1.0}}, not {_told(value)}.'
        )
    return value


def acts(name: str, act: Callable[[PyTree], PyTree], column: PyTree, row: PyTree) -> None:
    """Hold a block to taking a variable like `column` to one like `row`.

    Raises:
        TypeError: it can't act on such a variable.
        ValueError: it can't, or makes another shape of it.
    """
    try:
        found = act(column)
    except (TypeError, ValueError) as error:
        told = f"{name} can't act on a variable {shapes(column)}: {error}"
        if isinstance(error, TypeError):
            raise TypeError(told) from error
        raise ValueError(told) from error
    if not alike(found, row):
        raise ValueError(
            f"{name} takes a variable {shapes(column)} to {shapes(found)}, and must take it to "
            f"{shapes(row)}."
        )


def alike(value: PyTree, other: PyTree) -> bool:
    """Whether two trees have the same structure and shapes."""
    same = jax.tree.structure(value) == jax.tree.structure(other)
    return same and shapes(value) == shapes(other)


def shapes(value: PyTree) -> Any:
    """The shape of an array, or those in a tree."""
    return jax.tree.map(np.shape, value)


def _floating(value: Any) -> bool:
    array = isinstance(value, jax.Array | np.ndarray | np.generic)
    return array and jnp.issubdtype(value.dtype, jnp.floating)


def _told(value: Any) -> str:
    """A value in an error, an array by its shape."""
    if isinstance(value, jax.Array | np.ndarray):
        return f"an array of shape {value.shape} and dtype {value.dtype}"
    return shown(jax.tree.map(lambda x: x if not isinstance(x, jax.Array) else x.shape, value))
