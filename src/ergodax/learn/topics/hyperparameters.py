"""The two Dirichlet priors of a topic model, fitted to the topics that its tokens have."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.special import digamma, gammaln

from ergodax.learn.topics.gibbs import count_topics
from ergodax.learn.topics.layout import Tokens

ROUNDS, CLOSE = 100, 1e-4  # of the fixed point: at most, and the relative change that ends it
# alpha has a Gamma(1.001, 1) prior, so that a topic without tokens has a positive weight still.
SHAPE, RATE = 1.001, 1.0

Sums = tuple[Array, Array]


@dataclasses.dataclass(frozen=True)
class Tables:
    """All that the priors need of the topics of all tokens.

    Attributes:
        documents: for each topic, how many documents have n = 0, 1, 2, ... tokens of it.
        lengths: how many documents have n tokens.
        values: the different n_kw of topics and words.
        words: how many pairs of topic and word have that n_kw.
        totals: n_k, the tokens of each topic.
        size: W, the number of words.
    """

    documents: Float[np.ndarray, "K longest"]
    lengths: Float[np.ndarray, " longest"]
    values: Float[np.ndarray, " different"]
    words: Float[np.ndarray, " different"]
    totals: Float[np.ndarray, " K"]
    size: int


def count_tables(
    tokens: Tokens, assigned: Array, counts: Int[Array, "K W"], longest: int
) -> Tables:
    """Count, over all blocks.

    Args:
        tokens: in blocks.
        assigned: the topic of each.
        counts: n_kw.
        longest: tokens of the longest document.
    """
    of_documents, lengths = _histograms(tokens, assigned, counts.shape[0], longest)
    values, words = np.unique(np.asarray(counts, float), return_counts=True)
    totals = np.asarray(counts, float).sum(axis=1)
    return Tables(
        np.asarray(of_documents, float), np.asarray(lengths, float), values, words.astype(float),
        totals, counts.shape[1],
    )  # fmt: skip


@eqx.filter_jit
def _histograms(tokens: Tokens, assigned: Array, num_topics: int, longest: int) -> Sums:
    topics = jnp.arange(num_topics)[None, :, None]

    def block(
        sums: tuple[Array, Array], given: tuple[Tokens, Array]
    ) -> tuple[tuple[Array, Array], None]:
        counts = count_topics(*given, num_topics).astype(jnp.int32)
        here = jnp.broadcast_to(topics, counts.shape)
        return (
            sums[0].at[here, counts].add(1),
            sums[1].at[jnp.sum(counts, axis=1)].add(1),
        ), None

    none = jnp.zeros((num_topics, longest + 1), jnp.int32), jnp.zeros(longest + 1, jnp.int32)
    return jax.lax.scan(block, none, (tokens, assigned))[0]


def fit_alpha(found: Tables, alpha: Float[np.ndarray, " K"]) -> Float[np.ndarray, " K"]:
    """The alpha at which the topics of documents are likeliest, by Minka's fixed point.

    Reference:
        Minka, Estimating a Dirichlet distribution, 2000; Wallach, Mimno and McCallum, Rethinking
        LDA: why priors matter, 2009.
    """
    n = np.arange(found.lengths.size)
    for _ in range(ROUNDS):
        total = alpha.sum()
        gain = (found.documents * (digamma(n + alpha[:, None]) - digamma(alpha)[:, None])).sum(1)
        loss = found.lengths @ (digamma(n + total) - digamma(total))
        new = (SHAPE - 1.0 + alpha * gain) / (RATE + loss)
        alpha, before = np.maximum(new, 1e-8), alpha
        if np.abs(alpha - before).max() <= CLOSE * before.max():
            break
    return alpha


def fit_beta(found: Tables, beta: float) -> float:
    """The beta at which the words of topics are likeliest, likewise."""
    size = found.size
    for _ in range(ROUNDS):
        gain = found.words @ (digamma(found.values + beta) - digamma(beta))
        loss = size * (digamma(found.totals + size * beta) - digamma(size * beta)).sum()
        beta, before = max(beta * gain / loss, 1e-8) if loss else beta, beta
        if abs(beta - before) <= CLOSE * before:
            break
    return float(beta)


def log_likelihood(found: Tables, alpha: Float[np.ndarray, " K"], beta: float) -> float:
    """log p(words, topics | alpha, beta) for each token in nats, phi and weights integrated out.

    The arrangement of a document's tokens is not counted.
    """
    n, total, size = np.arange(found.lengths.size), alpha.sum(), found.size
    of_documents = (
        found.documents * (gammaln(n + alpha[:, None]) - gammaln(alpha)[:, None])
    ).sum() - found.lengths @ (gammaln(n + total) - gammaln(total))
    of_words = (
        found.words @ (gammaln(found.values + beta) - gammaln(beta))
        - (gammaln(found.totals + size * beta) - gammaln(size * beta)).sum()
    )
    return float((of_documents + of_words) / max(found.totals.sum(), 1.0))
