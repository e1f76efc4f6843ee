"""The stream of documents: a corpus divided, its documents shuffled, and batches of them."""

import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator

import numpy as np

from ergodax.learn.topics.corpus import Corpus, Document

BUFFER = 5_000  # documents among which the order is random


def batches(documents: Iterable[Document], batch_size: int) -> Iterator[list[Document]]:
    """Batches of documents in their order; those that do not fill a last batch are left over.

    If the order is random, a batch is a uniform random subset, and |D| / n times a sum over it is
    unbiased.

    Args:
        documents: in random order.
        batch_size: documents a batch, n.

    Raises:
        ValueError: batch_size is not positive.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, not {batch_size}.")
    documents = iter(documents)
    parts = iter(lambda: list(itertools.islice(documents, batch_size)), [])
    return (part for part in parts if len(part) == batch_size)


@dataclasses.dataclass(frozen=True)
class Division:
    """A corpus divided into documents to train on, to choose on and to test on."""

    read: Callable[[], Iterator[Document]]  # starts a pass over the corpus
    left_out: frozenset[int]  # places of documents that are not trained on
    num_documents: int  # to train on
    test: list[Document]  # documents of the final figures
    validation: list[Document]  # documents that choose from a grid
    digest: str  # of the whole corpus: its words, its documents and the file's own test documents

    def stream(self, documents: int, seed: int, repeat: int) -> Iterator[Document]:
        """The documents of a run, in an order that every method meets in that repeat."""
        generator = np.random.default_rng([seed, 1, repeat])
        endlessly = endless(self.read, self.left_out)
        buffer = min(BUFFER, self.num_documents)
        return itertools.islice(shuffled(endlessly, buffer, generator), documents)


def divide(corpus: Corpus, test: int, validation: int, seed: int) -> Division:
    """Hold documents out at random; the file's own test documents come first.

    Raises:
        ValueError: fewer documents than are held out.
    """
    own = [] if corpus.read_test is None else list(itertools.islice(corpus.read_test(), test))
    wanted = validation + test - len(own)
    if wanted >= corpus.num_documents:
        raise ValueError(
            f"test={test} leaves no document of {corpus.num_documents} to train on; hold out fewer."
        )
    # Drawn apart, so that the test documents are the same with validation and without.
    tested, drawn = (
        np.random.default_rng([seed, 0, part]).choice(corpus.num_documents, size, replace=False)
        for part, size in enumerate((test - len(own), wanted))
    )
    chosen = [*tested, *drawn[~np.isin(drawn, tested)][:validation]]
    left_out = frozenset(int(place) for place in chosen)
    digest = hashlib.blake2b("\n".join(corpus.vocabulary.words).encode(), digest_size=16)
    found = {}
    for place, each in enumerate(corpus.read()):
        _add(digest, each)
        if place in left_out:
            found[place] = each
    for each in own:
        _add(digest, each)
    held = [found[int(place)] for place in chosen]
    return Division(
        corpus.read,
        left_out,
        corpus.num_documents - wanted,
        own + held[: len(tested)],
        held[len(tested) :],
        digest.hexdigest(),
    )


def _add(digest: "hashlib.blake2b", document: Document) -> None:
    """A document's distinct words, in their order, and how often each occurs."""
    digest.update(len(document.words).to_bytes(8, "little"))
    for numbers in (document.words, document.counts):
        digest.update(np.ascontiguousarray(numbers, "<i8").data)


def endless(
    read: Callable[[], Iterator[Document]], without: Collection[int] = ()
) -> Iterator[Document]:
    """Pass after pass over a corpus, `without` the documents at some places, counted from 0.

    Raises:
        ValueError: a pass has no documents.
    """
    left_out = frozenset(without)
    while True:
        empty = True
        for place, document in enumerate(read()):
            if place not in left_out:
                empty = False
                yield document
        if empty:
            raise ValueError("the corpus has no documents to train on; hold out fewer.")


def shuffled(
    documents: Iterable[Document], buffer: int, generator: np.random.Generator
) -> Iterator[Document]:
    """The documents in an order that is random within a buffer; each comes once.

    Raises:
        ValueError: buffer is not positive.
    """
    if buffer < 1:
        raise ValueError(f"buffer must be at least 1, not {buffer}.")
    documents = iter(documents)
    held = list(itertools.islice(documents, buffer))
    generator.shuffle(held)
    for document in documents:
        place = int(generator.integers(len(held)))
        held[place], document = document, held[place]
        yield document
    yield from held
