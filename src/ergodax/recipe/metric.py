"""Metrics: the inverse metric G(x)^-1 of a Riemannian sampler, as a function of the position.

One convention for every sampler: a metric gives the inverse, G^-1, which is large where the
sampler may take large steps. Any positive definite function is right; a good one makes the
target look round.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float, PyTree

from ergodax import tree
from ergodax.recipe.operators import Operator, Scalar, as_operator


class Metric(eqx.Module):
    """A function of the position that returns G^-1.

    Args:
        function: position -> a number, a vector or tree like the position (the diagonal of
            G^-1), a matrix on the raveled position, or an operator; positive definite.
        divergence: for a number or diagonal g: position -> the tree of d g_i / d x_i, in closed
            form; for any other G^-1 its divergence, for `sgrld` alone. By default it is found
            by differentiation: exactly for numbers, matrices up to 64 x 64 and diagonals whose
            entries depend on their own coordinates; else by one random probe, unbiased.

    Raises:
        TypeError: not a function.

    Example:
        >>> import ergodax as ex, jax.numpy as jnp
        >>> metric = ex.Metric(lambda x: 1.0 + x**2, divergence=lambda x: 2.0 * x)
    """

    function: Callable[[PyTree], Any]
    divergence: Callable[[PyTree], PyTree] | None = None

    def __check_init__(self) -> None:
        """Functions only."""
        for name, value in (("function", self.function), ("divergence", self.divergence)):
            if not callable(value) and not (name == "divergence" and value is None):
                raise TypeError(f"{name} must be a function of the position, not {value!r}.")

    def __call__(self, position: PyTree) -> Operator:
        """G^-1 at a position as the samplers hold it."""
        return as_operator(_frozen(self.function(tree.thaw(position))), "metric")

    def divergence_at(self, position: PyTree) -> PyTree:
        """The closed form at a position as the samplers hold it."""
        assert self.divergence is not None
        return _frozen(self.divergence(tree.thaw(position)))


class PotentialMetric(eqx.Module):
    """G^-1 = f(U(x)) I, computed from the estimate of the potential that the step has anyway.

    With an exact gradient the sampler is exact in the limit of small steps. A noisy U makes a
    noisy metric, correlated with the gradient's noise, which the theory does not cover: the
    bias is then of the size of the noise in U, and does not vanish with the step.

    Args:
        function: U -> a positive number, such as `lambda u: 1.5 * jnp.sqrt(jnp.abs(u + 0.5))`
            of Ma, Chen and Fox. Where it vanishes inside the region of the posterior, the
            sampler can't pass: keep it away from zero.

    Raises:
        TypeError: not a function.
    """

    function: Callable[[Float[Array, ""]], Any]
    potential: Callable[[PyTree], Float[Array, ""]] | None = None

    def __check_init__(self) -> None:
        """Functions only."""
        if not callable(self.function):
            raise TypeError(f"function must be a function of the potential, not {self.function!r}.")

    def __call__(self, position: PyTree) -> Scalar:
        """G^-1, where the potential is known.

        Raises:
            TypeError: it is not known here.
        """
        if self.potential is None:
            raise TypeError(
                "a PotentialMetric works in sgrld and sgrhmc, whose steps know the potential. "
                "Elsewhere give a function of the position, such as "
                "ex.Metric(lambda x: f(target.potential(x)))."
            )
        return Scalar(self.function(self.potential(position)))


class Linearised(eqx.Module):
    """The potential near a position, from one estimate of its value and gradient."""

    position: PyTree
    potential: Float[Array, ""]
    gradient: PyTree

    def __call__(self, position: PyTree) -> Float[Array, ""]:
        """U + g . (x - x0): the right value and gradient at x0."""
        return self.potential + tree.dot(self.gradient, tree.subtract(position, self.position))


def with_potential(parts: PyTree, potential: Callable[[PyTree], Float[Array, ""]]) -> PyTree:
    """The same recipe, with the potential known to every PotentialMetric in it."""

    def known(x: Any) -> Any:
        return PotentialMetric(x.function, potential) if isinstance(x, PotentialMetric) else x

    return jax.tree.map(known, parts, is_leaf=lambda x: isinstance(x, PotentialMetric))


def as_metric(metric: Any) -> Metric | PotentialMetric:
    """Accept a Metric, a PotentialMetric or a plain function of the position. Raises: TypeError."""
    if isinstance(metric, Metric | PotentialMetric):
        return metric
    if callable(metric):
        return Metric(metric)
    raise TypeError(
        "metric must be a function of the position that returns the inverse metric G^-1 (a number, "
        f"a vector, a matrix or an operator), not {metric!r}. For a constant one see the "
        "preconditioner of sgld and the mass of sghmc."
    )


def _frozen(value: Any) -> Any:
    """What is not a number in a tree the user returned, put back into the structure."""
    if isinstance(value, Operator):
        return value
    leaves = jax.tree.leaves(value)
    return value if all(eqx.is_array_like(x) for x in leaves) else tree.hide(value)
