"""The contract of a gradient estimator: `init`, then `estimate` with a state of its own."""

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from ergodax.recipe.operators import Operator
from ergodax.target.base import AbstractTarget


class Estimate(eqx.Module):
    """An unbiased estimate of the gradient of U.

    Attributes:
        gradient: a tree like the position; the whole data's scale.
        potential: the estimate of U that belongs to it.
        covariance: of `gradient` given the position, as an operator; None where unknown.
        evaluations: gradients of single examples that it took.
    """

    gradient: PyTree
    potential: Float[Array, ""]
    covariance: Operator | None = None
    evaluations: Int[Array, ""] = eqx.field(
        default_factory=lambda: jnp.ones((), jnp.int32), converter=jnp.asarray
    )


Estimated = tuple[Estimate, PyTree]  # and the estimator's state after it


class GradientEstimator(eqx.Module):
    """Estimates the gradient of a target's potential.

    Snapshots, tables, moving averages and the present block of a stream live in the state,
    so an estimator itself never changes.
    """

    target: eqx.AbstractVar[AbstractTarget]

    @abc.abstractmethod
    def init(self, key: PRNGKeyArray, position: PyTree) -> PyTree:
        """The state before the first estimate; may cost a pass over the data."""

    @abc.abstractmethod
    def estimate(self, key: PRNGKeyArray, state: PyTree, position: PyTree) -> Estimated:
        """Estimate the gradient at `position`."""


def check_estimator(gradient: Any) -> GradientEstimator:
    """Accept an estimator; say how to make one from a target or posterior. Raises: TypeError."""
    if isinstance(gradient, GradientEstimator) or (
        hasattr(gradient, "init") and hasattr(gradient, "estimate")
    ):
        return gradient
    if isinstance(gradient, AbstractTarget):
        name = type(gradient).__name__
        raise TypeError(
            f"gradient must be a gradient estimator, not a {name}. Try ex.FullGradient(target) or "
            "ex.Minibatch(posterior, batch_size=100)."
        )
    raise TypeError(f"gradient must be a gradient estimator such as ex.Minibatch, not {gradient!r}")


def known_covariance(estimate: Estimate, gradient: GradientEstimator, sampler: str) -> Operator:
    """The covariance of an estimate, which this sampler needs. Raises: ValueError."""
    if estimate.covariance is None:
        raise ValueError(
            f"{sampler} needs a gradient that knows its covariance, and {type(gradient).__name__} "
            "does not. Wrap it: ex.ScoreCovariance(gradient), which estimates it from each batch, "
            "or ex.KnownCovariance(gradient, covariance); ex.NoisyGradient has one."
        )
    return estimate.covariance
