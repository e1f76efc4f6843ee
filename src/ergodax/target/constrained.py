"""A target with constraints as one of unconstrained numbers, and the way back for its draws."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float, PyTree

from ergodax import tree
from ergodax.target.base import AbstractTarget
from ergodax.target.posterior import Posterior
from ergodax.transform import is_held


class Constrain(eqx.Module):
    """Unconstrained numbers in the structure that the user gave them, as constrained values."""

    structure: Any = eqx.field(static=True)  # of a position as the samplers hold it

    def __call__(self, position: PyTree) -> PyTree:
        """The user's values; leading axes of chains and draws may be there."""
        return tree.thaw(self.held(position))

    def held(self, position: PyTree) -> PyTree:
        """As the samplers hold a position."""
        return self.structure.unflatten(jax.tree.leaves(tree.freeze(position)))

    def inverse(self, values: PyTree) -> PyTree:
        """The unconstrained numbers of constrained values."""
        like = self.structure.unflatten([0.0] * self.structure.num_leaves)
        return jax.tree.map(
            lambda node, x: node.transform.inverse(x) if is_held(node) else x,
            like,
            tree.freeze(values),
            is_leaf=is_held,
        )


class _Held(eqx.Module):
    """A method of a target, which takes positions as the samplers hold them."""

    method: Callable[..., Any]
    constrain: Constrain

    def __call__(self, position: PyTree, *more: PyTree) -> Any:
        return self.method(self.constrain.held(position), *more)


class UnconstrainedTarget(AbstractTarget):
    """A target as a function of unconstrained numbers."""

    original: AbstractTarget
    constrain: Constrain
    constraints: None = eqx.field(static=True, default=None)

    def potential(self, position: PyTree) -> Float[Array, ""]:
        """U, the Jacobians included."""
        return self.original.potential(self.constrain.held(position))


class UnconstrainedPosterior(Posterior):
    """A posterior as a function of unconstrained numbers.

    Args:
        posterior: of constrained values.
        constrain: the map from the numbers to these.
    """

    constrain: Constrain

    def __init__(self, posterior: Posterior, constrain: Constrain) -> None:
        without = eqx.tree_at(lambda p: p.data, posterior, ())
        self.log_prior = _Held(without.prior, constrain)
        self.log_likelihood = _Held(without.log_likelihoods, constrain)
        self.data, self.batched, self.constraints = posterior.data, True, None
        self.constrain = constrain


def unconstrained(target: AbstractTarget, position: PyTree) -> tuple[AbstractTarget, PyTree]:
    """The target of unconstrained numbers, and a position of them in the user's structure.

    Args:
        target: with data or without.
        position: of constrained values.

    Returns:
        Both as they were where the target has no constraints; else a target that has `constrain`,
        a function of positions and draws, which has an `inverse`.

    Raises:
        TypeError: a leaf that is not floating point.
        ValueError: a position that violates the constraints.

    Example:
        >>> import ergodax as ex, jax.numpy as jnp
        >>> gamma = ex.Target(lambda p: p["x"], constraints={"x": ex.transform.positive})
        >>> free, start = ex.target.unconstrained(gamma, {"x": 1.0})
        >>> float(start["x"]), float(free.potential(start))
        (0.0, 1.0)
    """
    frozen = target.freeze(position)
    if not any(map(is_held, jax.tree.leaves(frozen, is_leaf=is_held))):
        return target, position
    constrain = Constrain(jax.tree.structure(frozen))
    numbers = tree.bare(frozen)
    if isinstance(target, Posterior):
        return UnconstrainedPosterior(target, constrain), tree.thaw(numbers)
    return UnconstrainedTarget(target, constrain), tree.thaw(numbers)
