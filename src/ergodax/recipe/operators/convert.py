"""Numbers, vectors and matrices as operators."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ergodax import tree
from ergodax.recipe.operators.base import Operator
from ergodax.recipe.operators.dense import Dense
from ergodax.recipe.operators.diagonal import Diagonal
from ergodax.recipe.operators.scalar import Scalar


def as_operator(value: Any, name: str) -> Operator:
    """A number as Scalar, a vector or tree as Diagonal, a matrix as Dense.

    Args:
        value: the number, vector, tree or matrix, or an operator already.
        name: the argument's name, for errors.

    Raises:
        TypeError: none of these.
        ValueError: an array of three axes or more.
    """
    if isinstance(value, Operator):
        return value
    if isinstance(value, int | float | np.ndarray | np.generic | jax.Array):
        array = jnp.asarray(value, float) if isinstance(value, int) else jnp.asarray(value)
        kinds = {0: Scalar, 1: Diagonal, 2: Dense}
        if array.ndim not in kinds:
            raise ValueError(f"{name} must be a number, a vector or a matrix, not {array.ndim}-d.")
        return kinds[array.ndim](array)
    if jax.tree.leaves(value) and all(eqx.is_array_like(x) for x in jax.tree.leaves(value)):
        return Diagonal(value)
    raise TypeError(
        f"{name} must be a number, a vector, a matrix or an operator such as ex.Diagonal, "
        f"not {value!r}."
    )


def as_definite(value: Any, name: str) -> Operator:
    """A constant positive definite operator, such as a mass matrix, factored once.

    Args:
        value: number, vector, matrix or operator.
        name: the argument's name, for errors.

    Raises:
        TypeError: none of these.
        ValueError: not positive definite.
    """
    operator = as_operator(value, name).factorise(name)
    if isinstance(operator, Dense) and operator.root is not None and operator.inverse is None:
        raise ValueError(f"{name} must be positive definite, but the matrix given is singular.")
    if isinstance(operator, Scalar | Diagonal):
        for leaf in jax.tree.leaves(operator):
            if not tree.is_traced(leaf) and float(np.min(np.asarray(leaf))) <= 0:
                raise ValueError(f"{name} must be positive, but some entries are zero.")
    return operator
