"""Operators that mix the entries of a block: a matrix, and a low rank beside the identity."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.checks import numbers
from ergodax.recipe.operators.elementwise import (
    Diagonal,
    Operator,
    Symmetric,
    check_positive,
)

EXACT_DIVERGENCE = 64  # up to this size the divergence of a dense block is exact


class Dense(Operator):
    """A matrix on the raveled block.

    Args:
        matrix: shape (d, d).
        root: R with R R^T = matrix, if known; `factorise` computes it.
        inverse: likewise.

    Raises:
        ValueError: not a square matrix.

    Example:
        >>> import ergodax as ex, jax.numpy as jnp
        >>> ex.Dense(jnp.array([[2.0, 1.0], [1.0, 2.0]])).mv(jnp.array([1.0, 1.0])).tolist()
        [3.0, 3.0]
    """

    matrix: Float[Array, "d d"] = eqx.field(converter=lambda m: jnp.asarray(numbers("matrix", m)))
    root: Float[Array, "d d"] | None = None
    inverse: Float[Array, "d d"] | None = None

    def __check_init__(self) -> None:
        """Square matrices only."""
        shape = self.matrix.shape
        if len(shape) != 2 or shape[0] != shape[1]:
            raise ValueError(f"Dense needs a square matrix, not shape {shape}.")

    def _apply(self, matrix: Array, x: PyTree) -> PyTree:
        flat, unravel = tree.ravel(x)
        if flat.size != matrix.shape[1]:
            raise ValueError(
                f"a matrix of shape {matrix.shape} can't act on a block of {flat.size} numbers. "
                "Give a mass, preconditioner or covariance of the position's size."
            )
        return unravel(matrix.astype(flat.dtype) @ flat)

    def mv(self, x: PyTree) -> PyTree:
        """matrix @ x."""
        return self._apply(self.matrix, x)

    def scaled(self, factor: Any) -> "Dense":
        """Dense(factor * matrix), with its root if known."""
        root = None if self.root is None else self.root * jnp.sqrt(factor)
        return Dense(factor * self.matrix, root)

    def transpose(self) -> "Dense":
        """The transposed matrix."""
        return Dense(self.matrix.T)

    def sqrt_mv(self, x: PyTree) -> PyTree:
        """R x; Cholesky where the matrix is definite, else its symmetric square root."""
        return self._apply(_psd_root(self.matrix) if self.root is None else self.root, x)

    def spectral(self, function: Callable[[Array], Array], x: PyTree) -> PyTree:
        """Through the eigenvectors of the matrix: O(d^3)."""
        flat, unravel = tree.ravel(x)
        values, vectors = jnp.linalg.eigh(self.matrix.astype(flat.dtype))
        return unravel(vectors @ (function(values) * (vectors.T @ flat)))

    def solve(self, x: PyTree) -> PyTree:
        """Solve by the factor computed once, or by Cholesky."""
        if self.inverse is not None:
            return self._apply(self.inverse, x)
        flat, unravel = tree.ravel(x)
        factor = jax.scipy.linalg.cho_factor(self.matrix.astype(flat.dtype), lower=True)
        return unravel(jax.scipy.linalg.cho_solve(factor, flat))

    def factors(self) -> tuple["Dense", "Dense"]:
        """The Cholesky factor L, and L^T L with its own root L^T."""
        # Not the symmetric root: its derivative fails where two eigenvalues meet.
        lower = jnp.linalg.cholesky(self.matrix)
        return Dense(lower), Dense(lower.T @ lower, lower.T)

    def log_determinant(self, like: PyTree) -> Float[Array, ""]:
        """By Cholesky."""
        lower = jnp.linalg.cholesky(self.matrix.astype(tree.result_dtype(like)))
        return 2.0 * jnp.sum(jnp.log(jnp.diagonal(lower)))

    def factorise(self, name: str = "operator") -> "Dense":
        """Compute root and inverse once, in float64; refuse what is not semidefinite."""
        if tree.is_traced(self.matrix) or self.root is not None:
            return self
        a = np.asarray(self.matrix, float)
        if not np.isfinite(a).all():
            raise ValueError(f"{name} must be finite, but has an entry that is NaN or infinite.")
        scale = np.abs(a).max()
        if not np.allclose(a, a.T, rtol=1e-5, atol=1e-6 * scale):
            raise ValueError(f"{name} must be a symmetric matrix.")
        values, vectors = np.linalg.eigh(0.5 * (a + a.T))
        if values.min() < -1e-6 * scale:
            raise ValueError(
                f"{name} must be positive semidefinite, but its least eigenvalue is "
                f"{values.min():.3g}."
            )
        root = vectors * np.sqrt(np.clip(values, 0.0, None))
        definite = values.min() > 1e-12 * scale
        inverse = jnp.asarray((vectors / values) @ vectors.T) if definite else None
        return Dense(self.matrix, jnp.asarray(root), inverse)

    @staticmethod
    def divergence(field: Callable[[PyTree], Operator], at: PyTree, key: PRNGKeyArray) -> PyTree:
        """Exact by forward derivatives along each coordinate where d <= 64, else one probe."""
        if tree.size(at) > EXACT_DIVERGENCE:
            return Operator.divergence(field, at, key)
        flat, unravel = tree.ravel(at)

        def column(direction: Array) -> PyTree:
            v = unravel(direction)
            return jax.jvp(lambda z: field(z).mv(v), (at,), (v,))[1]

        columns = jax.vmap(column)(jnp.eye(flat.size, dtype=flat.dtype))
        return jax.tree.map(lambda x: jnp.sum(x, axis=0), columns)


def _psd_root(matrix: Float[Array, "d d"]) -> Float[Array, "d d"]:
    factor = jnp.linalg.cholesky(matrix)

    def by_eigenvalues() -> Float[Array, "d d"]:
        values, vectors = jnp.linalg.eigh(matrix)
        return vectors * jnp.sqrt(jnp.clip(values, 0.0))[None]

    return jax.lax.cond(jnp.all(jnp.isfinite(factor)), lambda: factor, by_eigenvalues)


@jax.custom_jvp
def _definite_root(matrix: Float[Array, "k k"]) -> Float[Array, "k k"]:
    """The symmetric root of a positive definite matrix, differentiable where eigenvalues meet."""
    values, vectors = jnp.linalg.eigh(matrix)
    return (vectors * jnp.sqrt(values)[None]) @ vectors.T


@_definite_root.defjvp
def _slope_of_root(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    """X' of X X = A: it solves X X' + X' X = A', and so can be differentiated again."""
    root = _definite_root(*primals)

    def solve(_: Any, right: Array) -> Array:
        values, vectors = jnp.linalg.eigh(jax.lax.stop_gradient(root))
        inner = vectors.T @ right @ vectors / (values[:, None] + values[None])
        return vectors @ inner @ vectors.T

    slope = jax.lax.custom_linear_solve(
        lambda x: root @ x + x @ root, tangents[0], solve, symmetric=True
    )
    return root, slope


class LowRank(Symmetric):
    """base I + sum over k of f_k f_k^T.

    Args:
        factor: a tree like the block whose leaves have a leading axis of length k, the rank.
        base: shape (), at least 0.

    Example:
        >>> import ergodax as ex, jax.numpy as jnp
        >>> factor = jnp.array([[1.0, 1.0, 0.0]])  # a row, so rank 1
        >>> ex.LowRank(factor, 1.0).mv(jnp.array([1.0, 0.0, 0.0])).tolist()
        [2.0, 1.0, 0.0]
    """

    factor: PyTree
    base: Float[Array, ""] = eqx.field(
        converter=lambda b: jnp.asarray(numbers("base", b)), default=0.0
    )

    def factorise(self, name: str = "operator") -> "LowRank":
        """Refuse a negative base."""
        check_positive(self.base, f"the base of {name}")
        return self

    def _like(self, x: PyTree) -> "LowRank":
        """Itself in the dtype of the block, so that double-precision factors promote nothing."""
        return LowRank(tree.matched(self.factor, x), self.base)

    def _coefficients(self, x: PyTree) -> Float[Array, " k"]:
        return jax.vmap(tree.dot, in_axes=(0, None))(self.factor, x)

    def _combine(self, coefficients: Float[Array, " k"]) -> PyTree:
        return jax.tree.map(lambda f: jnp.tensordot(coefficients, f, axes=1), self.factor)

    def _gram(self) -> Float[Array, "k k"]:
        return jax.vmap(self._coefficients)(self.factor)

    def mv(self, x: PyTree) -> PyTree:
        """base * x + F^T (F x), F the k rows: O(k d)."""
        own = self._like(x)
        return tree.add(tree.scale(own.base, x), own._combine(own._coefficients(x)))

    def scaled(self, factor: Any) -> "LowRank":
        """factor * base and sqrt(factor) * F."""
        return LowRank(tree.scale(jnp.sqrt(factor), self.factor), factor * self.base)

    def spectral(self, function: Callable[[Array], Array], x: PyTree) -> PyTree:
        """f(A) x through the k x k Gram matrix: never a d x d one.

        A has eigenvalue base + s off the kernel of F and base on it, where s are the
        eigenvalues of F F^T; so
        f(A) x = f(base) x + F^T E diag((f(base + s) - f(base)) / s) E^T F x.
        """
        own = self._like(x)
        s, vectors = jnp.linalg.eigh(own._gram())
        kept = s > jnp.finfo(s.dtype).eps * s.shape[0] * jnp.maximum(s[-1], 0.0)
        floor = own.base.astype(s.dtype)
        base = function(floor)
        raised = function(floor + jnp.where(kept, s, 0.0))
        weight = jnp.where(kept, (raised - base) / jnp.where(kept, s, 1.0), 0.0)
        inner = vectors @ (weight * (vectors.T @ own._coefficients(x)))
        return tree.add(tree.scale(base, x), own._combine(inner))

    def diagonal(self) -> Diagonal:
        """The entries on its diagonal."""
        own = jax.tree.map(lambda f: tree.cast(self.base, f) + jnp.sum(f**2, axis=0), self.factor)
        return Diagonal(own)

    def factors(self) -> tuple["LowRank", "LowRank"]:
        """The symmetric square root, of the same rank, and itself; base must be positive."""
        gram = self._gram()
        base, one = tree.cast(self.base, gram), jnp.eye(gram.shape[0], dtype=gram.dtype)
        # F^T X^-1 F with X = (base + F F^T)^1/2 + base^1/2 is what the root has beyond base^1/2.
        lower = jnp.linalg.cholesky(_definite_root(base * one + gram) + jnp.sqrt(base) * one)
        turn = jax.scipy.linalg.solve_triangular(lower, one, lower=True)
        factor = jax.tree.map(lambda f: jnp.tensordot(turn.astype(f.dtype), f, axes=1), self.factor)
        return LowRank(factor, jnp.sqrt(self.base)), self

    def log_determinant(self, like: PyTree) -> Float[Array, ""]:
        """By the k x k matrix I + F F^T / base; base must be positive."""
        own = self._like(like)
        gram = own._gram()
        base = tree.cast(own.base, gram)
        small = gram / base + jnp.eye(gram.shape[0], dtype=gram.dtype)
        lower = jnp.linalg.cholesky(small)
        return tree.size(like) * jnp.log(base) + 2.0 * jnp.sum(jnp.log(jnp.diagonal(lower)))

    def solve(self, x: PyTree) -> PyTree:
        """A^-1 x by Woodbury, through the k x k matrix; base must be positive."""
        own = self._like(x)
        gram = own._gram()
        small = gram + tree.cast(own.base, gram) * jnp.eye(gram.shape[0], dtype=gram.dtype)
        factor = jax.scipy.linalg.cho_factor(small, lower=True)
        inner = jax.scipy.linalg.cho_solve(factor, own._coefficients(x))
        return tree.scale(1.0 / own.base, tree.subtract(x, own._combine(inner)))
