"""A number times the identity."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.recipe.operators.base import Operator, check_positive


class Scalar(Operator):
    """A number times the identity.

    Args:
        value: shape ().
    """

    value: Float[Array, ""] = eqx.field(converter=jnp.asarray)

    def mv(self, x: PyTree) -> PyTree:
        """value * x."""
        return tree.scale(self.value, x)

    def scaled(self, factor: Any) -> "Scalar":
        """Scalar(factor * value)."""
        return Scalar(factor * self.value)

    def transpose(self) -> "Scalar":
        """Itself."""
        return self

    def sqrt_mv(self, x: PyTree) -> PyTree:
        """sqrt(value) * x."""
        return tree.scale(jnp.sqrt(self.value), x)

    def spectral(self, function: Callable[[Array], Array], x: PyTree) -> PyTree:
        """f(value) * x."""
        return tree.scale(function(self.value), x)

    def solve(self, x: PyTree) -> PyTree:
        """x / value."""
        return tree.scale(1.0 / self.value, x)

    def factors(self) -> tuple["Scalar", "Scalar"]:
        """The root of the value, and itself."""
        return Scalar(jnp.sqrt(self.value)), self

    def log_determinant(self, like: PyTree) -> Float[Array, ""]:
        """d log(value)."""
        return (tree.size(like) * jnp.log(self.value)).astype(tree.result_dtype(like))

    def factorise(self, name: str = "operator") -> "Scalar":
        """Refuse a negative number."""
        check_positive(self.value, name)
        return self

    @staticmethod
    def divergence(field: Callable[[PyTree], Operator], at: PyTree, key: PRNGKeyArray) -> PyTree:
        """The gradient of the value: exact, one reverse pass."""
        return jax.grad(lambda z: field(z).value)(at)  # pyright: ignore
