"""Rows by groups: sorted, and in blocks of groups of similar sizes, padded to the largest."""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PyTree

from ergodax.checks import whole_number
from ergodax.data.arrays import num_rows, take

MOST_BLOCKS = 3  # each of which is compiled on its own
WORTH = 0.8  # the share of the padded rows that one more block must leave, to be worth that,
SAVED = 2**15  # and how many of them it must save
HINT = "Try groups = np.unique(names, return_inverse=True)[1]."
NAMED = 5  # groups without rows that an error names


class Block(NamedTuple):
    """Some groups with their rows, padded by a group's first row, which a mask leaves out."""

    groups: Int[Array, " m"]
    rows: PyTree  # leaves (m, n, ...)
    mask: Bool[Array, "m n"]


class Layout(eqx.Module):
    """The rows of all groups.

    Attributes:
        rows: sorted by group, leading axis N.
        starts: where each group begins.
        counts: its rows.
        order: the user's number of each sorted row.
        blocks: all groups, each in one of them.
        place: where a group stands when the blocks are joined.
        most: the rows of the largest group.

    Args:
        data: in the user's order.
        groups: of each row, every one with a row.
        saved: padded rows that one more block must save, to be compiled for.
    """

    rows: PyTree
    starts: Int[Array, " groups"]
    counts: Int[Array, " groups"]
    order: Int[Array, " rows"]
    blocks: tuple[Block, ...]
    place: Int[Array, " groups"]
    most: int = eqx.field(static=True)

    def __init__(self, data: PyTree, groups: Int[np.ndarray, " rows"], saved: int = SAVED) -> None:
        order = np.argsort(groups, kind="stable").astype(np.int32)
        counts = np.bincount(groups)
        self.order, self.rows = jnp.asarray(order), take(data, jnp.asarray(order))
        self.starts = jnp.asarray(np.cumsum(counts) - counts, jnp.int32)
        self.counts = jnp.asarray(counts, jnp.int32)
        self.most = int(counts.max())
        parts = similar(counts, saved)
        blocks = (self.block(jnp.asarray(part), int(counts[part].max())) for part in parts)
        self.blocks = tuple(blocks)
        self.place = jnp.asarray(np.argsort(np.concatenate(parts)), jnp.int32)

    @property
    def num_groups(self) -> int:
        """G."""
        return self.counts.shape[0]

    @property
    def num_rows(self) -> int:
        """N."""
        return num_rows(self.rows)

    @property
    def cells(self) -> int:
        """Rows of all blocks, with the padding."""
        return sum(block.mask.size for block in self.blocks)

    @property
    def group_of_row(self) -> Int[np.ndarray, " rows"]:
        """The group of each sorted row."""
        return np.repeat(np.arange(self.num_groups), np.asarray(self.counts))

    def block(self, groups: Int[Array, " m"], most: int | None = None) -> Block:
        """These groups with all their rows; `most` is the largest number of rows among them."""
        within = jnp.arange(self.most if most is None else most, dtype=jnp.int32)
        starts, counts = self.starts[groups][:, None], self.counts[groups][:, None]
        mask = within[None] < counts
        return Block(groups, take(self.rows, jnp.where(mask, starts + within[None], starts)), mask)


def similar(counts: Int[np.ndarray, " groups"], saved: int = SAVED) -> list[Int[np.ndarray, " m"]]:
    """Groups sorted by size and cut into at most three blocks, so that little padding is needed.

    Example:
        >>> [block.tolist() for block in similar(np.array([1, 50, 2, 1, 1]), saved=1)]
        [[0, 3, 4, 2], [1]]
    """
    order = np.argsort(counts, kind="stable").astype(np.int32)
    sizes, cuts = counts[order], [0, len(counts)]
    places = np.unique(np.searchsorted(sizes, np.unique(sizes)))[1:]  # before a larger size

    def cells(cuts: list[int]) -> int:
        return sum(int(sizes[b - 1]) * (b - a) for a, b in zip(cuts, cuts[1:], strict=False))

    while len(cuts) <= MOST_BLOCKS:
        tried = [sorted([*cuts, int(place)]) for place in set(places) - set(cuts)]
        best = min(tried, key=cells, default=cuts)
        if cells(best) > min(WORTH * cells(cuts), cells(cuts) - saved):
            break
        cuts = best
    return [order[a:b] for a, b in zip(cuts, cuts[1:], strict=False)]


def row_groups(groups: Any, rows: int) -> Int[np.ndarray, " rows"]:
    """The number of each row's group.

    Raises:
        TypeError: not integers.
        ValueError: not one for each row, or negative ones.
    """
    try:
        array = np.asarray(groups)
    except ValueError:
        array = np.empty((), object)
    if array.shape != (rows,):
        raise ValueError(
            f"groups must have the group of each of the {rows} rows of data, shape ({rows},), not "
            f"shape {array.shape}."
        )
    if not np.issubdtype(array.dtype, np.integer):
        raise TypeError(f"groups must be integers from 0 on, not {array.dtype}. {HINT}")
    if array.min() < 0:
        row = int(np.argmin(array))
        raise ValueError(f"groups[{row}] is {array[row]}, but groups count from 0. {HINT}")
    return array.astype(np.int32)


def checked_groups(groups: Any, rows: int, num_groups: int | None) -> Int[np.ndarray, " rows"]:
    """The group of each row, as a user gave it.

    Raises:
        TypeError: not integers.
        ValueError: not one for each row, negative ones, one beyond `num_groups`, or a group that
            has no row.
    """
    array = row_groups(groups, rows)
    if num_groups is not None:
        count = whole_number("num_groups", num_groups)
        if array.max() >= count:
            row = int(np.argmax(array))
            raise ValueError(
                f"groups[{row}] is {array[row]}, out of range: num_groups={count} says that they "
                f"are 0 to {count - 1}."
            )
    else:
        count = int(array.max()) + 1
    if count > rows:
        raise ValueError(f"{rows} rows can't fill {count} groups; some have no row. {HINT}")
    empty = np.flatnonzero(np.bincount(array, minlength=count) == 0)
    if empty.size:
        more = f" and {empty.size - NAMED} more" if empty.size > NAMED else ""
        raise ValueError(
            f"groups {empty[:NAMED].tolist()}{more} have no row: their latents are known by the "
            f"prior alone. {HINT} They can be predicted as new groups."
        )
    return array
