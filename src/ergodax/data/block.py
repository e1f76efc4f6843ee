"""The block of a stream that a chain is at, a part of the gradient's state.

The driver puts the next one in between two chunks. Inside a chunk a block never changes, so the
compiled program takes the rows of all blocks as an argument of their own and does not return them.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray, PyTree, UInt32

from ergodax.data.source import Source


class Block(eqx.Module):
    """Rows of a source.

    Attributes:
        rows: a tree of arrays with leading axis block_rows; None while they are detached.
        order: the words that the chain's order of rows follows from.
        number: which block it is, counted from 0.
        used: how many batches have been drawn from it.
        batches: how many are drawn before the next block is due.
        source: where the rows are from.
    """

    rows: PyTree
    order: UInt32[Array, "*chains 2"]
    number: Int[Array, "*chains"]
    used: Int[Array, "*chains"]
    batches: int = eqx.field(static=True)
    source: Source = eqx.field(static=True)


def first_block(key: PRNGKeyArray, source: Source, batches: int) -> Block:
    """Block 0 of a chain, read by a callback from the compiled program.

    Args:
        key: the chain's order follows from it.
        source: where to read.
        batches: how many it is good for.
    """
    order = jax.random.key_data(key).ravel()[:2]
    zero = jnp.zeros((), jnp.int32)

    def read(order: Any) -> PyTree:
        try:
            return source.read(np.asarray(order), 0)
        except Exception as error:
            _failures.append(error)
            raise

    rows = jax.pure_callback(read, source.block, order, vmap_method="sequential")
    return Block(rows, order, zero, zero, batches, source)


_failures: list[Exception] = []


@contextlib.contextmanager
def errors_of_reading() -> Iterator[None]:
    """While active, what a source raises is raised as itself, not as JAX's error of a callback."""
    _failures.clear()
    try:
        yield
    except jax.errors.JaxRuntimeError:
        if _failures:
            raise _failures[0] from None
        raise


def _is_block(node: Any) -> bool:
    return isinstance(node, Block)


def blocks_of(states: PyTree) -> list[Block]:
    """The blocks in a tree of states, in its order."""
    return [x for x in jax.tree.leaves(states, is_leaf=_is_block) if _is_block(x)]


def replaced(states: PyTree, change: Callable[[int, Block], Block]) -> PyTree:
    """The states with change(k, block) in place of their k-th block."""
    count = iter(range(len(blocks_of(states))))
    return jax.tree.map(
        lambda x: change(next(count), x) if _is_block(x) else x, states, is_leaf=_is_block
    )


def with_rows(block: Block, rows: PyTree) -> Block:
    """The block with other rows."""
    return Block(rows, block.order, block.number, block.used, block.batches, block.source)


def detach(states: PyTree) -> tuple[list[PyTree], PyTree]:
    """The rows of all blocks, and the states without them."""
    rows = [block.rows for block in blocks_of(states)]
    return rows, replaced(states, lambda k, block: with_rows(block, None))


def attach(rows: list[PyTree], states: PyTree) -> PyTree:
    """Undo `detach`."""
    return replaced(states, lambda k, block: with_rows(block, rows[k])) if rows else states
