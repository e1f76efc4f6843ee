"""BlackJAX's SGLD and SGHMC, in a compiled scan and driven from a Python loop.

Its conventions, read in its source (1.7.1): `sgld` is x + h grad + sqrt(2 h T) noise, our h.
Its SGHMC integrator is x + h r, (1 - alpha h) r + h grad + sqrt(2 alpha h T) noise, so
alpha is our friction rate (mass 1) and h our h; both lines use the old (x, r), so it is the
plain Euler scheme, the same work as ours. Its `sghmc` KERNEL takes L such steps on one batch
and draws the momentum anew before them: a batch costs it 1/L. Therefore two rows: the
integrator with a batch for each step, which does the same work as everybody else here, and
the kernel as it comes (L=10), timed by gradient.
"""

from collections.abc import Callable
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
from blackjax.sgmcmc import diffusions
from blackjax.sgmcmc.gradients import grad_estimator

from benchmarks.peers.handwritten import keep_every
from benchmarks.tasks import logistic
from benchmarks.tasks.logistic import BATCH_SIZE, FRICTION, STEP_SIZE, Task

LEAPS = 10  # BlackJAX's default number of steps on one batch

Step = Callable[[tuple, jax.Array, Any], tuple]  # (state, key, data) -> state


def _step(sampler: str, num_data: int) -> Step:
    """One BlackJAX step on a fresh batch, the batch drawn as the hand-written loop draws it."""
    gradient = grad_estimator(logistic.log_prior, logistic.log_likelihood, num_data)
    h = STEP_SIZE["sgld" if sampler == "sgld" else "sghmc"]
    integrator = diffusions.sghmc(alpha=FRICTION)
    sgld = blackjax.sgld(gradient)
    kernel = blackjax.sghmc(gradient, LEAPS, alpha=FRICTION)

    def step(state: tuple, key: jax.Array, data: Any) -> tuple:
        key_rows, key_noise = jax.random.split(key)
        rows = jax.random.randint(key_rows, (BATCH_SIZE,), 0, num_data)
        batch = logistic.take(data, rows)
        if sampler == "sgld":
            return (sgld.step(key_noise, state[0], batch, h),)
        if sampler == "sghmc kernel":
            return (kernel.step(key_noise, state[0], batch, h),)
        return integrator(key_noise, *state, gradient(state[0], batch), h)

    return step


def _start(sampler: str, key: jax.Array, x: jax.Array) -> tuple:
    return (x, jax.random.normal(key, x.shape)) if sampler == "sghmc" else (x,)


def scan(
    sampler: str, task: Task, num_steps: int, thin: int, chains: int = 0
) -> Callable[[int], jax.Array]:
    """A function seed -> draws: BlackJAX's step in one lax.scan, under vmap if chains > 0.

    Args:
        sampler: "sgld", "sghmc" (the integrator), or "sghmc kernel" (L gradients a step; then
            num_steps and thin count gradients, and thin must be a multiple of L).
        task: the problem.
        num_steps: steps of each chain.
        thin: steps to a draw.
        chains: how many; 0 for one without vmap.
    """
    if sampler == "sghmc kernel":
        num_steps, thin = num_steps // LEAPS, thin // LEAPS
    step = _step(sampler, task.num_data)

    def one(key: jax.Array, start: jax.Array, data: Any) -> jax.Array:
        key_start, key_steps = jax.random.split(key)
        keys = jax.random.split(key_steps, (num_steps // thin, thin))
        state = _start(sampler, key_start, start)
        return keep_every(thin, lambda s, k: step(s, k, data), state, keys)[1]

    @jax.jit
    def compiled(key: jax.Array, start: jax.Array, data: Any) -> jax.Array:
        if not chains:
            return one(key, start, data)
        return jax.vmap(one, in_axes=(0, None, None))(jax.random.split(key, chains), start, data)

    return lambda seed: compiled(jax.random.key(seed), task.start, task.data)


def python_loop(sampler: str, task: Task, num_steps: int, thin: int) -> Callable[[int], jax.Array]:
    """The same step, compiled alone and called from Python; the kindest such loop.

    The key is split inside the compiled function, so that a step is one call.
    """
    step = _step(sampler, task.num_data)

    @jax.jit
    def compiled(key: jax.Array, state: tuple, data: Any) -> tuple[jax.Array, tuple]:
        key, key_step = jax.random.split(key)
        return key, step(state, key_step, data)

    def call(seed: int) -> jax.Array:
        key, key_start = jax.random.split(jax.random.key(seed))
        state, kept = _start(sampler, key_start, task.start), []
        for k in range(num_steps):
            key, state = compiled(key, state, task.data)
            if (k + 1) % thin == 0:
                kept.append(state[0])
        return jnp.stack(kept)

    return call
