"""An elementwise product."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.graph import is_elementwise
from ergodax.recipe.operators.base import Operator, check_positive


class Diagonal(Operator):
    """An elementwise product.

    Args:
        values: a tree like the block it acts on, or a vector of the block's total size.
    """

    values: PyTree[Float[Array, "..."]] = eqx.field(
        converter=lambda v: jax.tree.map(jnp.asarray, v)
    )

    def _like(self, x: PyTree) -> PyTree:
        # In the dtype of the block, so that a double-precision mass promotes nothing.
        if jax.tree.map(jnp.shape, self.values) == jax.tree.map(jnp.shape, x):
            return jax.tree.map(lambda v, y: v.astype(y.dtype), self.values, x)
        flat, unravel = tree.ravel(x)
        if eqx.is_array(self.values) and self.values.shape == flat.shape:
            return unravel(self.values.astype(flat.dtype))
        raise ValueError(
            "Diagonal values must be a tree like the block they act on or a vector of its size "
            f"{flat.size}, not of shapes {jax.tree.map(jnp.shape, self.values)}. Check a mass, "
            "preconditioner or covariance against the position."
        )

    def mv(self, x: PyTree) -> PyTree:
        """values * x."""
        return tree.multiply(self._like(x), x)

    def scaled(self, factor: Any) -> "Diagonal":
        """Diagonal(factor * values)."""
        return Diagonal(tree.scale(factor, self.values))

    def transpose(self) -> "Diagonal":
        """Itself."""
        return self

    def sqrt_mv(self, x: PyTree) -> PyTree:
        """sqrt(values) * x."""
        return jax.tree.map(lambda v, y: jnp.sqrt(v) * y, self._like(x), x)

    def spectral(self, function: Callable[[Array], Array], x: PyTree) -> PyTree:
        """f(values) * x."""
        return jax.tree.map(lambda v, y: function(v) * y, self._like(x), x)

    def solve(self, x: PyTree) -> PyTree:
        """x / values."""
        return jax.tree.map(lambda v, y: y / v, self._like(x), x)

    def factors(self) -> tuple["Diagonal", "Diagonal"]:
        """The roots of the values, and itself."""
        return Diagonal(jax.tree.map(jnp.sqrt, self.values)), self

    def log_determinant(self, like: PyTree) -> Float[Array, ""]:
        """The sum of the logarithms."""
        return tree.dot(jax.tree.map(jnp.log, self._like(like)), jax.tree.map(jnp.ones_like, like))

    def factorise(self, name: str = "operator") -> "Diagonal":
        """Refuse negative values."""
        for leaf in jax.tree.leaves(self.values):
            check_positive(leaf, name)
        return self

    @staticmethod
    def divergence(field: Callable[[PyTree], Operator], at: PyTree, key: PRNGKeyArray) -> PyTree:
        """Exact with a probe of ones where the graph is elementwise, else one random probe."""
        if not is_elementwise(lambda z: field(z).values, at):  # pyright: ignore
            return Operator.divergence(field, at, key)
        ones = tree.map_leaves(jnp.ones_like, at)
        return jax.jvp(lambda z: field(z).mv(ones), (at,), (ones,))[1]
