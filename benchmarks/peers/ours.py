"""This library: the public call, and its kernel in a bare scan."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import ergodax as ex
from benchmarks.peers import recipes
from benchmarks.tasks.logistic import BATCH_SIZE, FRICTION, STEP_SIZE, Task


def kernel(
    sampler: str,
    task: Task,
    replace: bool,
    batching: ex.data.Batching | None = None,
    *,
    generic: bool = False,
) -> ex.Kernel:
    """The kernel with the task's step size and friction.

    Args:
        sampler: "sgld", "sghmc", "sgrld" or "sgrhmc".
        task: the problem.
        replace: draw rows with replacement.
        batching: another scheme.
        generic: the recipe as a user writes it, instead of the sampler of that name.
    """
    gradient = ex.Minibatch(task.posterior, BATCH_SIZE, replace, batching=batching)
    h = STEP_SIZE["sghmc" if sampler.endswith("hmc") else "sgld"]
    make = recipes.kernel if generic else named
    return make(sampler, gradient, h, FRICTION)


def named(sampler: str, gradient: ex.GradientEstimator, h: float, friction: float) -> ex.Kernel:
    """The library's sampler of that name, where there is one with the benchmark's metric."""
    return {
        "sgld": lambda: ex.sgld(gradient, h),
        "sghmc": lambda: ex.sghmc(gradient, h, friction),
        "sgrld": lambda: ex.sgrld(gradient, h, recipes.inverse_metric),
        "sgrhmc": lambda: ex.sgrhmc(gradient, h, recipes.inverse_metric, friction),
    }[sampler]()


def run(
    sampler: str,
    task: Task,
    num_steps: int,
    thin: int,
    chains: int = 1,
    *,
    replace: bool,
    batching: ex.data.Batching | None = None,
    generic: bool = False,
) -> Callable[[int], np.ndarray]:
    """`ex.sample` as a user calls it; the time of the whole call is what counts."""
    chosen = kernel(sampler, task, replace, batching, generic=generic)

    def call(seed: int) -> np.ndarray:
        samples = ex.sample(
            chosen,
            task.start,
            num_steps,
            thin=thin,
            num_chains=chains,
            key=jax.random.key(seed),
            progress=False,
        )
        return samples.position[0] if chains == 1 else samples.position

    return call


def bare(
    sampler: str, task: Task, num_steps: int, thin: int, *, replace: bool, generic: bool = False
) -> Callable[[int], jax.Array]:
    """`kernel.step` in one lax.scan, Info dropped: the kernel without the driver."""

    @eqx.filter_jit
    def compiled(kernel: Any, key: jax.Array, start: jax.Array) -> jax.Array:
        def step(state: Any, key: jax.Array) -> tuple[Any, None]:
            return kernel.step(key, state)[0], None

        def draw(state: Any, keys: jax.Array) -> tuple[Any, jax.Array]:
            state, _ = step(state, keys[0]) if thin == 1 else lax.scan(step, state, keys)
            return state, state.position

        key_start, key_steps = jax.random.split(key)
        keys = jax.random.split(key_steps, (num_steps // thin, thin))
        return lax.scan(draw, kernel.init(key_start, start), keys)[1]

    chosen = kernel(sampler, task, replace, generic=generic)
    return lambda seed: compiled(chosen, jax.random.key(seed), task.start)


def wide(kernel: ex.Kernel, start: dict, num_steps: int) -> Callable[[int], jax.Array]:
    """`kernel.step` in one lax.scan; returns the last position, as `handwritten.wide` does."""

    @eqx.filter_jit
    def compiled(kernel: Any, key: jax.Array, x: dict) -> jax.Array:
        key_start, key_steps = jax.random.split(key)
        state, keys = kernel.init(key_start, x), jax.random.split(key_steps, num_steps)
        state, _ = lax.scan(lambda s, k: (kernel.step(k, s)[0], None), state, keys)
        return jnp.concatenate([leaf.reshape(-1, 1) for leaf in state.position.values()])

    return lambda seed: compiled(kernel, jax.random.key(seed), start)
