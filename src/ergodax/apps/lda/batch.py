"""A batch of documents as bags of words, padded to one length."""

import equinox as eqx
from jaxtyping import Array, Float, Int


class Batch(eqx.Module):
    """The distinct words of n documents and how often each occurs.

    A document with fewer than L distinct words is padded with word 0 and count 0.

    Attributes:
        words: numbers of the vocabulary, shape (n, L).
        counts: whole numbers, shape (n, L).
    """

    words: Int[Array, "n L"]
    counts: Float[Array, "n L"]
