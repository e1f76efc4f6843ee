"""The loops that a good JAX engineer writes for one sampler and one problem, and the floor.

No kernel, no state object, no diagnostics: keys split before the loop, rows drawn with
replacement, a gather, the gradient of the batch's potential, the update; every thin-th
position is kept by the scan itself.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.tasks import logistic
from benchmarks.tasks.logistic import BATCH_SIZE, FRICTION, STEP_SIZE

BLOCK = 100  # steps whose random numbers the floor draws at once


def run(
    sampler: str, task: logistic.Task, num_steps: int, thin: int, chains: int = 0, *, floor=False
) -> Callable[[int], jax.Array]:
    """A function seed -> draws, compiled at its first call.

    Args:
        sampler: "sgld" or "sghmc".
        task: the problem.
        num_steps: steps of each chain.
        thin: steps to a draw.
        chains: how many under vmap; 0 for one chain without.
        floor: draw indices and noise for 100 steps at once.
    """
    loop = _floor if floor else _loop
    static = dict(sampler=sampler, num_draws=num_steps // thin, thin=thin, num_data=task.num_data)

    @jax.jit
    def compiled(key: jax.Array, start: jax.Array, data: Any) -> jax.Array:
        one = functools.partial(loop, **static)
        if not chains:
            return one(key, start, data)
        return jax.vmap(one, in_axes=(0, None, None))(jax.random.split(key, chains), start, data)

    return lambda seed: compiled(jax.random.key(seed), task.start, task.data)


def sgld_update(state: tuple, gradient: jax.Array, noise: jax.Array) -> tuple:
    """x - h g + sqrt(2 h) noise."""
    h = STEP_SIZE["sgld"]
    return (state[0] - h * gradient + (2 * h) ** 0.5 * noise,)


def sghmc_update(state: tuple, gradient: jax.Array, noise: jax.Array) -> tuple:
    """The momentum first, then the position with the new momentum."""
    h = STEP_SIZE["sghmc"]
    x, r = state
    r = (1 - h * FRICTION) * r - h * gradient + (2 * h * FRICTION) ** 0.5 * noise
    return x + h * r, r


UPDATE = {"sgld": sgld_update, "sghmc": sghmc_update}


def keep_every(thin: int, step: Callable, state: Any, inputs: Any) -> tuple[Any, jax.Array]:
    """Scan `step` over inputs of shape (draws, thin, ...); store state[0] once a draw."""

    def draw(state: Any, inputs: Any) -> tuple[Any, jax.Array]:
        if thin == 1:
            state = step(state, jax.tree.map(lambda x: x[0], inputs))
        else:
            state, _ = lax.scan(lambda s, i: (step(s, i), None), state, inputs)
        return state, state[0]

    return lax.scan(draw, state, inputs)


def _start(sampler: str, key: jax.Array, x: jax.Array) -> tuple:
    return (x,) if sampler == "sgld" else (x, jax.random.normal(key, x.shape))


def _loop(
    key: jax.Array, x: jax.Array, data: Any, *, sampler: str, num_draws: int, thin: int, num_data
) -> jax.Array:
    def step(state: tuple, key: jax.Array) -> tuple:
        key_rows, key_noise = jax.random.split(key)
        rows = jax.random.randint(key_rows, (BATCH_SIZE,), 0, num_data)
        batch = logistic.take(data, rows)
        gradient = jax.grad(logistic.potential)(state[0], batch, num_data)
        return UPDATE[sampler](state, gradient, jax.random.normal(key_noise, x.shape))

    key_start, key_steps = jax.random.split(key)
    keys = jax.random.split(key_steps, (num_draws, thin))
    return keep_every(thin, step, _start(sampler, key_start, x), keys)[1]


def _floor(
    key: jax.Array, x: jax.Array, data: Any, *, sampler: str, num_draws: int, thin: int, num_data
) -> jax.Array:
    shape = (BLOCK // thin, thin)

    def step(state: tuple, numbers: tuple) -> tuple:
        rows, noise = numbers
        batch = logistic.take(data, rows)
        gradient = jax.grad(logistic.potential)(state[0], batch, num_data)
        return UPDATE[sampler](state, gradient, noise)

    def block(state: tuple, key: jax.Array) -> tuple[tuple, jax.Array]:
        key_rows, key_noise = jax.random.split(key)
        rows = jax.random.randint(key_rows, (*shape, BATCH_SIZE), 0, num_data)
        noise = jax.random.normal(key_noise, (*shape, *x.shape))
        return keep_every(thin, step, state, (rows, noise))

    key_start, key_blocks = jax.random.split(key)
    keys = jax.random.split(key_blocks, num_draws * thin // BLOCK)
    draws = lax.scan(block, _start(sampler, key_start, x), keys)[1]
    return jnp.reshape(draws, (-1, *x.shape))
