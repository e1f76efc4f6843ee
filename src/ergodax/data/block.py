"""The block of a stream that a chain is at, and the batches drawn from it.

A block is a part of the gradient's state. The driver puts the next one in between two chunks.
Inside a chunk a block never changes, so the compiled program takes the rows of all blocks as an
argument of their own and does not return them.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray, PyTree, UInt32

from ergodax.data.arrays import take
from ergodax.data.batching import Batching, Drawn
from ergodax.data.permutation import Permutation, mix
from ergodax.data.source import Source

FOR_EVER = 2**31 - 1  # batches: a block of all rows need not be read again


class Block(eqx.Module):
    """Rows of a source."""

    rows: PyTree  # arrays with leading axis block_rows; None while they are detached
    order: UInt32[Array, "*chains 2"]  # the words that the chain's order of rows follows from
    number: Int[Array, "*chains"]  # which block it is, counted from 0
    used: Int[Array, "*chains"]  # how many batches have been drawn from it
    batches: int = eqx.field(static=True)  # how many are drawn before the next block is due
    source: Source = eqx.field(static=True)  # where the rows are from


def first_block(key: PRNGKeyArray, source: Source, batches: int) -> Block:
    """Block 0 of a chain, good for so many batches, read by a callback from the compiled program.

    The chain's order follows from the key.
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
    except (jax.errors.JaxRuntimeError, ValueError):  # which of the two depends on the call
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


def detach(states: PyTree) -> tuple[list[PyTree], PyTree]:
    """The rows of all blocks, and the states without them."""
    rows = [block.rows for block in blocks_of(states)]
    return rows, replaced(states, lambda k, block: dataclasses.replace(block, rows=None))


def attach(rows: list[PyTree], states: PyTree) -> PyTree:
    """Undo `detach`."""
    if not rows:
        return states
    return replaced(states, lambda k, block: dataclasses.replace(block, rows=rows[k]))


class Streamed(Batching):
    """Passes over the present block in random order, a new order for each pass.

    Successive batches of a pass are disjoint; the last block_rows mod n rows of each are left out.
    One batch of rows in random order is n distinct rows of N, uniformly: its noise has covariance
    N (N - n) / n S_1. Batches depend on each other. With b rows in a block, each used R times, and
    the intraclass correlation rho of the scores within a page of p rows, the noise of a block's
    mean is
        N (N - b) / b [1 + (p - 1) rho] (N - 1) / (N - p) S_1,
    so that a chain that is slow against a block and fast against an epoch is heated as by
    independent batches of n / (R [1 + (p - 1) rho]) rows. Over whole epochs the noise cancels, as
    with ShuffledEpochs. `noise_factor` is that of one batch, with rho = 0.
    """

    source: Source = eqx.field(static=True)  # where the blocks are read
    batch_size: int = eqx.field(static=True)  # n

    def init(self, key: PRNGKeyArray, num_rows: int) -> Block:
        """The first block."""
        each = self.source.block_rows // self.batch_size
        whole = self.source.block_rows == self.source.num_rows
        return first_block(key, self.source, FOR_EVER if whole else self.source.passes * each)

    def draw(self, key: PRNGKeyArray, state: Block, num_rows: int, batch_size: int) -> Drawn:
        """Places in the block: the next n of the present pass."""
        rows = self.source.block_rows
        past, used = jnp.divmod(state.used, jnp.int32(rows // batch_size))
        permutation = Permutation(rows)
        places = used * batch_size + jnp.arange(batch_size, dtype=jnp.int32)
        words = _words(state.order, state.number, past)
        return permutation(words, places), eqx.tree_at(lambda b: b.used, state, state.used + 1)


def _words(
    order: UInt32[Array, " 2"], number: Int[Array, ""], past: Int[Array, ""]
) -> UInt32[Array, " words"]:
    """Those of the permutation for a pass over a block, as `Permutation.draw` makes them.

    Mixed out of the numbers, since a call of the generator costs a twentieth of a step.
    """
    counts = jnp.stack([number, past]).astype(jnp.uint32)
    salt = mix(counts + jnp.uint32(0x9E3779B9))
    data = mix(order ^ salt ^ mix(salt[::-1]))
    return Permutation(1).draw(jax.random.wrap_key_data(data, impl="threefry2x32"))


def batch_at(data: PyTree | Source, state: PyTree, rows: Int[Array, " n"]) -> PyTree:
    """The rows that a scheme has drawn: places in resident data, or in the block of a stream."""
    if isinstance(data, Source):
        return data.as_seen(take(state.rows, rows))
    return take(data, rows)
