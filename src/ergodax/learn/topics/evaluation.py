"""How good topics are: held-out perplexity by document completion, and their words' coherence."""

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float, Int, Key

from ergodax.learn.topics.corpus import Document, Vocabulary
from ergodax.learn.topics.gibbs import Tokens, expand, expected_counts

HeldBack = Literal["tenth", "half"]
BLOCK = 10_000  # words whose probabilities are found at a time


@dataclasses.dataclass(frozen=True)
class Completion:
    """Test documents, each split into words that are seen and words to predict."""

    seen: list[Tokens]  # the tokens that are seen, many documents at a time
    # which document each held-back word is of, in the order of `seen`
    documents: Int[np.ndarray, " held"]
    words: Int[np.ndarray, " held"]  # the distinct held-back words of each document
    counts: Int[np.ndarray, " held"]  # how often each is held back


def split(
    documents: Iterable[Document],
    generator: np.random.Generator,
    held_back: HeldBack = "tenth",
    batch_size: int = 1_000,
) -> Completion:
    """Hold back every tenth, or second, token of each document. Raises: ValueError if none."""
    every = {"tenth": 10, "half": 2}[held_back]
    parts = [_split_document(document, generator, every) for document in documents]
    parts.sort(key=lambda part: -len(part[0].words))
    if not sum(held.num_tokens for _, held in parts):
        raise ValueError(f"no document has {every} tokens, so none is held back; try longer ones.")
    seen = [
        expand([document for document, _ in parts[start : start + batch_size]])
        for start in range(0, len(parts), batch_size)
    ]
    return Completion(
        seen,
        np.repeat(np.arange(len(parts)), [len(held.words) for _, held in parts]),
        np.concatenate([held.words for _, held in parts]).astype(int),
        np.concatenate([held.counts for _, held in parts]).astype(int),
    )


def _split_document(
    document: Document, generator: np.random.Generator, every: int
) -> tuple[Document, Document]:
    tokens = generator.permutation(np.repeat(document.words, document.counts))
    held = np.arange(1, len(tokens) + 1) % every == 0
    return _bag(tokens[~held]), _bag(tokens[held])


def _bag(tokens: np.ndarray) -> Document:
    words, counts = np.unique(tokens, return_counts=True)
    return Document(words.astype(np.int32), counts.astype(np.int32))


def infer_proportions(
    key: Key[Array, ""],
    completion: Completion,
    phi: Float[Array, "K W"],
    *,
    alpha: float,
    sweeps: int = 50,
    burn_in: int = 25,
) -> Float[np.ndarray, "n K"]:
    """The topics of the test documents given their seen words, by Gibbs sampling."""
    parts = []
    for number, tokens in enumerate(completion.seen):
        part = jax.random.fold_in(key, number)
        counts, _ = expected_counts(part, tokens, phi, alpha, sweeps, burn_in)
        parts.append(np.asarray(topic_proportions(counts, alpha)))
    return np.concatenate(parts)


def topic_proportions(counts: Float[Array, "n K"], alpha: float) -> Float[Array, "n K"]:
    """The expected topics of documents, eta = (alpha + n_dk) / (K alpha + n_d)."""
    return (alpha + counts) / (counts.shape[1] * alpha + jnp.sum(counts, axis=1, keepdims=True))


def word_probabilities(
    proportions: Float[np.ndarray, "n K"],
    phi: Float[np.ndarray, "K W"],
    documents: Int[np.ndarray, " held"],
    words: Int[np.ndarray, " held"],
) -> Float[np.ndarray, " held"]:
    """The probability of each word in its document, the sum of eta_dk phi_kw over topics."""
    by_word = np.ascontiguousarray(phi.T)
    blocks = [  # held x K numbers at once could fill the memory
        np.einsum("hk,hk->h", proportions[documents[block]], by_word[words[block]])
        for block in (slice(start, start + BLOCK) for start in range(0, len(words), BLOCK))
    ]
    return np.concatenate(blocks).astype(float)


def perplexity(
    probabilities: Float[np.ndarray, "*draws held"], counts: Int[np.ndarray, " held"]
) -> float:
    """The inverse geometric mean of the held-back tokens' probabilities, each `counts` times.

    Those of several draws are averaged first: the mean is the predictive probability, of which the
    logarithm is taken. A model that knows nothing has W.
    """
    mean = probabilities.reshape(-1, probabilities.shape[-1]).mean(axis=0)
    with np.errstate(divide="ignore"):
        return float(np.exp(-(counts @ np.log(mean)) / counts.sum()))


@dataclasses.dataclass
class Averaged:
    """Perplexity of the mean prediction of the later half of a run's snapshots.

    The earlier half, on the way to the posterior, is forgotten as the run goes on.
    """

    counts: Int[np.ndarray, " held"]  # of each held-back word
    # the probabilities of the snapshots that are averaged
    kept: list[np.ndarray] = dataclasses.field(default_factory=list)
    number: int = 0  # of all snapshots

    def add(self, probabilities: Float[np.ndarray, " held"]) -> float:
        """The perplexity with one more snapshot."""
        self.number += 1
        self.kept.append(probabilities.astype(np.float32))
        self.kept = self.kept[-((self.number + 1) // 2) :]
        return perplexity(np.stack(self.kept).astype(float), self.counts)


@dataclasses.dataclass(frozen=True)
class Topics:
    """Topics in descending order of their share.

    Attributes:
        words: of each topic, the likeliest first.
        probabilities: of those words.
        shares: of the tokens that belong to each topic.
        coherence: each topic's normalised pointwise mutual information.
    """

    words: list[list[str]]
    probabilities: Float[np.ndarray, "K top"]
    shares: Float[np.ndarray, " K"]
    coherence: Float[np.ndarray, " K"]

    @property
    def table(self) -> pd.DataFrame:
        """A row for each topic."""
        columns = {
            "topic": range(len(self.words)),
            "share": self.shares,
            "npmi": self.coherence,
            "words": [" ".join(words) for words in self.words],
        }
        return pd.DataFrame(columns)

    def write(self, folder: Path) -> dict[str, Path]:
        """Write topics.csv and topics.json into a folder; their paths by name."""
        folder.mkdir(parents=True, exist_ok=True)
        paths = {"topics": folder / "topics.csv", "topics_json": folder / "topics.json"}
        self.table.to_csv(paths["topics"], index=False)
        whole = [
            {"topic": k, "share": float(self.shares[k]), "npmi": float(self.coherence[k]),
             "words": dict(zip(words, self.probabilities[k].tolist(), strict=True))}
            for k, words in enumerate(self.words)
        ]  # fmt: skip
        paths["topics_json"].write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")
        return paths


def describe(
    phi: Float[np.ndarray, "K W"],
    shares: Float[np.ndarray, " K"],
    vocabulary: Vocabulary,
    documents: Iterable[Document],
    top: int = 10,
) -> Topics:
    """The topics' likeliest words, `top` of each, and their coherence; the documents are read once.

    Raises: ValueError for fewer words than `top`, or not a word's name for each column of phi.
    """
    if phi.shape[1] != len(vocabulary):
        raise ValueError(f"phi has {phi.shape[1]} words, the vocabulary {len(vocabulary)}.")
    order = np.argsort(-shares)
    best = top_words(phi[order], top)
    return Topics(
        [[vocabulary.words[word] for word in row] for row in best],
        np.take_along_axis(phi[order], best, axis=1),
        shares[order],
        npmi(best, documents),
    )


def top_words(phi: Float[np.ndarray, "K W"], top: int) -> Int[np.ndarray, "K top"]:
    """The numbers of each topic's likeliest words. Raises: ValueError: fewer words than `top`."""
    if not 1 <= top <= phi.shape[1]:
        raise ValueError(f"top must be in 1 to {phi.shape[1]}, the vocabulary's size, not {top}.")
    return np.argsort(-phi, axis=1, kind="stable")[:, :top]


def npmi(top: Int[np.ndarray, "K top"], documents: Iterable[Document]) -> Float[np.ndarray, " K"]:
    """Mean normalised pointwise mutual information of each topic's pairs of words.

    With p the share of documents that hold a word, or both words,
        NPMI(v, w) = log(p(v, w) / p(v) p(w)) / -log p(v, w)
    is 1 if v and w only come together, 0 if they are independent and -1 if they never meet.

    The topics' words are given by their numbers, and the documents are read once.

    Raises:
        ValueError: fewer than two words a topic, or no documents.

    Reference:
        Bouma, Normalized (pointwise) mutual information in collocation extraction, 2009.
    """
    if top.shape[1] < 2:
        raise ValueError("top must have at least two words a topic: coherence is of pairs.")
    words = np.unique(top)
    together, total = np.zeros((len(words), len(words))), 0
    for document in documents:
        present = np.flatnonzero(np.isin(words, document.words))
        together[np.ix_(present, present)] += 1
        total += 1
    if not total:
        raise ValueError("documents is empty; give those the topics were learnt from.")
    both = together / total
    alone = np.diag(both)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.log(both / (alone[:, None] * alone[None, :])) / -np.log(both)
    values[both == 1] = 1.0
    values[both == 0] = -1.0
    places = np.searchsorted(words, top)
    first, second = np.triu_indices(top.shape[1], 1)
    return values[places[:, first], places[:, second]].mean(axis=1)
