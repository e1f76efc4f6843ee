"""Solving with the sum of two operators, such as a mass and a multiple of a covariance."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ergodax import tree
from ergodax.recipe.operators.base import Operator
from ergodax.recipe.operators.dense import Dense
from ergodax.recipe.operators.diagonal import Diagonal
from ergodax.recipe.operators.low_rank import LowRank
from ergodax.recipe.operators.scalar import Scalar

Elementwise = Scalar | Diagonal


def solve_sum(a: Any, first: Operator, b: Any, second: Operator, x: PyTree) -> PyTree:
    """(a A + b B)^-1 x for symmetric A and B whose sum is positive definite, by their structure.

    O(d) for numbers and diagonals, O(k^2 d) where one of the two has rank k beyond a number;
    anything else is made one matrix and costs a Cholesky factor of it.

    Args:
        a: a number, at least 0.
        first: A.
        b: a number, at least 0.
        second: B.
        x: a tree like the block.
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


def _diagonal(a: Any, first: Elementwise, b: Any, second: Elementwise, like: PyTree) -> PyTree:
    """The diagonal of a A + b B, as a tree."""
    ones = jax.tree.map(jnp.ones_like, like)
    return tree.add_scaled(tree.scale(a, first.mv(ones)), b, second.mv(ones))


def _matrix(operator: Operator, like: PyTree) -> Float[Array, "d d"]:
    """The operator's matrix on the raveled block."""
    flat = tree.ravel(like)[0]
    if isinstance(operator, Dense) and operator.matrix.shape == (flat.size, flat.size):
        return operator.matrix.astype(flat.dtype)
    return tree.matrix_of(operator.mv, like)
