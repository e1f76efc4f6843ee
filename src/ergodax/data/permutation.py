"""A random permutation of N rows that is evaluated, not stored: O(batch) for any N.

Rows are numbered on an a x b grid with a b >= N; a few rounds move each row along its line
and each column along its own by random amounts that depend on the other coordinate (a
Feistel network with mixed radices). The result is a bijection of the grid. The few points
of the grid beyond N are walked through the bijection again until they land inside
(cycle walking), which leaves a bijection of the N rows.

Below `SMALL` rows, or where the batch is a fair part of the data, sorting random bits is
as cheap and is exactly uniform.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int, PRNGKeyArray, UInt32

SMALL = 256
ROUNDS = 4


class Permutation(eqx.Module):
    """The family of random permutations of {0, ..., num_rows - 1}.

    Args:
        num_rows: N, at most 2^31 - 1.

    Raises:
        ValueError: N out of range.
    """

    num_rows: int = eqx.field(static=True)
    height: int = eqx.field(static=True)
    width: int = eqx.field(static=True)

    def __init__(self, num_rows: int) -> None:
        if not 1 <= num_rows < 2**31:
            raise ValueError(f"the number of rows must lie in [1, 2^31), not {num_rows}.")
        self.num_rows = num_rows
        self.height, self.width = _grid(num_rows)

    def draw(self, key: PRNGKeyArray) -> UInt32[Array, " words"]:
        """Draw one permutation, as the few words that determine it."""
        # A key is 64 random bits, which mixing spreads over the words: a second call of the
        # generator would cost a twentieth of a whole step and add nothing.
        low, high = jax.random.key_data(key).ravel()[:2]
        places = jnp.arange(1, 2 * ROUNDS + 1, dtype=jnp.uint32)
        return mix(low + places * jnp.uint32(0x9E3779B9)) ^ mix(high ^ places)

    def __call__(
        self, words: UInt32[Array, " words"], places: Int[Array, " n"]
    ) -> Int[Array, " n"]:
        """The rows at `places`, numbers in [0, num_rows), of the permutation with these words."""
        if self.num_rows <= SMALL or 4 * places.shape[0] >= self.num_rows:
            order = jnp.argsort(_bits(words, self.num_rows)).astype(jnp.int32)
            return order[places]
        rows = self._shuffle(words, places.astype(jnp.uint32))
        if self.height * self.width > self.num_rows:
            rows = lax.while_loop(
                lambda rows: jnp.any(rows >= self.num_rows),
                lambda rows: jnp.where(rows >= self.num_rows, self._shuffle(words, rows), rows),
                rows,
            )
        # Without the barrier XLA may fuse the shuffle into the gather that follows, and so
        # repeat it for every column of the data.
        return lax.optimization_barrier(rows.astype(jnp.int32))

    def _shuffle(
        self, words: UInt32[Array, " words"], points: UInt32[Array, " n"]
    ) -> UInt32[Array, " n"]:
        row, column = jnp.divmod(points, jnp.uint32(self.width))
        for k in range(ROUNDS):
            row = _rotate(row, mix(column ^ words[2 * k]), self.height)
            column = _rotate(column, mix(row ^ words[2 * k + 1]), self.width)
        return row * jnp.uint32(self.width) + column


def _grid(n: int) -> tuple[int, int]:
    """Sides a <= b < 2^16 with a b >= n, nearly square, and as little beyond n as possible."""
    root = math.isqrt(n - 1) + 1 if n > 1 else 1
    least = max(1, (2 * root) // 3, -(-n // (2**16 - 1)))
    height = min(range(least, root + 1), key=lambda a: (-(-n // a) * a - n, -a))
    return height, -(-n // height)


def mix(x: UInt32[Array, " n"]) -> UInt32[Array, " n"]:
    """A bijective 32-bit finaliser: every output bit depends on every input bit."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)


def scale_bits(bits: UInt32[Array, " n"], length: int) -> UInt32[Array, " n"]:
    """floor(bits * length / 2^32): random bits as a number in [0, length), length <= 2^16.

    The high word of a product of 32 by 16 bits, in two 32-bit pieces that can't overflow: no
    division, which would not vectorise. The numbers' probabilities differ by 2^-32 at most.
    """
    n = jnp.uint32(length)
    return ((bits >> 16) * n + (((bits & 0xFFFF) * n) >> 16)) >> 16


def _rotate(place: UInt32[Array, " n"], bits: UInt32[Array, " n"], length: int) -> Array:
    place = place + scale_bits(bits, length)
    return jnp.where(place >= length, place - jnp.uint32(length), place)


def _bits(words: UInt32[Array, " words"], n: int) -> UInt32[Array, " n"]:
    return jax.random.bits(
        jax.random.wrap_key_data(words[:2], impl="threefry2x32"), (n,), jnp.uint32
    )
