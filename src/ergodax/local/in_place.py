"""Trajectories and descents in the memory of few copies of the weights, for large networks."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from ergodax import random_numbers, tree
from ergodax.data.arrays import fold_in_chunks
from ergodax.local.law import LocalLaw, squared_distance
from ergodax.local.trajectories import SHORTEST_STEP
from ergodax.tune.budget import Deadline

SLOW = 20  # iterations without a lower potential, after which a descent ends


def _kicked(
    law: LocalLaw, position: PyTree, momentum: PyTree, h: Any
) -> tuple[Float[Array, ""], PyTree]:
    """U, and momentum - h grad U, chunk by chunk, so that no gradient of all rows is kept."""
    posterior, gamma = law.posterior, law.localization

    def of_chunk(sofar: tuple[Array, PyTree], batch: PyTree) -> tuple[Array, PyTree]:
        of = lambda x: -jnp.sum(posterior.log_likelihoods(x, batch))  # noqa: E731
        value, gradient = jax.value_and_grad(of)(position)
        return sofar[0] + value, tree.add_scaled(sofar[1], -h, gradient)

    pull = lambda r, x, c: r - tree.cast(h * gamma, x) * (x - c)  # noqa: E731
    start = (
        0.5 * gamma * squared_distance(position, law.centre),
        jax.tree.map(pull, momentum, position, law.centre),
    )
    return fold_in_chunks(of_chunk, start, posterior.data, law.num_data, law.chunk)


class Leaps(NamedTuple):
    """How far trajectories go."""

    step_size: Float[Array, ""]  # the longest, as in `Trajectories`
    length: Int[Array, ""]


class Seen(NamedTuple):
    """What is told of the position after a trajectory, or after each of several."""

    collected: PyTree
    potential: Any
    acceptance: Any


def run(
    law: LocalLaw,
    key: PRNGKeyArray,
    position: PyTree,
    leaps: Leaps,
    num_draws: int,
    collect: Callable[[PyTree], PyTree],
    deadline: Deadline,
) -> tuple[PyTree, Seen]:
    """So many trajectories, fewer where the time is up, from a position that is given up.

    Returns:
        The last position, and what was seen, on an axis of the draws.
    """
    seen = []
    while len(seen) < num_draws and not deadline.over:
        what = law, jax.random.fold_in(key, len(seen)), leaps, collect
        position, told = _trajectory(what, position)
        seen.append(jax.device_get(told))
    if seen:
        return position, jax.tree.map(lambda *each: np.stack(each), *seen)
    row = eqx.filter_eval_shape(collect, position)
    nothing = jax.tree.map(lambda x: np.zeros((0, *x.shape), x.dtype), row)
    return position, Seen(nothing, np.zeros(0), np.zeros(0))


@partial(eqx.filter_jit, donate="warn-except-first")
def _trajectory(
    what: tuple[LocalLaw, PRNGKeyArray, Leaps, Any], position: PyTree
) -> tuple[PyTree, Seen]:
    """One step of `Trajectories`, from a position that is given up.

    Beside w* and the position it holds where the trajectory stands, the momentum there and a
    chunk's gradient. The momentum of the start is drawn a second time from its key, array after
    array, when the rise of the kinetic energy is summed.
    """
    law, key, leaps, collect = what
    key_momentum, key_step, key_accept = jax.random.split(key, 3)
    leaves, structure = jax.tree.flatten(position)
    share = jax.random.uniform(key_step, dtype=leaps.step_size.dtype)
    h = SHORTEST_STEP**share * leaps.step_size

    def drawn(key: PRNGKeyArray, number: int) -> Array:
        like = leaves[number]
        return random_numbers.normal(jax.random.fold_in(key, number), like.shape, like.dtype)

    def leap(number: Int[Array, ""], carry: tuple[Any, ...]) -> tuple[Any, ...]:
        x, r, first, _ = carry
        at_end = (number == 0) | (number == leaps.length)
        potential, r = _kicked(law, x, r, jnp.where(at_end, 0.5 * h, h))
        x = tree.add_scaled(x, jnp.where(number == leaps.length, 0.0 * h, h), r)
        return x, r, jnp.where(number == 0, potential, first), potential

    momentum = structure.unflatten([drawn(key_momentum, k) for k in range(len(leaves))])
    zero = jnp.zeros_like(law.localization)
    carry = position, momentum, zero, zero
    there, r, before, after = jax.lax.fori_loop(0, leaps.length + 1, leap, carry)
    rise = after - before
    for number, end in enumerate(jax.tree.leaves(r)):
        # The barrier makes the compiler draw again what it has let go, one array after the other.
        key, rise = jax.lax.optimization_barrier((key_momentum, rise))
        start = drawn(key, number)
        rise = rise + tree.cast(0.5 * jnp.sum((end - start) * (end + start)), rise)
    acceptance = jnp.exp(-jnp.maximum(jnp.where(jnp.isfinite(rise), rise, jnp.inf), 0.0))
    accepted = jax.random.uniform(key_accept, dtype=zero.dtype) < acceptance
    position = jax.tree.map(partial(jnp.where, accepted), there, position)
    potential = jnp.where(accepted, after, before)
    return position, Seen(collect(position), potential, acceptance)


class _Along(NamedTuple):
    """What a step of a descent needs to know."""

    potential: Float[Array, ""]
    pull: Float[Array, ""]  # the localization's part of it
    steepness: Float[Array, ""]  # |g|^2
    change: Float[Array, ""]  # g . (g_before - g), of which Barzilai and Borwein's step is made


@partial(eqx.filter_jit, donate="warn-except-first")
def _descended(
    what: tuple[LocalLaw, Any], place: tuple[PyTree, PyTree]
) -> tuple[tuple[PyTree, PyTree], _Along]:
    """A step against the gradient, and the gradient there."""
    (law, step), (x, gradient) = what, place
    x = tree.add_scaled(x, -step, gradient)
    potential, opposite = _kicked(law, x, tree.zeros_like(x), 1.0)
    change = tree.dot(gradient, tree.add(gradient, opposite))
    there = tree.scale(-1.0, opposite)
    pull = 0.5 * law.localization * squared_distance(x, law.centre)
    return (x, there), _Along(potential, pull, tree.dot(opposite, opposite), change)


def fall_of_loss(
    law: LocalLaw, enough: Callable[[float], float], max_iterations: int, deadline: Deadline
) -> tuple[float, bool]:
    """t (L_n(w*) - L_n) at the lowest U of a descent from w*, and whether that is a minimum.

    Barzilai and Borwein's steps, s.s / s.y with s the last step and y the change of the gradient,
    need no arrays but a position and two gradients. The first, which finds the curvature, promises
    a fall of 1; and no curvature is below gamma.
    """
    zero, dtype = jnp.zeros_like(law.localization), law.localization.dtype
    start = jax.tree.map(jnp.copy, law.centre), tree.zeros_like(law.centre)
    place, at = _descended((law, zero), start)
    lowest, fallen, steep = float(at.potential), 0.0, float(at.steepness)
    step, since = min(1.0 / float(law.localization), 1.0 / max(steep, 1e-30)), 0
    for _ in range(max_iterations):
        if deadline.over or since > SLOW or not math.isfinite(steep):
            return fallen, False
        if steep**0.5 <= enough(lowest):
            return fallen, True
        place, at = _descended((law, jnp.asarray(step, dtype)), place)
        potential, pull, after, change = map(float, at)
        since += 1
        if potential < lowest:
            lowest, fallen, since = potential, pull - potential, 0
        step = step * steep / change if change > 0.0 else 2.0 * step
        steep = after
    return fallen, False
