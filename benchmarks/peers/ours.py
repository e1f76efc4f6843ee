"""This library: the public call, and its kernel in a bare scan."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax import lax

import ergodax as ex
from benchmarks.tasks.logistic import BATCH_SIZE, FRICTION, STEP_SIZE, Task


def kernel(
    sampler: str, task: Task, replace: bool, batching: ex.data.Batching | None = None
) -> Any:
    """The kernel with the task's step size and friction."""
    gradient = ex.Minibatch(task.posterior, BATCH_SIZE, replace, batching=batching)
    if sampler == "sgld":
        return ex.sgld(gradient, STEP_SIZE[sampler])
    return ex.sghmc(gradient, STEP_SIZE[sampler], FRICTION)


def run(
    sampler: str,
    task: Task,
    num_steps: int,
    thin: int,
    chains: int = 1,
    *,
    replace: bool,
    batching: ex.data.Batching | None = None,
) -> Callable[[int], np.ndarray]:
    """`ex.sample` as a user calls it; the time of the whole call is what counts."""
    chosen = kernel(sampler, task, replace, batching)

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
    sampler: str, task: Task, num_steps: int, thin: int, *, replace: bool
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

    chosen = kernel(sampler, task, replace)
    return lambda seed: compiled(chosen, jax.random.key(seed), task.start)
