"""The draws so far: a buffer on the device, emptied into the host's memory or a store."""

import jax
import numpy as np
from jaxtyping import PyTree

from ergodax import tree
from ergodax.data.prefetch import Place
from ergodax.persist.draws import DrawStore

ROWS_AT_LEAST, BYTES_AT_LEAST = 4096, 2**22  # of the buffer, all chains together
FILLED_OFTEN = 16  # times, from which a larger one saves more than its program's compilation
BYTES_ON_THE_DEVICE = 2**28  # of draws, all chains together, before they go to the host


class DrawBuffer:
    """The draws so far.

    Args:
        where: the run lives, which has the buffer.
        row: (collected, info) of one draw of this process's chains, leaves of shape (chains, ...).
        num_draws: how many there will be.
        store: where they go, or None to keep them in memory.

    Attributes:
        buffer: leaves (chains, rows, ...); the compiled loop fills it.
        filled: rows of it that hold draws which are nowhere else.
        made: draws in all.
    """

    def __init__(self, where: Place, row: PyTree, num_draws: int, store: DrawStore | None) -> None:
        self.where, self.row, self.store = where, row, store
        size = max(1, sum(x.nbytes for x in jax.tree.leaves(row)))
        # Powers of two, and one of them for all runs but the longest, so that runs of different
        # lengths share a compiled program.
        usual = min(ROWS_AT_LEAST, BYTES_AT_LEAST // size)
        often = num_draws > FILLED_OFTEN * usual
        rows = min(2 * num_draws - 1, BYTES_ON_THE_DEVICE // size) if often else usual
        self.capacity = 2 ** int(np.log2(max(1, usual, rows)))
        self.buffer = where.buffer(row, self.capacity)
        self.filled = 0
        self.made = 0 if store is None else store.draws
        in_memory = store is None and num_draws > self.capacity
        self.host = None
        if in_memory:
            empty = lambda x: np.empty((x.shape[0], num_draws, *x.shape[1:]), x.dtype)  # noqa: E731
            self.host = jax.tree.map(empty, row)

    @property
    def room(self) -> int:
        """Rows of the buffer that are free."""
        return self.capacity - self.filled

    def add(self, count: int) -> None:
        """Count rows that have been written into the buffer."""
        self.filled += count
        self.made += count

    def flush(self) -> None:
        """Bring the buffer's rows to the host's memory or to the store.

        Where the store can't be written they stay in the buffer.
        """
        if not self.filled or (self.store is None and self.host is None):
            return
        rows = self._left()
        if self.store is not None:
            self.store.append(rows)
        else:
            begin = self.made - self.filled
            jax.tree.map(lambda h, new: _put(h, begin, new), self.host, rows)
        self.buffer, self.filled = self.where.buffer(self.row, self.capacity), 0

    def drawn(self) -> tuple[PyTree, PyTree]:
        """What `collect` made of the positions, and the Info, of all draws.

        Draws that could not be written to the store are among them.
        """
        left = self._left()
        if self.store is not None:
            stored = jax.tree.unflatten(jax.tree.structure(self.row), self.store.read())
            both = lambda old, new: np.concatenate([old, new], axis=1)  # noqa: E731
            left = jax.tree.map(both, stored, left) if self.filled else stored
        elif self.host is not None:
            self.flush()
            left = jax.tree.map(lambda x: x[:, : self.made], self.host)
        position, info = left
        return tree.thaw(position), info

    def _left(self) -> PyTree:
        """The buffer's rows on the host."""
        mine = self.where.mine(self.buffer)
        return jax.tree.map(lambda x: np.asarray(x)[:, : self.filled], mine)


def _put(host: np.ndarray, begin: int, new: np.ndarray) -> None:
    host[:, begin : begin + new.shape[1]] = new
