"""The gradient of a logistic posterior with a Gaussian as its control variate.

In the coordinates u in which the fitted Gaussian is N(0, I), grad U = offset + u + the sum of the
rows' residuals (see `digits_fit`). The first two terms are exact and cost nothing; only the
residuals, what makes the posterior not Gaussian, are estimated from a batch, of rows drawn with
probabilities in proportion to how much they matter.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from ergodax.data.permutation import scale_bits
from ergodax.gradient import Estimate
from ergodax.gradient.base import GradientEstimator
from ergodax.recipe.operators import Diagonal
from ergodax.target import Posterior


class AliasTable(eqx.Module):
    """Draws from N outcomes of any probabilities, at O(1) a draw (Walker, 1977).

    Attributes:
        keep: the chance that a uniform outcome is kept, shape (N,).
        alias: what replaces it otherwise, shape (N,).
    """

    keep: Float[Array, " N"]
    alias: Int[Array, " N"]

    def draw(self, key: PRNGKeyArray, count: int) -> Int[Array, " n"]:
        """Independent outcomes."""
        words = jax.random.bits(key, (2, count), jnp.uint32)
        rows = scale_bits(words[0], self.keep.size).astype(jnp.int32)
        chance = (words[1] >> 8).astype(self.keep.dtype) * jnp.asarray(2.0**-24, self.keep.dtype)
        return jnp.where(chance < self.keep[rows], rows, self.alias[rows])


def alias_table(probability: Float[np.ndarray, " N"]) -> AliasTable:
    """Vose's construction, in O(N)."""
    size = len(probability)
    share = probability * (size / probability.sum())
    keep, alias = np.ones(size), np.arange(size)
    small = [i for i in range(size) if share[i] < 1.0]
    large = [i for i in range(size) if share[i] >= 1.0]
    while small and large:
        low, high = small.pop(), large[-1]
        keep[low], alias[low] = share[low], high
        share[high] -= 1.0 - share[low]
        if share[high] < 1.0:
            small.append(large.pop())
    return AliasTable(jnp.asarray(keep, jnp.float32), jnp.asarray(alias, jnp.int32))


class GaussianControl(GradientEstimator):
    """Minibatch gradients of what is left of a logistic posterior beside a Gaussian.

    Attributes:
        target: the posterior in coordinates u, its data (features, offset, y).
        offset: the averaged gradient, shape (d,).
        level: of each row, shape (N,).
        slope: of each row, shape (N,).
        probability: with which a row is drawn, shape (N,).
        table: which draws so.
        noise: variances of the gradient from one row, averaged over the Gaussian, shape (d,).
        batch_size: n.
    """

    target: Posterior
    offset: Float[Array, " d"]
    level: Float[Array, " N"]
    slope: Float[Array, " N"]
    probability: Float[Array, " N"]
    table: AliasTable
    noise: Float[Array, " d"]
    batch_size: int = eqx.field(static=True)

    def init(self, key: PRNGKeyArray, position: PyTree) -> Any:
        """Nothing to remember."""
        return None

    def growth(self, position: Float[Array, " d"]) -> Float[Array, ""]:
        """How large the noise is here, 1 on average over the Gaussian.

        What a tangent leaves of a curve grows with the square of the distance, and the noise's
        variance with its fourth power. A chain that took it to be constant would heat up where
        it is largest, and go there still more.
        """
        return jnp.sum(position**2) ** 2 / (position.size * (position.size + 2))

    def estimate(self, key: PRNGKeyArray, state: Any, position: PyTree) -> tuple[Estimate, Any]:
        """offset + u + the sum over the batch of residual_i z_i / (n p_i)."""
        rows = self.table.draw(key, self.batch_size)
        z, centre, y = (x[rows] for x in self.target.data)
        weight = 1.0 / (self.batch_size * self.probability[rows])
        along = z @ position
        logit = centre + along
        residual = jax.nn.sigmoid(logit) - self.level[rows] - self.slope[rows] * along
        gradient = self.offset + position + (weight * residual) @ z
        likelihood = weight @ (y * logit - jax.nn.softplus(logit))
        potential = -self.target.log_prior(position) - likelihood
        covariance = Diagonal(self.growth(position) * self.noise / self.batch_size)
        cost = jnp.int32(self.batch_size)
        return Estimate(gradient, potential, covariance, cost), state


class Recorded(GradientEstimator):
    """Another estimator, which keeps in its state where it was asked last, and its answer.

    Args:
        gradient: the other.
    """

    gradient: Any

    def __init__(self, gradient: GradientEstimator) -> None:
        self.gradient = gradient

    @property
    def target(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The inner estimator's target."""
        return self.gradient.target

    def init(self, key: PRNGKeyArray, position: PyTree) -> Any:
        """The inner state, the position and no gradient yet."""
        return self.gradient.init(key, position), (position, jnp.zeros_like(position))

    def estimate(self, key: PRNGKeyArray, state: Any, position: PyTree) -> tuple[Estimate, Any]:
        """The inner estimate."""
        estimate, inner = self.gradient.estimate(key, state[0], position)
        return estimate, (inner, (position, estimate.gradient))
