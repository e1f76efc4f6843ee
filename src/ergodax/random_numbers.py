"""Normal and Gamma numbers and signs: a faster way to as good ones as JAX's for large trees.

On a CPU, `jax.random.normal` takes longer than anything else in a step of a large network. Two
things make it slow: its Threefry is a loop over arrays in memory, and it takes the inverse error
function of every number. Here the same Threefry-2x32 with its 20 rounds is written out, so that
it stays in registers, and Box and Muller's map makes two numbers of its two words.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray, UInt32

# From this size on the time saved outweighs the longer program.
LARGE = 1 << 14
LANES = 1 << 10  # numbers in a row
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA
STREAM = 0x6E6F726D  # the upper word of every counter; JAX's own counters begin at zero
# Polynomials of least largest error, the highest power first: of (log(1 + m) - m + m^2 / 2) / m^3
# on [sqrt(1/2) - 1, sqrt(2) - 1], (sin a / a - 1) / a^2 and (cos a - 1 + a^2 / 2) / a^4 in a^2 on
# [0, (pi / 4)^2].
LOG = (
    0.06746638251, -0.1167565121, 0.1188816297, -0.1240558906, 0.1421955228, -0.1666799584,
    0.2000211866, -0.250000096, 0.333333126,
)  # fmt: skip
SINE = (-0.0001951726674, 0.008332177915, -0.1666665494)
COSINE = (2.443841536e-05, -0.001388736721, 0.04166664686)


def normal(key: PRNGKeyArray, shape: tuple[int, ...], dtype: Any) -> Float[Array, "..."]:
    """Independent standard normal numbers.

    Args:
        key: a fresh key, of any implementation.
        shape: of the result.
        dtype: a floating-point one. Below double precision, large shapes are drawn the fast way.
    """
    size = math.prod(shape)
    if size < LARGE or jnp.dtype(dtype).itemsize > 4:
        return jax.random.normal(key, shape, dtype)
    numbers = box_muller(*threefry(_words(key), -(-size // (2 * LANES))))
    return numbers.ravel()[:size].reshape(shape).astype(dtype)


def rademacher(key: PRNGKeyArray, shape: tuple[int, ...], dtype: Any) -> Float[Array, "..."]:
    """Independent signs, +1 or -1; of large shapes the first bits of the words."""
    size = math.prod(shape)
    if size < LARGE:
        return jax.random.rademacher(key, shape, dtype)
    words = jnp.concatenate(threefry(_words(key), -(-size // (2 * LANES))))
    one = jnp.asarray(1.0, dtype)
    return jnp.where(words.ravel()[:size].reshape(shape) >> 31 == 1, one, -one)


def log_gamma(key: PRNGKeyArray, shape: Float[Array, "..."]) -> Float[Array, "..."]:
    """The logarithms of independent Gamma(shape, 1) numbers.

    Marsaglia and Tsang's rejection of Gamma(shape + 1), for all numbers at once until the last is
    accepted (one in 20 is rejected at worst, so that few rounds are needed), times u^(1 / shape).
    `jax.random.loggamma` waits for each number by itself, which takes about 14 times as long.

    Args:
        key: a fresh key.
        shape: of each number, positive; arrays of any dimensions. NaN gives NaN.

    Reference:
        Marsaglia and Tsang, A simple method for generating gamma variables, 2000.
    """
    key_power, key_rounds = jax.random.split(key)
    d = shape + (1.0 - 1.0 / 3.0)
    c = lax.rsqrt(9.0 * d)

    def one_round(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        number, found, accepted = carry
        key_x, key_u = jax.random.split(jax.random.fold_in(key_rounds, number))
        x = normal(key_x, shape.shape, shape.dtype)
        u = jax.random.uniform(key_u, shape.shape, shape.dtype)
        t = c * x
        # d - d v + d log v for v = (1 + t)^3, written so that large d does not cancel digits.
        log_v = 3.0 * jnp.log1p(jnp.maximum(t, -1.0))
        bound = 0.5 * x**2 + d * (log_v - t * (3.0 + 3.0 * t + t**2))
        well = (t > -1.0) & (jnp.log(u) < bound)
        found = jnp.where(accepted, found, jnp.log(d) + log_v)
        return number + 1, found, accepted | well

    carry = (jnp.int32(0), jnp.zeros_like(shape), ~jnp.isfinite(shape))  # or it would never end
    _, found, _ = lax.while_loop(lambda carry: ~jnp.all(carry[2]), one_round, carry)
    return found - jax.random.exponential(key_power, shape.shape, shape.dtype) / shape


def _words(key: PRNGKeyArray) -> UInt32[Array, "2"]:
    """Two words of a key: those of JAX's default keys, or two that another kind draws."""
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        key = jax.random.wrap_key_data(key)
    data = jax.random.key_data(key)
    return data if data.shape == (2,) else jax.random.bits(key, (2,), jnp.uint32)


def threefry(words: UInt32[Array, "2"], rows: int) -> tuple[UInt32[Array, "rows lanes"], ...]:
    """Two words for each of rows * LANES counters, by Threefry-2x32 with 20 rounds.

    The key is a row of equal words. Were it two numbers in memory, LLVM could not tell that the
    results are not written over them, and would compute one counter at a time.

    Reference:
        Salmon, Moraes, Dror and Shaw, Parallel random numbers: as easy as 1, 2, 3, 2011.
    """
    shape = (rows, LANES)
    row = lax.optimization_barrier(jnp.broadcast_to(words[:, None, None], (2, 1, LANES)))
    one, two = (jnp.broadcast_to(each, shape) for each in row)
    keys = (one, two, one ^ two ^ jnp.uint32(PARITY))
    first = lax.broadcasted_iota(jnp.uint32, shape, 0) * jnp.uint32(LANES)
    x = jnp.uint32(STREAM) + one
    y = first + lax.broadcasted_iota(jnp.uint32, shape, 1) + two
    for group in range(5):
        for distance in ROTATIONS[group % 2]:
            x = x + y
            y = ((y << jnp.uint32(distance)) | (y >> jnp.uint32(32 - distance))) ^ x
        x = x + keys[(group + 1) % 3]
        y = y + keys[(group + 2) % 3] + jnp.uint32(group + 1)
    return lax.optimization_barrier((x, y))  # or XLA computes them once for either half below


def box_muller(x: UInt32[Array, "n ..."], y: UInt32[Array, "n ..."]) -> Float[Array, "m ..."]:
    """sqrt(-2 log u) cos(2 pi v) of all pairs of words, then the same with the sine.

    u is the middle of one of 2^23 cells, so numbers end at sqrt(48 log 2) = 5.77.
    """
    u = ((x >> 9).astype(jnp.int32).astype(jnp.float32) + 0.5) * 2.0**-23
    radius = jnp.sqrt(-2.0 * _log(u))
    cosine, sine = _cosine_and_sine(y)
    return jnp.concatenate([radius * cosine, radius * sine])


def _log(u: Float[Array, "..."]) -> Float[Array, "..."]:
    """The logarithm of positive normal numbers, to two units in the last place.

    u = 2^k (1 + m) with 1 + m in [sqrt(1/2), sqrt(2)), and log(1 + m) by its minimax polynomial.
    """
    bits = lax.bitcast_convert_type(u, jnp.int32)
    exponent = (bits - jnp.int32(0x3F3504F3)) >> 23  # 0x3F3504F3 is sqrt(1/2)
    m = lax.bitcast_convert_type(bits - (exponent << 23), jnp.float32) - 1.0
    return m + m**2 * (m * _polynomial(LOG, m) - 0.5) + exponent.astype(jnp.float32) * math.log(2)


def _cosine_and_sine(y: UInt32[Array, "..."]) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """Of the angle 2 pi y / 2^32, by polynomials in the angle from the nearest axis."""
    axis = (y + jnp.uint32(1 << 29)) >> 30
    turn = lax.bitcast_convert_type(y - (axis << 30), jnp.int32).astype(jnp.float32)
    angle = turn * (2.0 * math.pi * 2.0**-32)
    square = angle**2
    sine = angle + angle * square * _polynomial(SINE, square)
    cosine = 1.0 - 0.5 * square + square**2 * _polynomial(COSINE, square)
    swapped = (axis & 1) == 1
    first, second = jnp.where(swapped, sine, cosine), jnp.where(swapped, cosine, sine)
    first = jnp.where(((axis + 1) & 2) != 0, -first, first)
    return first, jnp.where((axis & 2) != 0, -second, second)


def _polynomial(coefficients: tuple[float, ...], x: Float[Array, "..."]) -> Float[Array, "..."]:
    """By Horner's scheme, the highest power first."""
    value = jnp.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * x + coefficient
    return value
