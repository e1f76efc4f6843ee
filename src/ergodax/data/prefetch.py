"""Streamed data: the next block of each chain is read while the device samples from this one."""

import contextlib
import functools
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import PyTree

from ergodax.data.block import FOR_EVER, Block, attach, blocks_of, detach, replaced
from ergodax.data.source import room, stacked

READERS = 2  # threads
AHEAD = 2  # blocks read for a chain that is alone, so that the disk never rests; otherwise 1 each


@runtime_checkable
class Place(Protocol):
    """Where a run lives, and with it the arrays of its chains."""

    def mine(self, tree: PyTree) -> PyTree:
        """Of arrays with a leading chain axis, the chains of this process."""
        ...

    def put(self, tree: PyTree) -> PyTree:
        """Undo `mine`."""
        ...

    def buffer(self, row: PyTree, rows: int) -> PyTree:
        """Zeros for so many rows of draws, leaves (chains, rows, ...), like those in `row`."""
        ...


class Reading(NamedTuple):
    """A block of each chain that is being read: a future for each, and the rows of all."""

    futures: list[Future]
    rows: PyTree

    def result(self) -> PyTree:
        """The rows, when they are there; or the error of reading them."""
        for future in self.futures:
            future.result()
        return self.rows


class Readers:
    """Threads that read, for whose end a process does not wait, as it does for an executor's.

    An iterator of the user's may wait for ever.
    """

    def __init__(self) -> None:
        self.tasks: SimpleQueue[tuple[Future, Callable[[], Any]] | None] = SimpleQueue()
        self.threads: list[threading.Thread] = []

    def submit(self, function: Callable[..., Any], *args: Any) -> Future:
        """Begin a call when a thread is free."""
        if len(self.threads) < READERS:
            self.threads.append(threading.Thread(target=_work, args=(self.tasks,), daemon=True))
            self.threads[-1].start()
        future: Future = Future()
        self.tasks.put((future, functools.partial(function, *args)))
        return future

    def close(self) -> None:
        """Begin no more calls, and let the threads end."""
        with contextlib.suppress(Empty):
            while (task := self.tasks.get_nowait()) is not None:
                task[0].cancel()
        for _ in self.threads:
            self.tasks.put(None)


def _work(tasks: SimpleQueue) -> None:
    while (task := tasks.get()) is not None:
        future, call = task
        try:
            future.set_result(call())
        except BaseException as error:  # also what an iterator ends a program by
            future.set_exception(error)
        del task, future, call  # and with them the rows


class Prefetch:
    """The blocks of all chains: when the next ones are due, and their rows.

    A step may draw several batches, the same number at every step; the first step shows how many.
    So the step at which a block is due depends on nothing but the number of the step.

    The memory of the host is read into in turn. On a CPU the device computes with a block where it
    lies, while the next is read into the memory of the one before; nothing is copied.

    Args:
        where: the run lives; each process reads the blocks of its own chains.
        states: of the chains, with their blocks.

    Attributes:
        rows: of the blocks that the chains are at, a tree for each block of a state.
    """

    def __init__(self, where: Place, states: PyTree) -> None:
        self.where = where
        self.rows, hollow = detach(states)
        self.blocks = blocks_of(hollow)
        self.a_step: list[int | None] = [None] * len(self.blocks)
        self.used = [self._used(block) for block in self.blocks]
        self.pool = Readers() if self.blocks else None
        self.ahead: list[deque[Reading]] = [deque() for _ in self.blocks]
        self.here: list[PyTree] = [None] * len(self.blocks)  # where `rows` lie, on the host

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
        self.blocks = blocks_of(states)
        used = [self._used(block) for block in self.blocks]
        if steps == 1:
            self.a_step = [b - a for a, b in zip(self.used, used, strict=True)]
        self.used = used
        for k, block in enumerate(self.blocks):  # not before a step: a run may be resumed elsewhere
            if not self.ahead[k] and block.batches < FOR_EVER:
                self.ahead[k].extend(self._read(block, n + 1) for n in range(self._depth(block)))

    def refill(self, states: PyTree) -> PyTree:
        """The states, at the next block where one is due. Raises: ValueError."""
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
            following = Block(
                None, block.order, block.number + 1, block.used * 0, block.batches, block.source
            )
            free = self._go_to(k, self.ahead[k].popleft())
            self.used[k] = 0
            self.ahead[k].append(self._read(following, self._depth(following), free))
            return following

        return replaced(states, change)

    def restore(self, states: PyTree) -> None:
        """Go to where these states are: their blocks' rows are read again."""
        self.blocks = blocks_of(states)
        self.used = [self._used(block) for block in self.blocks]
        for k, reading in enumerate([self._read(block, 0) for block in self.blocks]):
            self._go_to(k, reading)

    def close(self) -> None:
        """Stop reading."""
        if self.pool is not None:
            self.pool.close()

    def whole(self, states: PyTree) -> PyTree:
        """The states with their blocks' rows, from which a kernel can step on."""
        return attach(self.rows, states)

    def _go_to(self, k: int, reading: Reading) -> PyTree:
        """Let a block that was read be the k-th; the memory of the one before it, if it is free."""
        free, self.here[k] = self.here[k], reading.result()
        # The device may have copied the rows, or may go on to use them where they are.
        self.rows[k] = jax.block_until_ready(self.where.put(self.here[k]))
        return free

    def _read(self, block: Block, further: int, into: PyTree = None) -> Reading:
        """Begin to read a block of each chain, into memory that is free."""
        orders, numbers = (np.asarray(self.where.mine(x)) for x in (block.order, block.number))
        rows = room(stacked(block.source.block, len(orders))) if into is None else into
        assert self.pool is not None
        futures = []
        for chain, (order, number) in enumerate(zip(orders, numbers, strict=True)):
            out = jax.tree.map(lambda x, c=chain: x[c], rows)
            read = block.source.read_into
            futures.append(self.pool.submit(read, order, int(number) + further, out))
        return Reading(futures, rows)

    def _depth(self, block: Block) -> int:
        """How many blocks of each chain are read ahead."""
        return AHEAD if len(self.where.mine(block.number)) == 1 else 1

    def _used(self, block: Block) -> int:
        """Batches drawn from a block: the same number in every chain."""
        return int(np.asarray(self.where.mine(block.used)).ravel()[0])
