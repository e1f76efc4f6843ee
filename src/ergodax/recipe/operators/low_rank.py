"""A multiple of the identity plus a few outer products."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ergodax import tree
from ergodax.recipe.operators.base import Operator


class LowRank(Operator):
    """base I + sum over k of f_k f_k^T.

    Args:
        factor: a tree like the block whose leaves have a leading axis of length k, the rank.
        base: shape (), at least 0.
    """

    factor: PyTree[Float[Array, "k ..."]]
    base: Float[Array, ""] = eqx.field(converter=jnp.asarray, default=0.0)

    def _like(self, x: PyTree) -> "LowRank":
        """Itself in the dtype of the block, so that double-precision factors promote nothing."""
        factor = jax.tree.map(lambda f, y: f.astype(y.dtype), self.factor, x)
        return LowRank(factor, self.base)

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

    def transpose(self) -> "LowRank":
        """Itself."""
        return self

    def spectral(self, function: Callable[[Array], Array], x: PyTree) -> PyTree:
        """f(A) x through the k x k Gram matrix: never a d x d one.

        A has eigenvalue base + s off the kernel of F and base on it, where s are the
        eigenvalues of F F^T; so
        f(A) x = f(base) x + F^T E diag((f(base + s) - f(base)) / s) E^T F x.

        Args:
            function: of the eigenvalues, elementwise.
            x: a tree like the block.
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

    def factors(self) -> tuple["LowRank", "LowRank"]:
        """The symmetric square root, of the same rank, and itself; base must be positive."""
        s, vectors = jnp.linalg.eigh(self._gram())
        base = tree.cast(self.base, s)
        # (sqrt(base + s) - sqrt(base)) / s, without the cancellation at s = 0.
        weight = 1.0 / (jnp.sqrt(base + jnp.clip(s, 0.0)) + jnp.sqrt(base))
        turn = jnp.sqrt(weight)[:, None] * vectors.T
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

    def sqrt_mv(self, x: PyTree) -> PyTree:
        """The symmetric square root: O(k^2 d)."""
        return self.spectral(jnp.sqrt, x)

    def solve(self, x: PyTree) -> PyTree:
        """A^-1 x by Woodbury, through the k x k matrix; base must be positive."""
        own = self._like(x)
        gram = own._gram()
        small = gram + tree.cast(own.base, gram) * jnp.eye(gram.shape[0], dtype=gram.dtype)
        factor = jax.scipy.linalg.cho_factor(small, lower=True)
        inner = jax.scipy.linalg.cho_solve(factor, own._coefficients(x))
        return tree.scale(1.0 / own.base, tree.subtract(x, own._combine(inner)))
