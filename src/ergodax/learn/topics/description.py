"""Topics as their words, and how well these go together."""

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from ergodax.learn.topics.corpus import Document, Vocabulary


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
        """Write topics.csv and topics.json.

        Args:
            folder: made if it does not exist.

        Returns:
            The paths by name.
        """
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
    """The topics' likeliest words and their coherence.

    Args:
        phi: each topic's distribution over words.
        shares: of the tokens that belong to each topic.
        vocabulary: names the words.
        documents: in which words occur together or not; read once.
        top: words a topic.

    Raises:
        ValueError: fewer words than `top`, or not a word's name for each column of phi.
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
    """The numbers of each topic's likeliest words.

    Args:
        phi: each topic's distribution over words.
        top: words a topic.

    Raises:
        ValueError: fewer words than `top`.
    """
    if not 1 <= top <= phi.shape[1]:
        raise ValueError(f"top must be in 1 to {phi.shape[1]}, the vocabulary's size, not {top}.")
    return np.argsort(-phi, axis=1, kind="stable")[:, :top]


def npmi(top: Int[np.ndarray, "K top"], documents: Iterable[Document]) -> Float[np.ndarray, " K"]:
    """Mean normalised pointwise mutual information of each topic's pairs of words.

    With p the share of documents that hold a word, or both words,
        NPMI(v, w) = log(p(v, w) / p(v) p(w)) / -log p(v, w)
    is 1 if v and w only come together, 0 if they are independent and -1 if they never meet.

    Args:
        top: numbers of at least two words a topic.
        documents: read once.

    Returns:
        The mean over pairs, between -1 and 1.

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
