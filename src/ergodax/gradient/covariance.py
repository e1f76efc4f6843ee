"""What is known of the gradient's noise, attached to an estimator."""

from typing import Any

import equinox as eqx
from jaxtyping import PRNGKeyArray, PyTree

from ergodax.gradient.base import Estimate, GradientEstimator, check_estimator
from ergodax.recipe.operators import Operator, as_operator
from ergodax.target.base import AbstractTarget


class KnownCovariance(GradientEstimator):
    """Another estimator whose noise covariance is taken to be a constant operator.

    Right where the posterior is concentrated, with the covariance measured at its mode.

    Args:
        gradient: any estimator.
        covariance: V: a number, a vector (diagonal), a matrix or an operator.

    Raises:
        TypeError: not an estimator.
        ValueError: a covariance that is not positive semidefinite.
    """

    gradient: GradientEstimator
    covariance: Operator

    def __init__(self, gradient: GradientEstimator, covariance: Any) -> None:
        self.gradient = check_estimator(gradient)
        self.covariance = as_operator(covariance, "covariance").factorise("covariance")

    @property
    def target(self) -> AbstractTarget:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The inner estimator's target."""
        return self.gradient.target

    def init(self, key: PRNGKeyArray, position: PyTree) -> Any:
        """The inner estimator's state."""
        return self.gradient.init(key, position)

    def estimate(self, key: PRNGKeyArray, state: Any, position: PyTree) -> tuple[Estimate, Any]:
        """The inner estimate, with the known covariance in place of its own."""
        estimate, state = self.gradient.estimate(key, state, position)
        known = eqx.tree_at(
            lambda e: e.covariance, estimate, self.covariance, is_leaf=lambda x: x is None
        )
        return known, state
