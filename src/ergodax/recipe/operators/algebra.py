"""What holds for operators of any structure: conversion from numbers, and solving with a sum."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ergodax import tree
from ergodax.checks import leaves, numbers
from ergodax.recipe.operators.elementwise import Diagonal, Operator, Scalar
from ergodax.recipe.operators.matrices import Dense, LowRank
from ergodax.tree import Number

Elementwise = Scalar | Diagonal


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
        numbers(name, value)
        array = jnp.asarray(value, float) if isinstance(value, int) else jnp.asarray(value)
        kinds = {0: Scalar, 1: Diagonal, 2: Dense}
        if not array.size:
            raise ValueError(f"{name} is empty: its shape is {array.shape}.")
        if array.ndim not in kinds:
            raise ValueError(f"{name} must be a number, a vector or a matrix, not {array.ndim}-d.")
        return kinds[array.ndim](array)
    if leaves(name, value) and all(eqx.is_array_like(x) for x in leaves(name, value)):
        return Diagonal(jax.tree.map(lambda x: numbers(name, x), value))
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
    if isinstance(operator, LowRank) and not tree.is_traced(operator.base) and operator.base == 0:
        raise ValueError(
            f"{name} must be positive definite, but a low rank with base 0 is singular. Give the "
            "identity beside it a weight: ex.LowRank(factor, base=1.0)."
        )
    if isinstance(operator, Scalar | Diagonal):
        for leaf in jax.tree.leaves(operator):
            if not tree.is_traced(leaf) and not np.all(np.asarray(leaf) > 0):
                raise ValueError(f"{name} must be positive, but some entries are zero.")
    return operator


def solve_sum(a: Number, first: Operator, b: Number, second: Operator, x: PyTree) -> PyTree:
    """(a A + b B)^-1 x for symmetric A and B whose sum is positive definite, by their structure.

    O(d) for numbers and diagonals, O(k^2 d) where one of the two has rank k beyond a number;
    anything else is made one matrix and costs a Cholesky factor of it.
    """
    if isinstance(first, LowRank) and isinstance(second, Elementwise):
        a, first, b, second = b, second, a, first
    if isinstance(first, Elementwise) and isinstance(second, Elementwise):
        return jax.tree.map(jnp.divide, x, _diagonal(a, first, b, second, x))
    if isinstance(first, Elementwise) and isinstance(second, LowRank):
        # D + F^T F is D^1/2 (I + W^T W) D^1/2 for W = F D^-1/2.
        root = jax.tree.map(jnp.sqrt, _diagonal(a, first, b, Scalar(second.base), x))
        factor = jax.tree.map(
            lambda f, r: tree.cast(jnp.sqrt(b), r) * f.astype(r.dtype) / r[None],
            second.factor,
            root,
        )
        inner = LowRank(factor, 1.0).solve(jax.tree.map(jnp.divide, x, root))
        return jax.tree.map(jnp.divide, inner, root)
    flat, unravel = tree.ravel(x)
    matrix = tree.cast(a, flat) * _matrix(first, x) + tree.cast(b, flat) * _matrix(second, x)
    factor = jax.scipy.linalg.cho_factor(matrix, lower=True)
    return unravel(jax.scipy.linalg.cho_solve(factor, flat))


def _diagonal(
    a: Number, first: Elementwise, b: Number, second: Elementwise, like: PyTree
) -> PyTree:
    """The diagonal of a A + b B, as a tree."""
    ones = jax.tree.map(jnp.ones_like, like)
    return tree.add_scaled(tree.scale(a, first.mv(ones)), b, second.mv(ones))


def _matrix(operator: Operator, like: PyTree) -> Float[Array, "d d"]:
    """The operator's matrix on the raveled block."""
    flat = tree.ravel(like)[0]
    if isinstance(operator, Dense) and operator.matrix.shape == (flat.size, flat.size):
        return operator.matrix.astype(flat.dtype)
    return tree.matrix_of(operator.mv, like)
