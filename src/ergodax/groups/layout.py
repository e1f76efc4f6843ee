"""Rows by groups: sorted, equal ones counted once, in blocks of groups of similar sizes.

Rows of one group with the same numbers have the same likelihood, whatever it is. So where data are
labels and counts, as in crossed factors, the distinct rows are all that is computed with.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from ergodax.checks import whole_number
from ergodax.data.arrays import num_rows, take
from ergodax.data.distinct import distinct_rows

MOST_BLOCKS = 5  # each of which is compiled on its own
SAVED = 2**13  # padded rows that one more block must save: some ms a gradient of four chains
HINT = "Try groups = np.unique(names, return_inverse=True)[1]."
NAMED = 5  # groups without rows that an error names
FEWER = 0.9  # the share of the rows that distinct ones must not exceed, to be worth their counts


class Block(NamedTuple):
    """Some groups with their rows, padded by a group's first row, which a mask leaves out.

    Groups are the inner axis: there are many of them, even where each has few rows.
    """

    groups: Int[Array, " m"]
    rows: PyTree  # leaves (n, m, ...)
    mask: Bool[Array, "n m"] | Float[Array, "n m"]  # where rows were counted, how many are the same

    def over(self, function: Callable[..., Any], *arrays: PyTree) -> Any:
        """function(rows, mask, ...) of each group; `arrays` have a leading axis of groups."""
        axes = (1, 1, *(0 for _ in arrays))
        return jax.vmap(function, in_axes=axes)(self.rows, self.mask, *arrays)


class Layout(eqx.Module):
    """The distinct rows of all groups.

    Attributes:
        rows: sorted by group, leading axis `distinct`.
        times: how often each is in the data; None where each is there once.
        starts: where each group begins.
        counts: its distinct rows.
        order: of each row of the user, which of these it is.
        blocks: all groups, each in one of them.
        place: where a group stands when the blocks are joined.
        most: the distinct rows of the largest group.

    Args:
        data: in the user's order.
        groups: of each row, every one with a row.
        saved: padded rows that one more block must save, to be compiled for.
    """

    rows: PyTree
    times: Float[Array, " distinct"] | None
    starts: Int[Array, " groups"]
    counts: Int[Array, " groups"]
    order: Int[Array, " rows"]
    blocks: tuple[Block, ...]
    place: Int[Array, " groups"]
    most: int = eqx.field(static=True)

    def __init__(self, data: PyTree, groups: Int[np.ndarray, " rows"], saved: int = SAVED) -> None:
        first, which = distinct_rows((groups, data))
        if len(first) > FEWER * len(groups):
            first, which = (np.arange(len(groups), dtype=np.int32),) * 2
        order = np.argsort(groups[first], kind="stable").astype(np.int32)
        counts = np.bincount(groups[first])
        self.order = jnp.asarray(np.argsort(order)[which], jnp.int32)
        self.rows = take(data, jnp.asarray(first[order]))
        times = np.bincount(which)[order]
        self.times = jnp.asarray(times, float) if len(first) < len(groups) else None
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
        return self.order.shape[0]

    @property
    def distinct(self) -> int:
        """Rows that are computed with."""
        return num_rows(self.rows)

    @property
    def cells(self) -> int:
        """Rows of all blocks, with the padding."""
        return sum(block.mask.size for block in self.blocks)

    @property
    def group_of_row(self) -> Int[np.ndarray, " rows"]:
        """The group of each distinct row."""
        return np.repeat(np.arange(self.num_groups), np.asarray(self.counts))

    @eqx.filter_jit  # of groups that are not traced, one program in place of one an operation
    def block(self, groups: Int[Array, " m"], most: int | None = None) -> Block:
        """These groups with all their rows; `most` is the largest number of them in a group."""
        within = jnp.arange(self.most if most is None else most, dtype=jnp.int32)[:, None]
        starts, counts = self.starts[groups][None], self.counts[groups][None]
        mask = within < counts
        places = jnp.where(mask, starts + within, starts)
        if self.times is not None:
            mask = jnp.where(mask, self.times[places], 0.0)
        return Block(groups, take(self.rows, places), mask)


def similar(counts: Int[np.ndarray, " groups"], saved: int = SAVED) -> list[Int[np.ndarray, " m"]]:
    """Groups sorted by size and cut into at most five blocks, so that little padding is needed.

    Example:
        >>> [block.tolist() for block in similar(np.array([1, 50, 2, 1, 1]), saved=10)]
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
        if cells(best) > cells(cuts) - saved:
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
