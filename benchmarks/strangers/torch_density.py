"""posteriors' SGLD on the bank: a density of JAX as a function that PyTorch can differentiate."""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax.flatten_util import ravel_pytree
from posteriors.sgmcmc import sgld as library

from benchmarks.strangers.bank import Problem
from benchmarks.strangers.peers import ROWS

KEPT = 1_000  # draws of each chain that are kept, of the later half
FEWEST = 200  # steps, however little time there is

Density = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


def sgld(
    problem: Problem, starts: np.ndarray, rate: float, seed: int, seconds: float
) -> np.ndarray:
    """Draws of posteriors' SGLD, the chains as the rows of one matrix of parameters.

    The density is divided by the number of rows, and so is the temperature, as its pages advise.

    Args:
        problem: its target is an ex.Posterior.
        starts: shape (chains, d).
        rate: the learning rate.
        seed: of the batches and the noise.
        seconds: after which it stops.

    Returns:
        Shape (chains, draws, d): the later half, thinned.
    """
    number = problem.target.num_data
    torch.manual_seed(seed)
    rows = np.random.default_rng(seed)
    chain = library.build(density(problem), lr=rate, temperature=1.0 / number)
    begin, trace = time.perf_counter(), []
    state = chain.init(torch.tensor(starts))
    while len(trace) < FEWEST or time.perf_counter() - begin < seconds:
        state, _ = chain.update(state, torch.as_tensor(rows.integers(number, size=ROWS)))
        trace.append(state.params.detach().numpy().copy())
        if not np.isfinite(trace[-1]).all():
            break
    later = trace[len(trace) // 2 :]
    return np.stack(later[:: max(1, len(later) // KEPT)], axis=1)


def density(problem: Problem) -> Density:
    """(parameters of all chains, row numbers) -> the sum of their log densities over N, and it.

    Args:
        problem: its target is an ex.Posterior.
    """
    posterior = problem.target
    unravel = ravel_pytree(jax.tree.map(jnp.asarray, problem.start))[1]

    @jax.jit
    def value_and_gradient(x: jax.Array, batch: jax.Array) -> tuple[jax.Array, jax.Array]:
        picked = jax.tree.map(lambda part: part[batch], posterior.data)

        def total(x: jax.Array) -> jax.Array:
            each = jax.vmap(lambda one: posterior.potential_on(unravel(one), picked))(x)
            return -each.sum() / posterior.num_data

        return jax.value_and_grad(total)(x)

    class Compiled(torch.autograd.Function):
        """Value and gradient come together, so that the gradient is kept for the way back."""

        @staticmethod
        def forward(x: torch.Tensor, batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            value, gradient = value_and_gradient(x.detach().numpy(), batch.numpy())
            return torch.tensor(np.asarray(value)), torch.tensor(np.asarray(gradient))

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(output[1])
            ctx.mark_non_differentiable(output[1])

        @staticmethod
        def backward(ctx: Any, of_value: torch.Tensor, of_gradient: Any) -> Any:
            return of_value * ctx.saved_tensors[0], None

    def log_posterior(x: torch.Tensor, batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        value, _ = Compiled.apply(x, batch)
        return value, value.detach()

    return log_posterior
