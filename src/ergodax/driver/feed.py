"""Streamed data: the next block of each chain is read while the device samples from this one."""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from ergodax.data.block import Block, attach, blocks_of, detach, replaced

READERS = 2  # threads


class Feed:
    """The blocks of all chains: when the next ones are due, and their rows.

    A step may draw several batches, the same number at every step; the first step shows how many.
    So the step at which a block is due depends on nothing but the number of the step.

    Args:
        where: the run lives; each process reads the blocks of its own chains.
        states: of the chains, with their blocks.

    Attributes:
        rows: of the blocks that the chains are at, a tree for each block of a state.
    """

    def __init__(self, where: Any, states: PyTree) -> None:
        self.where = where
        self.rows, hollow = detach(states)
        self.blocks = blocks_of(hollow)
        self.a_step: list[int | None] = [None] * len(self.blocks)
        self.used = [self._used(block) for block in self.blocks]
        self.pool = ThreadPoolExecutor(READERS) if self.blocks else None
        self.ahead = [self._read(block, 1) for block in self.blocks]

    @property
    def left(self) -> int | None:
        """How many steps may be taken before a block is due; None for any number."""
        if not self.blocks:
            return None
        if None in self.a_step:
            return 1
        each = zip(self.blocks, self.used, self.a_step, strict=True)
        return min((block.batches - used) // max(1, n or 1) for block, used, n in each)

    def taken(self, states: PyTree, steps: int) -> None:
        """Note that the chains have come to these states by so many steps."""
        if not self.blocks:
            return
        used = [self._used(block) for block in blocks_of(states)]
        if steps == 1:
            self.a_step = [b - a for a, b in zip(self.used, used, strict=True)]
        self.used = used

    def refill(self, states: PyTree) -> PyTree:
        """The states, at the next block where one is due.

        Raises:
            ValueError: a block is smaller than what one step needs.
        """
        if not self.blocks or (self.left or 0) > 0:
            return states

        def change(k: int, block: Block) -> Block:
            need = self.a_step[k] or 1
            if need > block.batches:
                raise ValueError(
                    f"a step draws {need} batches, but a block of the stream has only "
                    f"{block.batches}. Raise block_rows, or lower batch_size."
                )
            if block.batches - self.used[k] >= need:
                return block
            self.rows[k] = self.where.put(_stacked(self.ahead[k]))
            self.used[k] = 0
            following = Block(
                None, block.order, block.number + 1, block.used * 0, block.batches, block.source
            )
            self.ahead[k] = self._read(following, 1)
            return following

        return replaced(states, change)

    def restore(self, states: PyTree) -> None:
        """Go to where these states are: their blocks' rows are read again."""
        self.blocks = blocks_of(states)
        self.used = [self._used(block) for block in self.blocks]
        now = [self._read(block, 0) for block in self.blocks]
        self.rows = [self.where.put(_stacked(reading)) for reading in now]
        self.ahead = [self._read(block, 1) for block in self.blocks]

    def close(self) -> None:
        """Stop reading."""
        if self.pool is not None:
            self.pool.shutdown(wait=False, cancel_futures=True)

    def whole(self, states: PyTree) -> PyTree:
        """The states with their blocks' rows, from which a kernel can step on."""
        return attach(self.rows, states)

    def _read(self, block: Block, further: int) -> list[Future]:
        """Begin to read a block of each chain."""
        orders, numbers = (np.asarray(self.where.mine(x)) for x in (block.order, block.number))
        assert self.pool is not None
        return [
            self.pool.submit(block.source.read, order, int(number) + further)
            for order, number in zip(orders, numbers, strict=True)
        ]

    def _used(self, block: Block) -> int:
        """Batches drawn from a block: the same number in every chain."""
        return int(np.asarray(self.where.mine(block.used)).ravel()[0])


def _stacked(reading: list[Future]) -> PyTree:
    """The blocks of all chains, with a leading chain axis."""
    each = [one.result() for one in reading]
    if len(each) == 1:
        return jax.tree.map(lambda x: x[None], each[0])
    return jax.tree.map(lambda *x: np.stack(x), *each)
