"""The contract of the blocks of D and Q: linear maps on PyTrees that know their structure.

A structured operator compiles to what a hand-written sampler would do: `Scalar` to a
multiplication by a number, `Diagonal` to an elementwise product. Matrices act on the
raveled tree.

`divergence(field, at, key)` is that of an operator-valued function, so it is a static
method: the class says how its structure is differentiated most cheaply.
"""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax import tree


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

        Args:
            like: a tree like the block that A acts on.

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

        Args:
            field: operator-valued function of the variable that A's columns belong to.
            at: where.
            key: for the probe.
        """
        probe = tree.rademacher_like(key, at)
        return jax.jvp(lambda z: field(z).mv(probe), (at,), (probe,))[1]


def check_positive(value: Array, name: str) -> None:
    """Refuse a negative entry of a constant.

    Raises:
        ValueError: there is one.
    """
    if not tree.is_traced(value) and not np.all(np.asarray(value) >= 0):
        least = np.min(np.asarray(value))
        raise ValueError(f"{name} must not be negative, but its least entry is {least}.")
