"""Rows in equal shards, each of which another device may hold.

Outside of a mesh all shards are at hand. Under `shard_map` a device sees its own alone, which it
knows by their number; so one program draws the same batches however many devices there are.
"""

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import PRNGKeyArray, PyTree

from ergodax.data.arrays import num_rows, take
from ergodax.data.batching import Batching

AXIS = "data"  # of the mesh


class Shards(eqx.Module):
    """Consecutive rows of data in shards whose lengths differ by one at most.

    Args:
        data: a tree of arrays with leading axis N.
        count: K, how many shards.

    Attributes:
        rows: leaves (K, ceil(N / K), ...), or fewer shards on one of several devices; where a
            shard is shorter, its last row stands twice and is not drawn.
        num_rows: N.
        count: K.
    """

    rows: PyTree
    num_rows: int = eqx.field(static=True)
    count: int = eqx.field(static=True)

    def __init__(self, data: PyTree, count: int) -> None:
        self.num_rows, self.count = num_rows(data), count
        longest, begins = -(-self.num_rows // count), self._begins()
        places = np.minimum(begins[:-1, None] + np.arange(longest), begins[1:, None] - 1)
        self.rows = jax.tree.map(lambda x: x[places], data)

    @property
    def here(self) -> int:
        """Shards at hand."""
        return num_rows(self.rows)

    def whole(self) -> PyTree:
        """The data. Raises: TypeError: a device has only some of the shards."""
        if self.here != self.count:
            raise TypeError(
                "the whole posterior is asked for, but each device of the mesh has only its shards "
                "of the data. Use a sampler that needs batches alone, or a mesh of chains."
            )
        begins = self._begins()
        shard = np.searchsorted(begins, np.arange(self.num_rows), side="right") - 1
        place = np.arange(self.num_rows) - begins[shard]
        return jax.tree.map(lambda x: x[shard, place], self.rows)

    def draw(
        self, key: PRNGKeyArray, batching: Batching, size: int
    ) -> Iterator[tuple[Any, PyTree]]:
        """A batch of so many rows from each shard, with the number that one of it stands for.

        Shard s draws with the key fold_in(key, s), by a scheme without a state.
        """
        first: Any = 0 if self.here == self.count else lax.axis_index(AXIS) * self.here
        for k in range(self.here):
            one = jax.random.fold_in(key, first + k)
            rows, length = self._rows(one, first + k, batching, size)
            yield length / size, take(jax.tree.map(lambda x: x[k], self.rows), rows)  # noqa: B023

    def sum_over(self, part: PyTree) -> PyTree:
        """The sum over all shards, of what those at hand sum up to."""
        if self.here == self.count:
            return part
        if len({x.dtype for x in jax.tree.leaves(part)}) > 1:
            return lax.psum(part, AXIS)
        flat, undo = ravel_pytree(part)  # one message, since what a message costs is its latency
        return undo(lax.psum(flat, AXIS))

    def _rows(self, key: PRNGKeyArray, shard: Any, batching: Batching, size: int) -> tuple:
        """Rows drawn in a shard, and its length."""
        short, longer = divmod(self.num_rows, self.count)

        def among(length: int) -> tuple:
            return batching.draw(key, None, length, size)[0], jnp.int32(length)

        if not longer or isinstance(shard, int):
            return among(short + (longer > 0 and shard < longer))
        return lax.cond(shard < longer, lambda: among(short + 1), lambda: among(short))

    def _begins(self) -> np.ndarray:
        """The first row of each shard, and N: the longer shards come first."""
        short, longer = divmod(self.num_rows, self.count)
        shards = np.arange(self.count + 1)
        return shards * short + np.minimum(shards, longer)


def is_shards(node: Any) -> bool:
    """Whether a node of a tree is Shards."""
    return isinstance(node, Shards)
