"""Minibatches of a stream of documents, padded to few shapes."""

import itertools
from collections.abc import Iterable, Iterator

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ergodax.learn.topics.corpus import Document

SHORTEST = 32


class Batch(eqx.Module):
    """The distinct words of n documents and how often each occurs.

    A document with fewer than L distinct words is padded with word 0 and count 0.

    Attributes:
        words: numbers of the vocabulary, shape (n, L).
        counts: whole numbers, shape (n, L).
    """

    words: Int[Array, "n L"]
    counts: Float[Array, "n L"]


def batches(
    documents: Iterable[Document],
    batch_size: int,
    *,
    window: int = 1,
    generator: np.random.Generator | None = None,
) -> Iterator[Batch]:
    """Batches of documents; those that do not fill a last batch are left over.

    With a window of one batch, documents stay in their order: if that is random, a batch is a
    uniform random subset, and |D| / n times a sum over it is unbiased. This is the default: the
    Gibbs sampler sets documents of like length side by side within a batch (see `Tokens`), so that
    the padding of the batch itself costs it nothing.

    With a larger window, its documents are sorted by length and cut into batches, which come in
    random order. Each document is used once a window and any batch is as likely to hold it, so the
    sum stays unbiased; but the documents of a batch are then alike, and its variance is up to n
    times as large.

    Within a batch the documents stand in descending order of their distinct words.

    Args:
        documents: in random order; see `shuffled`.
        batch_size: documents a batch, n.
        window: batches among which documents are sorted by length.
        generator: of the batches' order in a window; needed if window is above 1.

    Returns:
        Batches of n documents, as long as `padded_length` says.

    Raises:
        ValueError: batch_size or window is not positive, or the generator is missing.
    """
    if batch_size < 1 or window < 1:
        raise ValueError(
            f"batch_size and window must be at least 1, not {batch_size} and {window}."
        )
    if window > 1 and generator is None:
        raise ValueError("generator is needed for the order of the batches in a window.")
    return _batches(iter(documents), batch_size, window, generator)


def _batches(
    documents: Iterator[Document],
    batch_size: int,
    window: int,
    generator: np.random.Generator | None,
) -> Iterator[Batch]:
    while held := list(itertools.islice(documents, batch_size * window)):
        whole = len(held) // batch_size
        if not whole:
            return
        if generator is not None and window > 1:
            generator.shuffle(held)  # who is left over, and who comes first among equals
            held = sorted(held[: whole * batch_size], key=lambda document: len(document.words))
        starts = batch_size * np.arange(whole)
        if generator is not None:
            generator.shuffle(starts)
        for start in starts:
            yield pad(held[start : start + batch_size])


def pad(documents: Iterable[Document]) -> Batch:
    """One batch, the longest document first.

    Args:
        documents: at least one.

    Raises:
        ValueError: no documents.
    """
    ordered = sorted(documents, key=lambda document: -len(document.words))
    if not ordered:
        raise ValueError("documents is empty; a batch has at least one document.")
    length = padded_length(len(ordered[0].words))
    words = np.zeros((len(ordered), length), np.int32)
    counts = np.zeros((len(ordered), length), np.float32)
    for row, document in enumerate(ordered):
        words[row, : len(document.words)] = document.words
        counts[row, : len(document.words)] = document.counts
    return Batch(jnp.asarray(words), jnp.asarray(counts))


def padded_length(length: int) -> int:
    """The next of 32, 48, 64, 96, 128 ...: who compiles for each shape compiles few.

    Args:
        length: distinct words of the longest document.
    """
    power = SHORTEST
    while power < length:
        if 3 * power // 2 >= length:
            return 3 * power // 2
        power *= 2
    return power


def padding_share(stream: Iterable[Batch]) -> float:
    """The share of the batches' places that no word fills.

    Args:
        stream: of at least one batch.
    """
    places = filled = 0
    for batch in stream:
        places += batch.counts.size
        filled += int((batch.counts > 0).sum())
    return 1.0 - filled / places
