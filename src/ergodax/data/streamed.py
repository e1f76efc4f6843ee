"""Batches from the block that a chain is at."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray, PyTree, UInt32

from ergodax.data.arrays import take
from ergodax.data.batching import Batching
from ergodax.data.block import Block, first_block
from ergodax.data.permutation import Permutation, mix
from ergodax.data.source import Source

FOR_EVER = 2**31 - 1  # batches: a block of all rows need not be read again


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

    Args:
        source: where the blocks are read.
        batch_size: n.
    """

    source: Source = eqx.field(static=True)
    batch_size: int = eqx.field(static=True)

    def init(self, key: PRNGKeyArray, num_rows: int) -> Block:
        """The first block."""
        each = self.source.block_rows // self.batch_size
        whole = self.source.block_rows == self.source.num_rows
        return first_block(key, self.source, FOR_EVER if whole else self.source.passes * each)

    def draw(
        self, key: PRNGKeyArray, state: Block, num_rows: int, batch_size: int
    ) -> tuple[Int[Array, " n"], Block]:
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
    """The rows that a scheme has drawn.

    Args:
        data: resident arrays, or a source.
        state: of the scheme; a Block where the data are a source.
        rows: places in the data, or in the block.
    """
    if isinstance(data, Source):
        return data.as_seen(take(state.rows, rows))
    return take(data, rows)
