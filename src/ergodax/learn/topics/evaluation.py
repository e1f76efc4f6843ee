"""How good topics are: held-out perplexity by document completion, and their words' coherence."""

import dataclasses
import json
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from jaxtyping import Float, Int, PRNGKeyArray
from scipy.sparse import coo_array, csr_array

from ergodax.learn.topics.corpus import Vocabulary
from ergodax.learn.topics.gibbs import document_weights
from ergodax.learn.topics.layout import shape_of

HeldBack = Literal["tenth", "half"]
BLOCK = 10_000  # words whose probabilities are found at a time


@dataclasses.dataclass(frozen=True)
class Completion:
    """Documents, each split into words that are seen and words to predict.

    Attributes:
        seen: counts of the words that are seen, shape (documents, words).
        documents: of each held-back word.
        words: the distinct held-back words of each document.
        counts: how often each is held back.
    """

    seen: csr_array
    documents: Int[np.ndarray, " held"]
    words: Int[np.ndarray, " held"]
    counts: Int[np.ndarray, " held"]

    def probabilities(
        self,
        key: PRNGKeyArray,
        phis: Float[np.ndarray, "draws K W"],
        alpha: Float[np.ndarray, " K"],
        *,
        burn_in: int = 20,
        sweeps: int = 10,
    ) -> Float[np.ndarray, "draws held"]:
        """The probability of each held-back word given the seen ones, by each draw of phi."""
        weights = document_weights(key, self.seen, phis, alpha, burn_in=burn_in, sweeps=sweeps)
        return np.stack([self._of_draw(w, phi) for w, phi in zip(weights, phis, strict=True)])

    def _of_draw(
        self, weights: Float[np.ndarray, "documents K"], phi: Float[np.ndarray, "K W"]
    ) -> Float[np.ndarray, " held"]:
        by_word = np.ascontiguousarray(phi.T)
        blocks = [  # held x K numbers at once could fill the memory
            np.einsum("hk,hk->h", weights[self.documents[block]], by_word[self.words[block]])
            for block in (slice(start, start + BLOCK) for start in range(0, len(self.words), BLOCK))
        ]
        return np.concatenate(blocks).astype(float)


def hold_back(
    bags: csr_array, generator: np.random.Generator, held_back: HeldBack = "tenth"
) -> Completion:
    """Hold back every tenth, or second, token of each document in random order.

    Args:
        bags: counts of words, shape (documents, words).
        generator: of the order.
        held_back: "tenth" or "half".

    Raises:
        ValueError: there is none.

    Example:
        >>> import numpy as np, scipy
        >>> from ergodax.learn import topics
        >>> bags = scipy.sparse.csr_array(np.array([[3, 1, 0], [0, 2, 2]]))  # four tokens each
        >>> found = topics.hold_back(bags, np.random.default_rng(0), "half")
        >>> found.seen.sum(axis=1).tolist(), int(found.counts.sum())
        ([2, 2], 4)
    """
    every = {"tenth": 10, "half": 2}[held_back]
    counts = bags.data.astype(np.int64)
    document = np.repeat(np.repeat(np.arange(shape_of(bags)[0]), np.diff(bags.indptr)), counts)
    word = np.repeat(bags.indices, counts)
    order = np.lexsort((generator.random(len(word)), document))  # random within each document
    lengths = np.bincount(document, minlength=shape_of(bags)[0])
    within = np.arange(len(word)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    held = np.zeros(len(word), bool)
    held[order] = (within + 1) % every == 0
    if not held.any():
        raise ValueError(f"no document has {every} tokens, so none is held back; try longer ones.")

    def counted(chosen: np.ndarray) -> coo_array:
        ones = np.ones(chosen.sum(), np.int64)
        return coo_array((ones, (document[chosen], word[chosen])), bags.shape).tocsr().tocoo()

    predicted = counted(held)
    return Completion(
        counted(~held).tocsr(), predicted.coords[0], predicted.coords[1], predicted.data
    )


def perplexity(
    probabilities: Float[np.ndarray, "*draws held"], counts: Int[np.ndarray, " held"]
) -> float:
    """The inverse geometric mean of the held-back tokens' probabilities, each `counts` times.

    Those of several draws are averaged first: the mean is the predictive probability, of which the
    logarithm is taken. A model that knows nothing has W.

    Args:
        probabilities: of each held-back word, by one draw of the topics or several.
        counts: how often each is held back.

    Example:
        >>> import numpy as np
        >>> from ergodax.learn import topics
        >>> round(topics.perplexity(np.array([0.25, 0.25]), np.array([3, 1])), 6)
        4.0
    """
    mean = probabilities.reshape(-1, probabilities.shape[-1]).mean(axis=0)
    with np.errstate(divide="ignore"):
        return float(np.exp(-(counts @ np.log(mean)) / counts.sum()))


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
    bags: csr_array,
    top: int = 10,
) -> Topics:
    """The topics' likeliest words, and their coherence in documents.

    Args:
        phi: each topic's distribution over words.
        shares: of the tokens that belong to each topic.
        vocabulary: names of the words.
        bags: the documents, counts of words of shape (documents, words).
        top: words of each topic.

    Raises:
        ValueError: fewer words than `top`, or not a word's name for each column of phi.

    Example:
        >>> import numpy as np, scipy
        >>> from ergodax.learn import topics
        >>> names = topics.Vocabulary(["cat", "dog", "law"])
        >>> phi, shares = np.array([[0.6, 0.3, 0.1], [0.0, 0.2, 0.8]]), np.array([0.4, 0.6])
        >>> bags = scipy.sparse.csr_array(np.array([[2, 1, 0], [0, 0, 3]]))
        >>> topics.describe(phi, shares, names, bags, top=2).words  # the larger topic comes first
        [['law', 'dog'], ['cat', 'dog']]
    """
    if phi.shape[1] != len(vocabulary):
        raise ValueError(f"phi has {phi.shape[1]} words, the vocabulary {len(vocabulary)}.")
    order = np.argsort(-shares)
    best = top_words(phi[order], top)
    return Topics(
        [[vocabulary.words[word] for word in row] for row in best],
        np.take_along_axis(phi[order], best, axis=1),
        shares[order],
        npmi(best, bags),
    )


def top_words(phi: Float[np.ndarray, "K W"], top: int) -> Int[np.ndarray, "K top"]:
    """The numbers of each topic's likeliest words.

    Args:
        phi: each topic's distribution over words.
        top: words of each topic.

    Raises:
        ValueError: fewer words than `top`.

    Example:
        >>> import numpy as np
        >>> from ergodax.learn import topics
        >>> topics.top_words(np.array([[0.1, 0.6, 0.3], [0.7, 0.1, 0.2]]), 2).tolist()
        [[1, 2], [0, 2]]
    """
    if not 1 <= top <= phi.shape[1]:
        raise ValueError(f"top must be in 1 to {phi.shape[1]}, the vocabulary's size, not {top}.")
    return np.argsort(-phi, axis=1, kind="stable")[:, :top]


def npmi(top: Int[np.ndarray, "K top"], bags: csr_array) -> Float[np.ndarray, " K"]:
    """Mean normalised pointwise mutual information of each topic's pairs of words.

    With p the share of documents that hold a word, or both words,
        NPMI(v, w) = log(p(v, w) / p(v) p(w)) / -log p(v, w)
    is 1 if v and w only come together, 0 if they are independent and -1 if they never meet.

    Args:
        top: the topics' words, by their numbers.
        bags: of the documents, shape (documents, words).

    Raises:
        ValueError: fewer than two words a topic, or no documents.

    Example:
        >>> import numpy as np, scipy
        >>> from ergodax.learn import topics
        >>> bags = scipy.sparse.csr_array(np.array([[2, 1, 0], [0, 0, 3]]))
        >>> topics.npmi(np.array([[0, 1], [1, 2]]), bags).tolist()  # always together, and never
        [1.0, -1.0]

    Reference:
        Bouma, Normalized (pointwise) mutual information in collocation extraction, 2009.
    """
    if top.shape[1] < 2:
        raise ValueError("top must have at least two words a topic: coherence is of pairs.")
    if not shape_of(bags)[0]:
        raise ValueError("bags has no documents; give those the topics were learnt from.")
    words = np.unique(top)
    present = (bags[:, words] > 0).astype(np.int64)
    both = (present.T @ present).toarray() / shape_of(bags)[0]
    alone = np.diag(both)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.log(both / (alone[:, None] * alone[None, :])) / -np.log(both)
    values[both == 1] = 1.0
    values[both == 0] = -1.0
    places = np.searchsorted(words, top)
    first, second = np.triu_indices(top.shape[1], 1)
    return values[places[:, first], places[:, second]].mean(axis=1)
