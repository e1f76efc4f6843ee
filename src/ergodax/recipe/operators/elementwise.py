"""The contract of operators, and those that act entry by entry: a number, a diagonal, a column.

A structured operator compiles to what a hand-written sampler would do: `Scalar` to a
multiplication by a number, `Diagonal` to an elementwise product.
"""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.checks import numbers
from ergodax.graph import is_elementwise


class Operator(eqx.Module):
    """A linear map from trees to trees."""

    @abc.abstractmethod
    def mv(self, x: PyTree) -> PyTree:
        """A x."""

    @abc.abstractmethod
    def transpose(self) -> "Operator":
        """A^T."""

    def sqrt_mv(self, x: PyTree) -> PyTree:
        """R x for some R with R R^T = A; x is a tree like the block, often of normal numbers."""
        raise TypeError(f"{type(self).__name__} has no square root: it is not symmetric.")

    def solve(self, x: PyTree) -> PyTree:
        """A^-1 x."""
        raise TypeError(f"{type(self).__name__} can't be inverted.")

    @abc.abstractmethod
    def scaled(self, factor: Any) -> "Operator":
        """factor * A, for a number that is not negative."""

    def spectral(self, function: Callable[[Array], Array], x: PyTree) -> PyTree:
        """f(A) x for a symmetric A: f applied to the eigenvalues."""
        raise TypeError(f"{type(self).__name__} is not symmetric.")

    def factors(self) -> tuple["Operator", "Operator"]:
        """L and L^T L, for some L with L L^T = A that can be differentiated in A's entries.

        Raises:
            TypeError: A is not symmetric.
        """
        raise TypeError(f"{type(self).__name__} has no factor: it is not symmetric.")

    def log_determinant(self, like: PyTree) -> Float[Array, ""]:
        """log det A for a positive definite A.

        Raises:
            TypeError: A is not positive definite.
        """
        raise TypeError(f"{type(self).__name__} has no determinant here.")

    def factorise(self, name: str = "operator") -> "Operator":
        """Check that a constant operator is positive (semi)definite, and factor it once."""
        return self

    @staticmethod
    def divergence(field: Callable[[PyTree], "Operator"], at: PyTree, key: PRNGKeyArray) -> PyTree:
        """sum over j of d A_ij / d z_j, for A = field(z), at z = `at`.

        One Rademacher probe v: the derivative of A(z + t v) v at t = 0. Unbiased for every
        A, and exact where each diagonal entry depends on its own coordinate alone.
        """
        probe = tree.rademacher_like(key, at)
        return jax.jvp(lambda z: field(z).mv(probe), (at,), (probe,))[1]


class Symmetric(Operator):
    """An operator that is its own transpose, and whose roots are had by `spectral`."""

    def transpose(self) -> "Operator":
        """Itself."""
        return self

    def sqrt_mv(self, x: PyTree) -> PyTree:
        """The symmetric square root."""
        return self.spectral(jnp.sqrt, x)


def check_positive(value: Array, name: str) -> None:
    """Refuse an entry of a constant that is negative or not finite. Raises: ValueError."""
    if tree.is_traced(value):
        return
    if not np.all(np.asarray(value) >= 0):
        least = np.min(np.asarray(value))
        raise ValueError(f"{name} must not be negative, but its least entry is {least}.")
    if np.isinf(np.asarray(value, float)).any():
        raise ValueError(f"{name} must be finite, but has an entry that is infinite.")


class Scalar(Symmetric):
    """A number times the identity.

    Args:
        value: shape ().

    Example:
        >>> import ergodax as ex, jax.numpy as jnp
        >>> ex.Scalar(2.0).mv(jnp.array([1.0, 2.0, 3.0])).tolist()
        [2.0, 4.0, 6.0]
    """

    value: Float[Array, ""] = eqx.field(converter=lambda v: jnp.asarray(numbers("value", v)))

    def mv(self, x: PyTree) -> PyTree:
        """value * x."""
        return tree.scale(self.value, x)

    def scaled(self, factor: Any) -> "Scalar":
        """Scalar(factor * value)."""
        return Scalar(factor * self.value)

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


class Diagonal(Symmetric):
    """An elementwise product.

    Args:
        values: a tree like the block it acts on, or a vector of the block's total size.

    Example:
        >>> import ergodax as ex, jax.numpy as jnp
        >>> ex.Diagonal(jnp.array([1.0, 2.0])).mv(jnp.array([3.0, 4.0])).tolist()
        [3.0, 8.0]
    """

    values: PyTree = eqx.field(
        converter=lambda v: jax.tree.map(lambda x: jnp.asarray(numbers("values", x)), v)
    )

    def _like(self, x: PyTree) -> PyTree:
        # In the dtype of the block, so that a double-precision mass promotes nothing.
        shapes = [jax.tree.map(jnp.shape, tree.bare(part)) for part in (self.values, x)]
        if shapes[0] == shapes[1]:
            return tree.matched(self.values, x)
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


class Column(Operator):
    """A single column: maps a number s to s * values; its transpose is a single row.

    Args:
        values: a tree like the block of the rows.
        row: True for the transpose, which maps a tree x to the inner product with values.
    """

    values: PyTree
    row: bool = eqx.field(static=True, default=False)

    def mv(self, x: PyTree) -> PyTree:
        """x * values, or the inner product of values and x for a row."""
        return tree.dot(self.values, x) if self.row else tree.scale(x, self.values)

    def scaled(self, factor: Any) -> "Column":
        """Column(factor * values)."""
        return Column(tree.scale(factor, self.values), self.row)

    def transpose(self) -> "Column":
        """A row for a column, and back."""
        return Column(self.values, not self.row)
