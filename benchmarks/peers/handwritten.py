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
        sampler: "sgld", "sghmc", "sgrld" or "sgrhmc".
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


def sgld_update(
    state: tuple, gradient: jax.Array, noise: jax.Array, h: float, friction: float
) -> tuple:
    """x - h g + sqrt(2 h) noise."""
    return (state[0] - h * gradient + (2 * h) ** 0.5 * noise,)


def sghmc_update(
    state: tuple, gradient: jax.Array, noise: jax.Array, h: float, friction: float
) -> tuple:
    """The momentum first, then the position with the new momentum."""
    x, r = state
    r = (1 - h * friction) * r - h * gradient + (2 * h * friction) ** 0.5 * noise
    return x + h * r, r


def sgrld_update(
    state: tuple, gradient: jax.Array, noise: jax.Array, h: float, friction: float
) -> tuple:
    """With G^-1 = 1 / (1 + x^2), whose derivative is -2 x G^-2."""
    (x,) = state
    inverse = 1 / (1 + x**2)
    drift = -inverse * gradient - 2 * x * inverse**2
    return (x + h * drift + jnp.sqrt(2 * h * inverse) * noise,)


def sgrhmc_update(
    state: tuple, gradient: jax.Array, noise: jax.Array, h: float, friction: float
) -> tuple:
    """With L = (1 + x^2)^(-1/2), whose derivative is -x L^3."""
    x, r = state
    root = lax.rsqrt(1 + x**2)
    drift = -root * gradient - x * root**3 - friction * root**2 * r
    r = r + h * drift + (2 * h * friction) ** 0.5 * root * noise
    return x + h * root * r, r


UPDATE = {
    "sgld": sgld_update,
    "sghmc": sghmc_update,
    "sgrld": sgrld_update,
    "sgrhmc": sgrhmc_update,
}


def _update(sampler: str, state: tuple, gradient: jax.Array, noise: jax.Array) -> tuple:
    h = STEP_SIZE["sgld" if len(state) == 1 else "sghmc"]
    return UPDATE[sampler](state, gradient, noise, h, FRICTION)


def keep_every(thin: int, step: Callable, state: Any, inputs: Any) -> tuple[Any, jax.Array]:
    """Scan `step` over inputs of shape (draws, thin, ...); store state[0] once a draw."""

    def draw(state: Any, inputs: Any) -> tuple[Any, jax.Array]:
        if thin == 1:
            state = step(state, jax.tree.map(lambda x: x[0], inputs))
        else:
            state, _ = lax.scan(lambda s, i: (step(s, i), None), state, inputs)
        return state, state[0]

    return lax.scan(draw, state, inputs)


def wide_step(sampler: str, h: float, friction: float) -> Callable[[dict, jax.Array], dict]:
    """(state, key) -> state for a standard normal on a dict of arrays; each has a state tuple."""

    def potential(x: dict) -> jax.Array:
        return 0.5 * sum((jnp.sum(leaf**2) for leaf in x.values()), start=jnp.zeros(()))

    def step(state: dict, key: jax.Array) -> dict:
        gradient = jax.grad(potential)({name: leaf[0] for name, leaf in state.items()})
        new = {}
        for name, key_leaf in zip(state, jax.random.split(key, len(state)), strict=True):
            noise = jax.random.normal(key_leaf, gradient[name].shape)
            new[name] = UPDATE[sampler](state[name], gradient[name], noise, h, friction)
        return new

    return step


def wide(
    sampler: str, start: dict, num_steps: int, h: float, friction: float
) -> Callable[[int], jax.Array]:
    """A function seed -> the last position, entries in the order of `start`, shape (d, 1)."""
    step = wide_step(sampler, h, friction)

    @jax.jit
    def compiled(key: jax.Array, x: dict) -> jax.Array:
        key_start, key_steps = jax.random.split(key)
        state = wide_start(sampler, key_start, x)
        keys = jax.random.split(key_steps, num_steps)
        state, _ = lax.scan(lambda s, k: (step(s, k), None), state, keys)
        return jnp.concatenate([leaf[0].reshape(-1, 1) for leaf in state.values()])

    return lambda seed: compiled(jax.random.key(seed), start)


def wide_start(sampler: str, key: jax.Array, x: dict) -> dict:
    """The state tuple of each array."""
    keys = jax.random.split(key, len(x))
    return {name: _start(sampler, k, x[name]) for name, k in zip(x, keys, strict=True)}


def _start(sampler: str, key: jax.Array, x: jax.Array) -> tuple:
    return (x,) if sampler in ("sgld", "sgrld") else (x, jax.random.normal(key, x.shape))


def _loop(
    key: jax.Array, x: jax.Array, data: Any, *, sampler: str, num_draws: int, thin: int, num_data
) -> jax.Array:
    def step(state: tuple, key: jax.Array) -> tuple:
        key_rows, key_noise = jax.random.split(key)
        rows = jax.random.randint(key_rows, (BATCH_SIZE,), 0, num_data)
        batch = logistic.take(data, rows)
        gradient = jax.grad(logistic.potential)(state[0], batch, num_data)
        return _update(sampler, state, gradient, jax.random.normal(key_noise, x.shape))

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
        return _update(sampler, state, gradient, noise)

    def block(state: tuple, key: jax.Array) -> tuple[tuple, jax.Array]:
        key_rows, key_noise = jax.random.split(key)
        rows = jax.random.randint(key_rows, (*shape, BATCH_SIZE), 0, num_data)
        noise = jax.random.normal(key_noise, (*shape, *x.shape))
        return keep_every(thin, step, state, (rows, noise))

    key_start, key_blocks = jax.random.split(key)
    keys = jax.random.split(key_blocks, num_draws * thin // BLOCK)
    draws = lax.scan(block, _start(sampler, key_start, x), keys)[1]
    return jnp.reshape(draws, (-1, *x.shape))
