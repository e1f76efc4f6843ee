"""The gradient of a batch, scaled to the whole data."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.data.arrays import take
from ergodax.data.batching import Batching
from ergodax.gradient.base import Estimate
from ergodax.gradient.batches import (
    BatchEstimator,
    checked_batching,
    likelihoods_and_scores,
)
from ergodax.target.posterior import Posterior


class Minibatch(BatchEstimator):
    """-grad log_prior - (N/n) sum over the batch of grad log_likelihood: unbiased, cost O(n).

    Args:
        posterior: a Posterior.
        batch_size: n, examples in a batch.
        replace: draw rows with replacement; the default draws n distinct rows, at the same
            cost and with less noise.
        batching: another scheme of `ergodax.data`, such as ShuffledEpochs(); overrides `replace`.

    Raises:
        TypeError: not a Posterior, or a batch size that is not an integer.
        ValueError: a batch size outside [1, N].
    """

    target: Posterior
    batch_size: int = eqx.field(static=True)
    batching: Batching

    def __init__(
        self,
        posterior: Posterior,
        batch_size: int | np.integer,
        replace: bool = False,
        *,
        batching: Batching | None = None,
    ) -> None:
        self.batching = checked_batching(posterior, batch_size, replace, batching)
        self.target = posterior
        self.batch_size = int(batch_size)

    @property
    def evaluations_per_example(self) -> int:
        """1."""
        return 1

    def init(self, key: PRNGKeyArray, position: PyTree) -> Any:
        """The state of the batching scheme; checks that the likelihood fits `position`."""
        self.target.check(position)
        return self.batching.init(key, self.target.num_data)

    def estimate(self, key: PRNGKeyArray, state: Any, position: PyTree) -> tuple[Estimate, Any]:
        """The gradient on a fresh batch."""
        batch, state = self.draw(key, state)
        potential, gradient = jax.value_and_grad(self.target.potential_on)(position, batch)
        return Estimate(gradient, potential, evaluations=jnp.int32(self.batch_size)), state

    def per_example_gradients(self, key: PRNGKeyArray, state: Any, position: PyTree) -> PyTree:
        """The scores of the batch that `estimate` draws with this key and state, leading axis n.

        With s the mean of the scores, the estimate's gradient is -grad log_prior - N s.
        """
        batch, _ = self.draw(key, state)
        return self.target.per_example_gradients(position, batch)

    def scores_of(self, state: Any, position: PyTree, rows: Int[Array, " k"]) -> PyTree:
        """The scores of these rows."""
        return self.target.per_example_gradients(position, take(self.target.data, rows))

    def estimate_with_scores(
        self, key: PRNGKeyArray, state: Any, position: PyTree
    ) -> tuple[Estimate, PyTree, Any]:
        """What `estimate` returns, and the scores that it is the sum of, in one pass."""
        batch, state = self.draw(key, state)
        posterior, n = self.target, self.target.num_data
        likelihoods, scores = likelihoods_and_scores(posterior, position, batch)
        prior, slope = posterior.prior_and_gradient(position)
        gradient = jax.tree.map(lambda p, s: -p - n * s, slope, tree.mean_rows(scores))
        potential = -prior - n * jnp.mean(likelihoods)
        return Estimate(gradient, potential, evaluations=jnp.int32(self.batch_size)), scores, state
