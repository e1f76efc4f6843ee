"""The exact stationary law of SGLD on a Bayesian linear regression, with plain batches or not.

The scores are linear in the coefficients, so a step is linear but for its noise, whose covariance
is quadratic in them. Mean and covariance of the stationary law then follow from each other alone:
the mean is the posterior's, exactly, and the covariance solves a linear system.
"""

import dataclasses

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import ergodax as ex

Matrix = Float[np.ndarray, "d d"]


@dataclasses.dataclass(frozen=True)
class Regression:
    """y = X w + N(0, noise), w ~ N(0, prior I)."""

    x: Float[np.ndarray, "n d"]  # X, shape (N, d)
    y: Float[np.ndarray, " n"]  # shape (N,)
    noise: float = 1.0  # the variance of an observation
    prior: float = 10.0  # that of a coefficient

    @property
    def precision(self) -> Matrix:
        """Of the posterior."""
        return self.x.T @ self.x / self.noise + np.eye(self.x.shape[1]) / self.prior

    @property
    def mean(self) -> Float[np.ndarray, " d"]:
        """Of the posterior."""
        return np.linalg.solve(self.precision, self.x.T @ self.y / self.noise)

    @property
    def covariance(self) -> Matrix:
        """Of the posterior."""
        return np.linalg.inv(self.precision)

    @property
    def posterior(self) -> ex.Posterior:
        """For the samplers."""
        noise, prior = self.noise, self.prior

        def log_likelihood(
            w: Float[Array, " d"], row: tuple[Float[Array, " d"], Float[Array, ""]]
        ) -> Float[Array, ""]:
            return -0.5 / noise * (row[1] - row[0] @ w) ** 2

        data = (jnp.asarray(self.x, float), jnp.asarray(self.y, float))
        return ex.Posterior(lambda w: -0.5 / prior * jnp.sum(w**2), log_likelihood, data)


def spread_of_batches(num_data: int, batch_size: int, replace: bool = False) -> float:
    """The variance of N times a batch's mean score, in units of the scores' own variance."""
    left = 1.0 if replace else (num_data - batch_size) / (num_data - 1)
    return num_data**2 / batch_size * left


def covariance_of_sgld(
    problem: Regression,
    step_size: float,
    batch_size: int,
    replace: bool = False,
    *,
    centred: bool = False,
) -> Matrix:
    """The stationary covariance of SGLD; its mean is the posterior's.

    With A = I - h Lambda it is the S of S = A S A + 2 h I + h^2 (V + L(S)), V the covariance of
    the gradient at the posterior mean and L(S) what the spread of the coefficients adds to it.

    Args:
        problem: the regression.
        step_size: h.
        batch_size: n; N is the full gradient.
        replace: whether rows are drawn with replacement.
        centred: with control variates of order 1 about the posterior mean, which leave L alone.

    Raises:
        ValueError: the chain is not stable.
    """
    x, d = problem.x, problem.x.shape[1]
    rows = len(x)
    factor = spread_of_batches(rows, batch_size, replace)
    residual = problem.y - x @ problem.mean
    scores = x * residual[:, None] / problem.noise
    noise = 0.0 * np.eye(d) if centred else factor * np.cov(scores.T, ddof=0).reshape(d, d)
    products = np.einsum("ni,nj->nij", x, x).reshape(rows, -1) / problem.noise
    middle = products.mean(axis=0).reshape(d, d)
    # x_i x_j x_k x_l is the same in every order, so this matrix is also that of the map of S.
    growth = factor * (products.T @ products / rows - np.kron(middle, middle))
    step = np.eye(d) - step_size * problem.precision
    carried = np.kron(step, step) + step_size**2 * growth
    if np.abs(np.linalg.eigvals(carried)).max() >= 1.0:
        raise ValueError(f"step_size={step_size:g} is unstable with batches of {batch_size}.")
    heat = 2.0 * step_size * np.eye(d) + step_size**2 * noise
    return np.linalg.solve(np.eye(d * d) - carried, heat.ravel()).reshape(d, d)
