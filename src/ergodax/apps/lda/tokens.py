"""A batch token by token, laid out so that several documents are swept side by side."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from ergodax.apps.lda.batch import Batch

LANES = 8  # documents side by side: one vector register of single precision


class Tokens(eqx.Module):
    """The tokens of n documents in groups of `LANES` documents of similar length.

    The documents are sorted by length, so that the rows of a group, as many as its longest
    document has tokens, hold little padding. Groups follow each other; rows after the last are
    padding, so that batches of different length share one compiled program.

    Attributes:
        words: the word of each token; column j of a group's rows is its document j.
        present: where there is a token.
        starts: the first row of each group, and the row after the last.
        places: for each document, group * LANES + column.
    """

    words: Int[Array, "rows lanes"]
    present: Bool[Array, "rows lanes"]
    starts: Int[Array, " groups_and_one"]
    places: Int[Array, " n"]


def rows_needed(batch: Batch) -> int:
    """How many rows the tokens of a batch fill.

    Args:
        batch: on the host or the device, but not traced.
    """
    lengths = -np.sort(-_lengths(batch))
    return int(lengths[::LANES].sum())


def round_up(rows: int) -> int:
    """The next of 64, 96, 128, 192, 256, ...: few shapes, and at most half of the rows wasted."""
    size = 64
    while size < rows:
        size = size * 3 // 2 if size & (size - 1) == 0 else size // 3 * 4
    return size


def expand(batch: Batch, rows: int | None = None) -> Tokens:
    """Lay out a batch token by token.

    Args:
        batch: on the host or the device, but not traced: the shapes depend on the counts.
        rows: how many to make, at least `rows_needed(batch)`; by default that, rounded up.

    Raises:
        ValueError: fewer rows than the batch needs.
    """
    words, counts, lengths = np.asarray(batch.words), np.asarray(batch.counts), _lengths(batch)
    needed = rows_needed(batch)
    rows = round_up(needed) if rows is None else rows
    if rows < needed:
        raise ValueError(f"rows must be at least {needed}, which the batch needs, not {rows}.")
    order = np.argsort(-lengths, kind="stable")
    heights = lengths[order][::LANES]
    starts = np.concatenate([[0], np.cumsum(heights)])
    places = np.empty(len(order), np.int32)
    places[order] = np.arange(len(order))
    table, present = np.zeros((rows, LANES), np.int32), np.zeros((rows, LANES), bool)
    for place, document in enumerate(order):
        start, lane = starts[place // LANES], place % LANES
        rest = slice(start, start + lengths[document])
        table[rest, lane] = np.repeat(words[document], counts[document].astype(int))
        present[rest, lane] = True
    starts = starts.astype(np.int32)
    return Tokens(*(jnp.asarray(x) for x in (table, present, starts, places)))


def stack(batches: list[Batch]) -> Tokens:
    """The tokens of several batches of equal size, with a leading axis, in one shape."""
    rows = round_up(max(rows_needed(batch) for batch in batches))
    return jax.tree.map(lambda *x: jnp.stack(x), *[expand(batch, rows) for batch in batches])


def _lengths(batch: Batch) -> np.ndarray:
    return np.asarray(batch.counts).sum(1).astype(int)
