"""Topics of a stream: documents that are seen once, in memory that does not grow."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from scipy.sparse import csr_array

from ergodax.learn.topics.gibbs import add_words, nothing_assigned, sweep
from ergodax.learn.topics.kernel import dirichlet
from ergodax.learn.topics.layout import Tokens, lay_out, shape_of

BATCH = 256  # documents between two changes of the topics
SWEEPS = 10  # over each document
# A document's weight is its place in the stream to the power GROWTH - 1. The first tenth has a
# hundredth of the weight, and the mean has the variance of an average over SHARE of all documents.
GROWTH = 2.0
SHARE = (2 * GROWTH - 1) / GROWTH**2


class Stream:
    """Weighted counts of a stream, from which the topics of the next documents are drawn.

    After D documents, the next n of them, with counts n_kw of topics' words drawn given phi, give
        m    <- (1 - w) m + w n_kw / n    with w = min(1, 2 n / (D + n))
        phi_k ~ Dirichlet(beta + 3/4 (D + n) m_k).
    The step w is of the order of n / D, as it must be for the noise of batches not to be larger
    than the posterior is wide: 3/4 of the documents is what the mean is worth. It has no constant
    that depends on the corpus. The law is approximate: topics of a document are not drawn anew
    once it has passed.

    Args:
        counts: n_kw of the documents before, shape (K, W).
        documents: how many these are.
        alpha: of the documents' weights.
        beta: of the topics' words.
        seed: of everything random.
    """

    def __init__(
        self,
        counts: Float[np.ndarray, "K W"],
        documents: int,
        alpha: Float[np.ndarray, " K"],
        beta: float,
        seed: int,
    ) -> None:
        self.mean = jnp.asarray(counts / documents, jnp.float32)
        self.documents, self.batches = documents, 0
        self.alpha, self.beta = jnp.asarray(alpha, jnp.float32), jnp.float32(beta)
        self.key = jax.random.key(seed)

    @property
    def counts(self) -> Float[np.ndarray, "K W"]:
        """What the documents so far are worth."""
        return SHARE * self.documents * np.asarray(self.mean, float)

    def learn(self, bags: csr_array) -> None:
        """Go on with more documents, shape (documents, words)."""
        for start in range(0, shape_of(bags)[0], BATCH):
            part = bags[start : start + BATCH]
            tokens, _ = lay_out(part)
            number = shape_of(part)[0]
            self.documents += number
            self.batches += 1
            worth = SHARE * (self.documents - number)
            step = min(1.0, GROWTH * number / self.documents)
            self.mean = _learn(
                jax.random.fold_in(self.key, self.batches), tokens,
                self.mean, jnp.float32(worth), jnp.float32(step / number),
                jnp.float32(step), self.alpha, self.beta,
            )  # fmt: skip

    def draws(self, number: int) -> Float[np.ndarray, "draws K W"]:
        """Independent draws of phi."""
        key = jax.random.fold_in(self.key, 2**30 + self.batches)
        pseudo = self.beta + SHARE * self.documents * self.mean
        return np.stack([np.asarray(dirichlet(k, pseudo)) for k in jax.random.split(key, number)])


@eqx.filter_jit
def _learn(
    key: PRNGKeyArray,
    tokens: Tokens,
    mean: Float[Array, "K W"],
    worth: Float[Array, ""],
    gained: Float[Array, ""],
    step: Float[Array, ""],
    alpha: Float[Array, " K"],
    beta: Float[Array, ""],
) -> Float[Array, "K W"]:
    """The mean with one more batch, given topics that are drawn anew."""
    phi = dirichlet(jax.random.fold_in(key, SWEEPS), beta + worth * mean)

    def one(i: Array, assigned: Array) -> Array:
        return sweep(jax.random.fold_in(key, i), tokens, assigned, phi, alpha)[0]

    assigned = jax.lax.fori_loop(0, SWEEPS, one, nothing_assigned(tokens, mean.shape[0]))
    return add_words((1.0 - step) * mean, tokens, assigned, gained)
