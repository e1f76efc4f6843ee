"""The gradient of latent Dirichlet allocation from one batch of documents."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ergodax.gradient.base import Estimate, GradientEstimator
from ergodax.learn.topics.batches import Batch
from ergodax.learn.topics.gibbs import Tokens, expand, expected_counts
from ergodax.target.base import AbstractTarget


class TopicPrior(AbstractTarget):
    """The prior of the topics: independent theta_kw ~ Gamma(beta, 1), theta > 0.

    The word probabilities phi_kw = theta_kw / sum_w theta_kw are then Dirichlet(beta).

    Args:
        beta: positive.
    """

    beta: Float[Array, ""] = eqx.field(converter=jnp.asarray)

    def potential(self, position: Float[Array, "K W"]) -> Float[Array, ""]:
        """The sum of theta - (beta - 1) log theta."""
        beta = self.beta.astype(position.dtype)
        return jnp.sum(position - (beta - 1.0) * jnp.log(position))

    def gradient(self, position: Float[Array, "K W"]) -> Float[Array, "K W"]:
        """1 - (beta - 1) / theta."""
        return 1.0 - (self.beta.astype(position.dtype) - 1.0) / position


class TopicGradient(GradientEstimator):
    """The gradient of U from the batch of documents that its state holds.

    With S the batch, D the number of documents and n the topic counts of a document's tokens,
        dU/dtheta_kw = 1 - (beta - 1) / theta_kw
                       - (D / |S|) sum over d in S of E[n_dkw / theta_kw - n_dk / theta_k.],
    where the expectation given words and theta comes from collapsed Gibbs sampling
    (`expected_counts`). That it is of finite length is a bias, which no covariance accounts for.

    An estimate costs |S| evaluations. It makes none of the potential.

    Args:
        beta: of the topics' prior, positive.
        alpha: of the document weights' prior, Dirichlet(alpha); positive.
        num_documents: D.
        sweeps: of the Gibbs sampler over each document.
        burn_in: how many of them are left out of the average.

    Raises:
        ValueError: a number that is not positive.

    Reference:
        Patterson and Teh, Stochastic gradient Riemannian Langevin dynamics on the probability
        simplex, 2013.
    """

    target: TopicPrior
    alpha: Float[Array, ""]
    num_documents: Float[Array, ""]
    sweeps: int = eqx.field(static=True)
    burn_in: int = eqx.field(static=True)

    def __init__(
        self, beta: Any, alpha: Any, num_documents: Any, *, sweeps: int = 50, burn_in: int = 25
    ) -> None:
        for name, value in (("beta", beta), ("alpha", alpha), ("num_documents", num_documents)):
            if not value > 0:
                raise ValueError(f"{name} must be positive, not {value}.")
        self.target = TopicPrior(float(beta))
        self.alpha = jnp.asarray(float(alpha))
        self.num_documents = jnp.asarray(float(num_documents))
        self.sweeps, self.burn_in = sweeps, burn_in

    def init(self, key: PRNGKeyArray, position: Float[Array, "K W"]) -> None:
        """No batch yet: see `feed`."""
        self.target.check(position)

    def feed(self, state: Tokens | None, batch: Batch | Tokens) -> Tokens:
        """The state with the next batch, which every estimate uses until another is fed."""
        return batch if isinstance(batch, Tokens) else expand(batch)

    def estimate(
        self, key: PRNGKeyArray, state: Tokens | None, position: Float[Array, "K W"]
    ) -> tuple[Estimate, Tokens]:
        """The gradient at theta.

        Raises:
            ValueError: no batch has been fed.
        """
        if state is None:
            raise ValueError(
                "there is no batch yet; feed one: state = gradient.feed(state, batch)."
            )
        n = state.places.shape[0]
        mass = jnp.sum(position, axis=1, keepdims=True)
        counts = expected_counts(
            key, state, position / mass, self.alpha, self.sweeps, self.burn_in
        )[1]
        score = counts / position - jnp.sum(counts, axis=1, keepdims=True) / mass
        scale = (self.num_documents / n).astype(position.dtype)
        gradient = self.target.gradient(position) - scale * score
        nothing = jnp.asarray(jnp.nan, position.dtype)
        return Estimate(gradient, nothing, evaluations=jnp.int32(n)), state
