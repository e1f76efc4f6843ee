"""Bayesian logistic regression on synthetic data: one prior, one likelihood, for everybody.

Every contestant differentiates these two functions and gathers its batches with `take`, so
that what differs between them is only the loop around.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

import ergodax as ex

BATCH_SIZE = 100
BLOCK = 10_000  # rows made at a time
STEP_SIZE = {"sgld": 1e-6, "sghmc": 1e-4}
FRICTION = 100.0  # with these numbers both samplers forget in about 500 steps


def log_prior(w: jax.Array) -> jax.Array:
    """N(0, 10 I)."""
    return -0.5 * jnp.sum(w**2) / 10.0


def log_likelihood(w: jax.Array, example: Any) -> jax.Array:
    """Of one example; x @ w is computed once."""
    x, y = example
    score = x @ w
    return y * score - jax.nn.softplus(score)


def take(data: Any, rows: jax.Array) -> Any:
    """A batch: the rows that must lie in range, so that nobody pays for checking it."""
    return jax.tree.map(lambda x: x.at[rows].get(mode="promise_in_bounds"), data)


def potential(w: jax.Array, batch: Any, num_data: int) -> jax.Array:
    """The batch's estimate of the whole potential, as one writes it by hand."""
    likelihood = jax.vmap(log_likelihood, in_axes=(None, 0))(w, batch)
    return -log_prior(w) - num_data / batch[1].shape[0] * jnp.sum(likelihood)


@dataclasses.dataclass(frozen=True)
class Task:
    """A posterior and where the chains start.

    Attributes:
        posterior: the library's object; its `data` are the arrays that all contestants read.
        start: the mode, so that no contestant is timed on the way to it.
    """

    posterior: ex.Posterior
    start: jax.Array

    @property
    def data(self) -> Any:
        """(X, y), float32, rows contiguous."""
        return self.posterior.data

    @property
    def num_data(self) -> int:
        """N."""
        return self.posterior.num_data


def make(num_data: int = 12_214, dimension: int = 129, seed: int = 0) -> Task:
    """Standard normal features, labels from a true weight vector, a fixed key."""
    truth, x, y = _data(jax.random.key(seed), num_data, dimension)
    posterior = ex.Posterior(log_prior, log_likelihood, data=(x, y))
    return Task(posterior, _mode(truth, (x[:20_000], y[:20_000]), num_data))


@functools.partial(jax.jit, static_argnums=(1, 2))
def _data(key: jax.Array, num_data: int, dimension: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    key_truth, key_rows = jax.random.split(key)
    truth = 0.1 * jax.random.normal(key_truth, (dimension,))
    size = BLOCK if num_data % BLOCK == 0 else num_data

    def block(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        key_features, key_labels = jax.random.split(key)
        x = jax.random.normal(key_features, (size, dimension))
        y = jax.random.bernoulli(key_labels, jax.nn.sigmoid(x @ truth))
        return x, y.astype(jnp.float32)

    # Block by block, because the generator's own arrays are larger than what it makes.
    x, y = lax.map(block, jax.random.split(key_rows, num_data // size))
    return truth, x.reshape(num_data, dimension), y.reshape(num_data)


def _mode(w: jax.Array, data: Any, num_data: int) -> jax.Array:
    """A few Newton steps on (at most 20,000 of) the data."""
    value: Callable = lambda w: potential(w, data, num_data)  # noqa: E731
    newton = jax.jit(lambda w: w - jnp.linalg.solve(jax.hessian(value)(w), jax.grad(value)(w)))
    for _ in range(5):
        w = newton(w)
    return w
