"""The gradient of a batch, scaled to the whole data."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.data.arrays import take
from ergodax.data.batching import Batching, WithoutReplacement, WithReplacement
from ergodax.gradient.base import Estimate, GradientEstimator
from ergodax.target.posterior import Posterior


class Minibatch(GradientEstimator):
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
        if not isinstance(posterior, Posterior):
            raise TypeError(
                f"posterior must be an ex.Posterior (a prior, a likelihood, data), not "
                f"{posterior!r}. A target without data has no batches: use ex.FullGradient."
            )
        self.batching = batching or (WithReplacement() if replace else WithoutReplacement())
        self.batching.check(posterior.num_data, batch_size)
        self.target = posterior
        self.batch_size = int(batch_size)

    @property
    def noise_factor(self) -> float:
        """The c for which c S estimates the covariance of `gradient` without bias.

        S is the covariance of the batch's scores, with divisor n - 1; see `Batching`.
        """
        return self.batching.noise_factor(self.target.num_data, self.batch_size)

    def init(self, key: PRNGKeyArray, position: PyTree) -> Any:
        """The state of the batching scheme; checks that the likelihood fits `position`."""
        self.target.check(position)
        return self.batching.init(key, self.target.num_data)

    def draw(self, key: PRNGKeyArray, state: Any) -> tuple[PyTree, Any]:
        """The next batch, a tree like the data with leading axis n, and the state after it."""
        rows, state = self.batching.draw(key, state, self.target.num_data, self.batch_size)
        return take(self.target.data, rows), state

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

    def estimate_with_scores(
        self, key: PRNGKeyArray, state: Any, position: PyTree
    ) -> tuple[Estimate, PyTree, Any]:
        """What `estimate` returns, and the scores that it is the sum of, in one pass.

        Args:
            key: a fresh key.
            state: from `init` or the estimate before.
            position: a tree of floating-point arrays.

        Returns:
            The Estimate, the scores as a tree like `position` with leading axis n, and the next
            state.
        """
        batch, state = self.draw(key, state)
        posterior, n = self.target, self.target.num_data

        def one(position: PyTree, example: PyTree) -> Float[Array, ""]:
            single = jax.tree.map(lambda x: x[None], example)
            return posterior.log_likelihoods(position, single)[0]

        likelihoods, scores = jax.vmap(jax.value_and_grad(one), (None, 0))(position, batch)
        prior, slope = jax.value_and_grad(lambda x: posterior.log_prior(tree.thaw(x)))(position)
        gradient = jax.tree.map(lambda p, s: -p - n * jnp.mean(s, axis=0), slope, scores)
        potential = -prior - n * jnp.mean(likelihoods)
        return Estimate(gradient, potential, evaluations=jnp.int32(self.batch_size)), scores, state
