"""Held-out perplexity by document completion."""

import dataclasses
from collections.abc import Iterable
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from ergodax.learn.topics.batches import pad
from ergodax.learn.topics.corpus import Document
from ergodax.learn.topics.gibbs import Tokens, expand, expected_counts

HeldBack = Literal["tenth", "half"]


@dataclasses.dataclass(frozen=True)
class Completion:
    """Test documents, each split into words that are seen and words to predict.

    Attributes:
        seen: the tokens that are seen, many documents at a time.
        documents: which document each held-back word is of, in the order of `seen`.
        words: the distinct held-back words of each document.
        counts: how often each is held back.
    """

    seen: list[Tokens]
    documents: Int[np.ndarray, " held"]
    words: Int[np.ndarray, " held"]
    counts: Int[np.ndarray, " held"]


def split(
    documents: Iterable[Document],
    generator: np.random.Generator,
    held_back: HeldBack = "tenth",
    batch_size: int = 1_000,
) -> Completion:
    """Hold back every tenth, or every second, token of each document in random order.

    Args:
        documents: to test on.
        generator: of the order of the tokens.
        held_back: "tenth" or "half".
        batch_size: documents predicted at a time.

    Raises:
        ValueError: no token is held back, because the documents are too short.
    """
    every = {"tenth": 10, "half": 2}[held_back]
    parts = [_split_document(document, generator, every) for document in documents]
    parts.sort(key=lambda part: -len(part[0].words))
    if not sum(held.num_tokens for _, held in parts):
        raise ValueError(f"no document has {every} tokens, so none is held back; try longer ones.")
    # `pad` orders by length, stably: documents stay in the order of `parts`.
    seen = [
        expand(pad(document for document, _ in parts[start : start + batch_size]))
        for start in range(0, len(parts), batch_size)
    ]
    return Completion(
        seen,
        np.repeat(np.arange(len(parts)), [len(held.words) for _, held in parts]),
        np.concatenate([held.words for _, held in parts]).astype(int),
        np.concatenate([held.counts for _, held in parts]).astype(int),
    )


def infer_proportions(
    key: Key[Array, ""],
    completion: Completion,
    phi: Float[Array, "K W"],
    *,
    alpha: float,
    sweeps: int = 50,
    burn_in: int = 25,
) -> Float[np.ndarray, "n K"]:
    """The topics of the test documents given their seen words, by Gibbs sampling.

    Args:
        key: of the Gibbs sampling.
        completion: the test documents.
        phi: each topic's distribution over words.
        alpha: of the Dirichlet prior of a document's topics.
        sweeps: of the Gibbs sampler.
        burn_in: sweeps that are not averaged.
    """
    parts = []
    for number, tokens in enumerate(completion.seen):
        part = jax.random.fold_in(key, number)
        counts, _ = expected_counts(part, tokens, phi, alpha, sweeps, burn_in)
        parts.append(np.asarray(topic_proportions(counts, alpha)))
    return np.concatenate(parts)


def topic_proportions(counts: Float[Array, "n K"], alpha: float) -> Float[Array, "n K"]:
    """The expected topics of documents, eta = (alpha + n_dk) / (K alpha + n_d).

    Args:
        counts: expected words of each topic.
        alpha: of the Dirichlet prior.
    """
    return (alpha + counts) / (counts.shape[1] * alpha + jnp.sum(counts, axis=1, keepdims=True))


def word_probabilities(
    proportions: Float[np.ndarray, "n K"],
    phi: Float[np.ndarray, "K W"],
    documents: Int[np.ndarray, " held"],
    words: Int[np.ndarray, " held"],
) -> Float[np.ndarray, " held"]:
    """The probability of each word in its document, the sum of eta_dk phi_kw over topics.

    Args:
        proportions: eta of each document.
        phi: each topic's distribution over words.
        documents: of each word.
        words: the numbers of the words.
    """
    by_word = np.ascontiguousarray(phi.T)
    blocks = [  # a block at a time: held x K numbers could fill the memory
        np.einsum("hk,hk->h", proportions[documents[block]], by_word[words[block]])
        for block in (slice(start, start + 10_000) for start in range(0, len(words), 10_000))
    ]
    return np.concatenate(blocks).astype(float)


def perplexity(
    probabilities: Float[np.ndarray, "*draws held"], counts: Int[np.ndarray, " held"]
) -> float:
    """The inverse geometric mean of the held-back tokens' probabilities.

    The probabilities are averaged over posterior draws first: the mean is the predictive
    probability, of which the logarithm is taken. A model that knows nothing has W.

    Args:
        probabilities: of each held-back word, of one draw or with an axis of draws.
        counts: of each held-back word.
    """
    mean = probabilities.reshape(-1, probabilities.shape[-1]).mean(axis=0)
    with np.errstate(divide="ignore"):
        return float(np.exp(-(counts @ np.log(mean)) / counts.sum()))


class Averaged:
    """Perplexity of the mean prediction of the later half of a run's snapshots.

    The earlier half, on the way to the posterior, is forgotten as the run goes on.

    Args:
        counts: of each held-back word.
        kept: of an average that goes on, its `kept`.
        number: and how many snapshots it had.
    """

    def __init__(
        self, counts: Int[np.ndarray, " held"], kept: Iterable[np.ndarray] = (), number: int = 0
    ) -> None:
        self.counts = counts
        self.kept = list(kept)
        self.number = number

    def add(self, probabilities: Float[np.ndarray, " held"]) -> float:
        """The perplexity with one more snapshot.

        Args:
            probabilities: of each held-back word.
        """
        self.number += 1
        self.kept.append(probabilities.astype(np.float32))
        self.kept = self.kept[-((self.number + 1) // 2) :]
        return perplexity(np.stack(self.kept).astype(float), self.counts)


def _split_document(
    document: Document, generator: np.random.Generator, every: int
) -> tuple[Document, Document]:
    tokens = generator.permutation(np.repeat(document.words, document.counts))
    held = np.arange(1, len(tokens) + 1) % every == 0
    return _bag(tokens[~held]), _bag(tokens[held])


def _bag(tokens: np.ndarray) -> Document:
    words, counts = np.unique(tokens, return_counts=True)
    return Document(words.astype(np.int32), counts.astype(np.int32))
