"""Logistic regression in two dimensions, with the posterior's moments by quadrature."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import ergodax as ex

from . import sampled


def log_prior(w: Any) -> Any:
    """Normal about (1, -1), variance 1/2: far enough from the mode to be missed."""
    return -jnp.sum((w - jnp.array([1.0, -1.0], w.dtype)) ** 2)


def log_likelihood(w: Any, example: Any) -> Any:
    x, y = example
    return jax.nn.log_sigmoid((2.0 * y - 1.0) * (x @ w))


def simulated(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Features, normal, and labels of a logistic regression."""
    rng = np.random.default_rng(7)
    weights = np.linspace(-1.5, 1.5, d)
    x = rng.normal(size=(n, d))
    return x, (rng.uniform(size=n) < 1.0 / (1.0 + np.exp(-x @ weights))).astype(float)


class Problem(NamedTuple):
    """A posterior, its mode and Hessian there, and its exact first two moments."""

    features: np.ndarray
    labels: np.ndarray
    posterior: ex.Posterior
    mode: np.ndarray
    hessian: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray

    @property
    def proposals(self) -> np.ndarray:
        return np.linalg.inv(self.hessian)


def log_density(w: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Up to a constant, at the rows of w."""
    prior = -((w - np.array([1.0, -1.0])) ** 2).sum(axis=1)
    return prior - np.logaddexp(0.0, -(w @ x.T) * (2.0 * y - 1.0)).sum(axis=1)


def problem(n: int = 80) -> Problem:
    """The moments are exact to eight digits: the grid covers eight standard deviations each way.

    The sum over equal steps of a smooth density converges faster than any power of the step.
    """
    x, y = (z.astype("f4").astype(float) for z in simulated(n, 2))
    w = np.zeros(2)
    for _ in range(30):  # Newton's method
        p = 1.0 / (1.0 + np.exp(-x @ w))
        hessian = (x.T * (p * (1.0 - p))) @ x + 2.0 * np.eye(2)
        w = w - np.linalg.solve(hessian, x.T @ (p - y) + 2.0 * (w - np.array([1.0, -1.0])))
    steps = np.linspace(-8.0, 8.0, 61)
    root = np.linalg.cholesky(np.linalg.inv(hessian))
    grid = w + np.stack(np.meshgrid(steps, steps), axis=-1).reshape(-1, 2) @ root.T
    logs = log_density(grid, x, y)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    mean = weights @ grid
    covariance = (grid - mean).T * weights @ (grid - mean)
    posterior = ex.Posterior(log_prior, log_likelihood, (x.astype("f4"), y.astype("f4")))
    return Problem(x, y, posterior, w, hessian, mean, covariance)


def assert_posterior(
    kernel: ex.Kernel, problem: Problem, key: Any, *, num_steps: int = 800, **options: Any
) -> None:
    """The draws have the posterior's mean and covariance; five numbers are compared."""
    options = {"num_chains": 64, "burn_in": 100, **options}
    draws = sampled.run(kernel, problem.mode.astype(np.float32), num_steps, key, **options)
    offset = (draws - problem.mean) / np.sqrt(np.diag(problem.covariance))
    correlation = problem.covariance / np.sqrt(np.outer(*2 * [np.diag(problem.covariance)]))
    products = offset[..., :, None] * offset[..., None, :]
    sampled.assert_mean(
        products[..., [0, 0, 1], [0, 1, 1]], correlation[[0, 0, 1], [0, 1, 1]], 0.25
    )
    sampled.assert_mean(offset, 0.0, 0.15)
