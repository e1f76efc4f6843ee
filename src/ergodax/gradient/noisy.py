"""The exact gradient plus Gaussian noise of known covariance: the papers' toy model."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.gradient.base import Estimate, GradientEstimator
from ergodax.recipe.operators import Operator, as_operator
from ergodax.target.base import AbstractTarget


class NoisyGradient(GradientEstimator):
    """grad U(position) + N(0, V), with V constant or a function of the position.

    Args:
        target: any target.
        covariance: V as a number (a multiple of I), a vector (its diagonal), a matrix, an
            operator, or a function of the position that returns one of these.

    Raises:
        TypeError: not a target.
        ValueError: a covariance that is not positive semidefinite.
    """

    target: AbstractTarget
    covariance: Operator | Callable[[PyTree], Any]

    def __init__(self, target: AbstractTarget, covariance: Any) -> None:
        if not isinstance(target, AbstractTarget):
            raise TypeError(f"target must be an ex.Target or ex.Posterior, not {target!r}.")
        self.target = target
        if callable(covariance):
            self.covariance = covariance
        else:
            self.covariance = as_operator(covariance, "covariance").factorise("covariance")

    def init(self, key: PRNGKeyArray, position: PyTree) -> Any:
        """Nothing to remember; checks that the target can be evaluated at `position`."""
        self.target.check(position)
        return None

    def estimate(self, key: PRNGKeyArray, state: Any, position: PyTree) -> tuple[Estimate, Any]:
        """The exact gradient plus fresh noise, with its covariance."""
        covariance = self.covariance
        if not isinstance(covariance, Operator):
            covariance = as_operator(covariance(tree.thaw(position)), "covariance")
        potential, gradient = self.target.value_and_gradient(position)
        noise = covariance.sqrt_mv(tree.normal_like(key, position))
        noisy = tree.add(gradient, noise)
        return Estimate(noisy, potential, covariance, jnp.int32(1)), state
