"""The exact gradient."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import PRNGKeyArray, PyTree

from ergodax.gradient.base import Estimate, GradientEstimator, check_estimator
from ergodax.gradient.batches import check_resident
from ergodax.target.base import AbstractTarget
from ergodax.target.posterior import Posterior


class FullGradient(GradientEstimator):
    """The gradient of U itself, from all N examples where there are data.

    Args:
        target: a Target, Posterior or analytic target.

    Raises:
        TypeError: not a target, or a posterior of a source.
    """

    target: AbstractTarget

    def __init__(self, target: AbstractTarget) -> None:
        if not isinstance(target, AbstractTarget):
            raise TypeError(f"target must be an ex.Target or ex.Posterior, not {target!r}.")
        check_resident(target, "FullGradient", "ex.Minibatch or ex.ControlVariate")
        self.target = target

    def init(self, key: PRNGKeyArray, position: PyTree) -> Any:
        """Nothing to remember; checks that the target can be evaluated at `position`."""
        self.target.check(position)
        return None

    def estimate(self, key: PRNGKeyArray, state: Any, position: PyTree) -> tuple[Estimate, Any]:
        """The exact gradient; `key` is not used."""
        potential, gradient = self.target.value_and_gradient(position)
        cost = jnp.int32(self.target.evaluations)
        return Estimate(gradient, potential, evaluations=cost), state

    def per_example_gradients(self, key: PRNGKeyArray, state: Any, position: PyTree) -> PyTree:
        """The scores of all N examples, leading axis N (see `Posterior`).

        Raises:
            TypeError: the target has no data.
        """
        if not isinstance(self.target, Posterior):
            raise TypeError("a target without data has no per-example gradients.")
        return self.target.per_example_gradients(position, self.target.data)


def exact_gradient(gradient: Any, user: str, instead: str) -> FullGradient:
    """A FullGradient as it is, and that of a target or posterior.

    Args:
        gradient: what was given.
        user: the sampler that needs the exact gradient, for errors.
        instead: the sampler that does without.

    Raises:
        TypeError: neither.
    """
    if isinstance(gradient, FullGradient):
        return gradient
    if isinstance(gradient, AbstractTarget):
        return FullGradient(gradient)
    raise TypeError(
        f"{user} needs the exact gradient, not {type(check_estimator(gradient)).__name__}: its "
        f"Metropolis test is wrong with a noisy one. Try ex.FullGradient(target), or {instead}."
    )
