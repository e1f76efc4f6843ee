"""A corpus divided into documents to train on and to test on, and the stream of the former."""

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator

import numpy as np

from ergodax.learn.topics.corpus import Corpus, Document

BUFFER = 5_000  # documents among which the order is random


@dataclasses.dataclass(frozen=True)
class Division:
    """A corpus divided into documents to train on, to choose on and to test on.

    Attributes:
        read: starts a pass over the corpus.
        left_out: places of documents that are not trained on.
        num_documents: to train on.
        test: documents of the final figures.
        validation: documents that choose from a grid.
    """

    read: Callable[[], Iterator[Document]]
    left_out: frozenset[int]
    num_documents: int
    test: list[Document]
    validation: list[Document]

    def stream(self, documents: int, seed: int, repeat: int) -> Iterator[Document]:
        """The documents of a run, in an order that every method meets in that repeat.

        Args:
            documents: how many.
            seed: of the experiment.
            repeat: number of the run.
        """
        generator = np.random.default_rng([seed, 1, repeat])
        endlessly = endless(self.read, self.left_out)
        buffer = min(BUFFER, self.num_documents)
        return itertools.islice(shuffled(endlessly, buffer, generator), documents)


def divide(corpus: Corpus, test: int, validation: int, seed: int) -> Division:
    """Hold documents out at random; the file's own test documents come first.

    Args:
        corpus: to divide.
        test: documents to test on.
        validation: documents to choose on.
        seed: of the choice.

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
    found = {place: each for place, each in enumerate(corpus.read()) if place in left_out}
    held = [found[int(place)] for place in chosen]
    return Division(
        corpus.read,
        left_out,
        corpus.num_documents - wanted,
        own + held[: len(tested)],
        held[len(tested) :],
    )


def endless(
    read: Callable[[], Iterator[Document]], without: Collection[int] = ()
) -> Iterator[Document]:
    """Pass after pass over a corpus.

    Args:
        read: starts a pass.
        without: places, counted from 0, of documents to leave out.

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

    Args:
        documents: any number of them.
        buffer: how many are held; a document comes out after a geometric time of this mean.
        generator: of the order.

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
