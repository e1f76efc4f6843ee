"""The tokens of documents, laid out so that several documents are sampled side by side."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int
from scipy.sparse import csr_array

LANES = 8  # documents side by side: one vector register of single precision


class Tokens(eqx.Module):
    """Tokens in groups of `LANES` documents of similar length, a word's number for each.

    The rows of a group are as many as its longest document has tokens; column j has those of its
    document j, and -1 below them. Groups follow each other. Blocks, if there are several, are along
    a leading axis.
    """

    words: Int[Array, "*blocks rows lanes"]
    starts: Int[Array, "*blocks groups_and_one"]  # the first row of each group, and the one after


def lay_out(
    bags: csr_array, blocks: Sequence[Int[np.ndarray, "_"]] | None = None
) -> tuple[Tokens, Int[np.ndarray, " documents"]]:
    """Lay out documents, all in one piece or in blocks.

    Args:
        bags: how often each word occurs, shape (documents, words).
        blocks: the documents of each block, which a leading axis is for; by default one block
            without such an axis.

    Returns:
        The tokens, and for each document its place among the columns of all groups.

    Example:
        >>> import numpy as np, scipy
        >>> from ergodax.learn import topics
        >>> bags = scipy.sparse.csr_array(np.array([[0, 0, 1], [2, 1, 0]]))
        >>> tokens, places = topics.lay_out(bags)
        >>> places.tolist(), tokens.words[:3, :2].T.tolist()  # the longest document comes first
        ([1, 0], [[0, 0, 1], [2, -1, -1]])
    """
    count, _ = shape_of(bags)
    given = [np.arange(count)] if blocks is None else blocks
    lengths = np.asarray(bags.sum(axis=1)).ravel().astype(np.int64)
    longest_first = [block[np.argsort(-lengths[block], kind="stable")] for block in given]
    # XLA aborts for some loops over a single group, which are no loops.
    groups = max(2, *(-(-len(block) // LANES) for block in given))
    starts = np.zeros((len(given), groups + 1), np.int32)
    for row, block in zip(starts, longest_first, strict=True):
        heights = lengths[block[::LANES]]
        row[1 : 1 + len(heights)] = np.cumsum(heights)
        row[1 + len(heights) :] = row[len(heights)]
    words = np.full((len(given), _round_up(int(starts[:, -1].max())), LANES), -1, np.int32)
    places = np.zeros(count, np.int64)
    for b, block in enumerate(longest_first):
        part, long = bags[block], lengths[block]
        document = np.repeat(np.arange(len(block)), long)
        within = np.arange(len(document)) - np.repeat(np.cumsum(long) - long, long)
        row = starts[b, document // LANES] + within
        words[b, row, document % LANES] = np.repeat(part.indices, part.data.astype(np.int64))
        places[block] = b * groups * LANES + np.arange(len(block))
    if blocks is None:
        words, starts = words[0], starts[0]
    return Tokens(jnp.asarray(words), jnp.asarray(starts)), places


def shape_of(bags: csr_array) -> tuple[int, int]:
    """How many documents and words; SciPy's own types leave it open.

    Args:
        bags: counts of words, shape (documents, words).

    Example:
        >>> import numpy as np, scipy
        >>> from ergodax.learn import topics
        >>> topics.shape_of(scipy.sparse.csr_array(np.array([[0, 0, 1], [2, 1, 0]])))
        (2, 3)
    """
    shape: Any = bags.shape
    return shape


def _round_up(rows: int) -> int:
    """The next of 64, 96, 128, 192, 256, ...: few shapes, and at most half of the rows wasted."""
    size = 64
    while size < rows:
        size = size * 3 // 2 if size & (size - 1) == 0 else size // 3 * 4
    return size
