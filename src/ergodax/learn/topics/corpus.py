"""Words, vocabularies and documents as bags of words."""

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

GAP = re.compile(r"[-\s]+")
NOT_A_LETTER = re.compile(r"[^a-z ]")


class Document(NamedTuple):
    """The distinct words of a document, by number, and how often each occurs."""

    words: np.ndarray
    counts: np.ndarray

    @property
    def num_tokens(self) -> int:
        """Words of the document, repetitions counted."""
        return int(self.counts.sum())


def tokenise(text: str) -> list[str]:
    """The words of a text: lower case, hyphens separate, all but a to z dropped.

    Args:
        text: of one document.

    Returns:
        The words in their order, so `"Don't re-enter"` becomes dont, re, enter.
    """
    return NOT_A_LETTER.sub("", GAP.sub(" ", text.lower())).split()


class Vocabulary:
    """The words a model knows, numbered from 0.

    Args:
        words: all different, at least one.

    Raises:
        ValueError: no words, or one of them twice.
    """

    def __init__(self, words: Iterable[str]) -> None:
        self.words = tuple(words)
        if not self.words:
            raise ValueError("words is empty: a vocabulary has at least one word.")
        for first, second in pairwise(sorted(self.words)):
            if first == second:
                raise ValueError(f"words has {first!r} twice; list each word once.")

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of each word."""
        return {word: number for number, word in enumerate(self.words)}

    def bag(self, text: str) -> Document:
        """A text as a bag of the vocabulary's words; the others are dropped.

        Args:
            text: of one document.
        """
        numbers = self.numbers
        found = Counter(numbers[word] for word in tokenise(text) if word in numbers)
        return Document(
            np.fromiter(found.keys(), np.int32, len(found)),
            np.fromiter(found.values(), np.int32, len(found)),
        )

    @classmethod
    def build(
        cls,
        texts: Iterable[str],
        *,
        min_documents: int = 5,
        max_share: float = 0.5,
        stop_words: Collection[str] = (),
        max_words: int | None = None,
    ) -> "tuple[Vocabulary, int]":
        """Choose the words that are neither rare nor everywhere.

        One pass; memory grows with the number of distinct words only.

        Args:
            texts: of the documents.
            min_documents: a word of fewer documents is dropped.
            max_share: a word of a larger share of the documents is dropped.
            stop_words: dropped in any case; see `english_stop_words`.
            max_words: keep the words of most documents only.

        Returns:
            The vocabulary in alphabetical order, and the number of documents.

        Raises:
            ValueError: a number out of range, or no word is left.
        """
        if not 0 < max_share <= 1:
            raise ValueError(f"max_share must be in (0, 1], not {max_share}.")
        documents, total = Counter(), 0
        for text in texts:
            documents.update(set(tokenise(text)))
            total += 1
        stops = frozenset(stop_words)
        kept = {
            word: number
            for word, number in documents.items()
            if min_documents <= number <= max_share * total and word not in stops
        }
        if not kept:
            raise ValueError(
                f"no word is in at least {min_documents} and at most {max_share:.0%} of the "
                f"{total} documents; lower min_documents or raise max_share."
            )
        frequent = sorted(kept, key=lambda word: (-kept[word], word))[:max_words]
        return cls(sorted(frequent)), total

    @classmethod
    def read(cls, path: Path) -> "Vocabulary":
        """Read a file of one word a line; the words are put in lower case.

        Args:
            path: of the file, UTF-8.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: no words, or one of them twice.
        """
        lines = path.read_text(encoding="utf-8").split("\n")
        return cls(line.strip().lower() for line in lines if line.strip())

    @classmethod
    def numbered(cls, size: int) -> "Vocabulary":
        """Stand-ins for words whose names are not known: word0, word1 ...

        Args:
            size: how many.

        Raises:
            ValueError: size is not positive.
        """
        if size < 1:
            raise ValueError(f"size must be at least 1, not {size}.")
        return cls(f"word{number}" for number in range(size))


def english_stop_words() -> frozenset[str]:
    """The stop words of scikit-learn, as `tokenise` writes them."""
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    return frozenset(word for text in ENGLISH_STOP_WORDS for word in tokenise(text))


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Documents that are read anew at every pass, never held together.

    Attributes:
        read: starts a pass over the documents.
        vocabulary: whose numbers the documents hold.
        num_documents: in a pass.
        read_test: starts a pass over test documents that the file sets apart, or None.
    """

    read: Callable[[], Iterator[Document]]
    vocabulary: Vocabulary
    num_documents: int
    read_test: Callable[[], Iterator[Document]] | None = None
