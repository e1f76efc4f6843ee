"""Bright rows: the auxiliary variables of Firefly Monte Carlo, and their update.

z_i = 1 marks a row as bright. Given the position, the z_i are independent, with odds
r_i = L_i / B_i - 1 for a likelihood L_i and its lower bound B_i. An update proposes to every bright
row to go dark, accepted with probability min(1, q / r_i), and to every dark row, with probability
q each, to go bright, accepted with probability min(1, r_i / q). The dark rows that get a proposal
are found by the geometric gaps between them, so the cost is that of the bright rows and of about
q N others.

Only the bright rows are stored, sorted, in a fixed number of places; the places left hold N.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, UInt32

from ergodax.exact.lower_bound import Excess

BLOCK = 32  # rows computed at a time


class Flips(NamedTuple):
    """What an update of the z_i came to.

    Attributes:
        bright: the rows that are bright now, sorted.
        count: how many there are; more than there are places where some were lost.
        sound: whether every bound that was looked at held.
        evaluations: likelihoods that it took.
    """

    bright: Int[Array, " places"]
    count: Int[Array, ""]
    sound: Bool[Array, ""]
    evaluations: Int[Array, ""]


def flip(
    key: PRNGKeyArray,
    excess: Excess,
    position: PyTree,
    bright: Int[Array, " places"],
    probability: Float[Array, ""],
) -> Flips:
    """Update every z_i at a position.

    Args:
        key: a fresh key.
        excess: log(L_i / B_i).
        position: the present one.
        bright: the bright rows, sorted; a multiple of BLOCK places.
        probability: q, in (0, 1).
    """
    key_dark, key_bright = jax.random.split(key)
    stay, sound = _darken(key_dark, excess, position, bright, probability)
    come, arrivals, looked, holds = _brighten(key_bright, excess, position, bright, probability)
    n = excess.posterior.num_data
    rows = jnp.sort(jnp.concatenate([stay, come]))[: bright.size]
    count, cost = how_many(stay < n) + arrivals, how_many(bright < n) + looked
    return Flips(rows, count, sound & holds, cost)


def how_many(flags: Bool[Array, " n"]) -> Int[Array, ""]:
    """The number of flags that are raised."""
    return jnp.sum(flags, dtype=jnp.int32)


def _darken(
    key: PRNGKeyArray,
    excess: Excess,
    position: PyTree,
    bright: Int[Array, " places"],
    probability: Float[Array, ""],
) -> tuple[Int[Array, " places"], Bool[Array, ""]]:
    """The bright rows that stay so, N in the places of the others."""
    n = excess.posterior.num_data
    count = how_many(bright < n)
    uniforms = jax.random.uniform(key, bright.shape, probability.dtype)

    def one(carry: tuple) -> tuple:
        done, rows, sound = carry
        block, u = (lax.dynamic_slice(x, (done,), (BLOCK,)) for x in (rows, uniforms))
        gap, holds = excess(position, block)
        stay = u * jnp.expm1(gap) >= probability
        rows = lax.dynamic_update_slice(rows, jnp.where(stay, block, n), (done,))
        return done + BLOCK, rows, sound & jnp.all(holds | (block == n))

    begin = (jnp.int32(0), bright, jnp.array(True))
    _, rows, sound = lax.while_loop(lambda carry: carry[0] < count, one, begin)
    return rows, sound


def _brighten(
    key: PRNGKeyArray,
    excess: Excess,
    position: PyTree,
    bright: Int[Array, " places"],
    probability: Float[Array, ""],
) -> tuple[Int[Array, " places"], Int[Array, ""], Int[Array, ""], Bool[Array, ""]]:
    """Dark rows that go bright, how many, how many were looked at, whether all bounds held."""
    n = excess.posterior.num_data

    def one(carry: tuple) -> tuple:
        key, passed, come, arrivals, looked, sound = carry
        key, key_gaps, key_test = jax.random.split(key, 3)
        passed, rows = successes(key_gaps, passed, probability, n)
        place = jnp.minimum(jnp.searchsorted(bright, rows), bright.size - 1)
        dark = (rows < n) & (bright[place] != rows)
        gap, holds = excess(position, rows)
        u = jax.random.uniform(key_test, rows.shape, probability.dtype)
        goes = dark & (u * probability < jnp.expm1(gap))
        slots = jnp.where(goes, arrivals + jnp.cumsum(goes, dtype=jnp.int32) - 1, come.size)
        come = come.at[slots].set(rows, mode="drop")
        arrivals = arrivals + how_many(goes)
        looked = looked + how_many(dark)
        return key, passed, come, arrivals, looked, sound & jnp.all(holds | ~dark)

    none = jnp.int32(0)
    begin = (key, jnp.uint32(0), jnp.full_like(bright, n), none, none, jnp.array(True))
    return lax.while_loop(lambda carry: carry[1] < n, one, begin)[2:]


def successes(
    key: PRNGKeyArray, passed: UInt32[Array, ""], probability: Float[Array, ""], num_rows: int
) -> tuple[UInt32[Array, ""], Int[Array, " block"]]:
    """The next BLOCK successes in a row of independent trials, one for each row of the data.

    Args:
        key: a fresh key.
        passed: trials that were made before.
        probability: q, of a success.
        num_rows: N, the number of trials.

    Returns:
        How many trials have been made then, and the successes' row numbers, N beyond the end.
    """
    bits = jax.random.bits(key, (BLOCK,), jnp.uint32).astype(probability.dtype)
    # 32 bits near zero, where a uniform number of JAX has 23: rare successes need them.
    exponential = -jnp.log1p(-(bits + 0.5) * 2.0**-32)
    failures = jnp.floor(exponential / -jnp.log1p(-probability))
    failures = jnp.where(failures < num_rows, failures, num_rows).astype(jnp.uint32)
    # N + 1 stands for all that is beyond the end, so that no sum can overflow.
    ends = lax.associative_scan(
        lambda a, b: jnp.minimum(a + b, jnp.uint32(num_rows + 1)),
        (failures + 1).at[0].add(passed),
    )
    return ends[-1], ends.astype(jnp.int32) - 1
