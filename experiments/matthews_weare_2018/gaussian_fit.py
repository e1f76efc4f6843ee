"""A Gaussian fitted to a logistic posterior by Newton's method, in a few passes over the data.

Gaussian variational inference (Opper and Archambeau, 2009) asks for N(centre, H^-1) with the
gradient of U averaged over it zero, and H the Hessian averaged over it. For logistic regression
both averages are integrals along one line for each row, since the row's logit is N(m, s^2) there,
and a 21-point Gauss-Hermite rule has them. The fit does not have to have converged: what it leaves
is known exactly, and only the noise of the gradients made with it depends on how good it is.
"""

import dataclasses

import numpy as np
import scipy.linalg
from jaxtyping import Float
from scipy.special import expit

from ergodax.learn.tables import Table

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(21)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
FAR = 15.0  # Newton decrement above which half of the rows show the way
NEAR = 0.5  # and below which a step moves the centre by no more than half a standard deviation
LEVERAGE = 0.2  # share of draws by leverage, which bounds the noise far from the centre


@dataclasses.dataclass(frozen=True)
class Gaussian:
    """N(centre, H^-1), and what its average leaves of each row.

    With x_i the row, m_i + s_i xi its logit under the Gaussian and sigma the logistic function,
    sigma(logit) = level_i + slope_i (logit - m_i) + a residual, where level is the average of
    sigma and slope that of its derivative. So grad U = offset + H (w - centre) + sum of
    residual_i x_i, without approximation.
    """

    centre: Float[np.ndarray, " d"]  # shape (d,)
    hessian: Float[np.ndarray, "d d"]  # H = sum of slope_i x_i x_i^T + the prior's, shape (d, d)
    # the averaged gradient at the centre; zero for a fit that has converged
    offset: Float[np.ndarray, " d"]
    level: Float[np.ndarray, " N"]  # shape (N,)
    slope: Float[np.ndarray, " N"]  # shape (N,)
    residual: Float[np.ndarray, " N"]  # root mean square of each row's residual, shape (N,)
    score: Float[np.ndarray, " N"]  # root mean square of each row's sigma - y, shape (N,)
    rounds: int = 0  # Newton steps
    passes: float = 0.0  # how often each row's likelihood was differentiated


def fit(table: Table, prior_scale: float, seed: int = 0, most_rounds: int = 50) -> Gaussian:
    """Fit the Gaussian, from w = 0.

    Raises:
        ValueError: no convergence in `most_rounds`.
    """
    rows, d = table.features.shape
    half = np.random.default_rng(seed).permutation(rows)[: (rows + 1) // 2]
    centre, covariance = np.zeros(d), np.zeros((d, d))
    passes, decrement = 0.0, np.inf
    for done in range(most_rounds):
        if decrement < NEAR:
            last = _average(table, centre, covariance, prior_scale)
            return dataclasses.replace(last, rounds=done, passes=passes + 1.0)
        part = table.rows(half) if decrement > FAR else table
        here = _average(part, centre, covariance, prior_scale, rows / len(part.target))
        passes += len(part.target) / rows
        factor = scipy.linalg.cho_factor(here.hessian)
        step = scipy.linalg.cho_solve(factor, here.offset)
        decrement = float(np.sqrt(here.offset @ step))
        centre, covariance = centre - step, scipy.linalg.cho_solve(factor, np.eye(d))
    raise ValueError(
        f"the Gaussian fit did not converge in {most_rounds} Newton steps. Standardise the "
        "features or tighten the prior."
    )


def _average(
    table: Table,
    centre: Float[np.ndarray, " d"],
    covariance: Float[np.ndarray, "d d"],
    prior_scale: float,
    weight: float = 1.0,
) -> Gaussian:
    """Everything averaged over N(centre, covariance); `weight` is how many rows each stands for."""
    x, y = table.features, table.target
    spread = np.sqrt(np.maximum(np.sum((x @ covariance) * x, axis=1), 0.0))
    deviation = spread[:, None] * NODES
    probability = expit((x @ centre)[:, None] + deviation)
    level = probability @ WEIGHTS
    slope = (probability * (1.0 - probability)) @ WEIGHTS
    left = probability - level[:, None] - slope[:, None] * deviation
    return Gaussian(
        centre,
        weight * (x * slope[:, None]).T @ x + np.eye(centre.size) / prior_scale**2,
        weight * x.T @ (level - y) + centre / prior_scale**2,
        level,
        slope,
        np.sqrt(left**2 @ WEIGHTS),
        np.sqrt((probability - y[:, None]) ** 2 @ WEIGHTS),
    )


def whitening(gaussian: Gaussian) -> Float[np.ndarray, "d d"]:
    """L with L L^T = H^-1, so that w = centre + L u has u ~ N(0, I) under the Gaussian."""
    lower = np.linalg.cholesky(gaussian.hessian)
    return scipy.linalg.solve_triangular(lower.T, np.eye(len(lower)), lower=False)


def diagonalised(
    features: Float[np.ndarray, "N d"],
    basis: Float[np.ndarray, "d d"],
    size: Float[np.ndarray, " N"],
    probability: Float[np.ndarray, " N"],
) -> tuple[Float[np.ndarray, "d d"], Float[np.ndarray, " d"]]:
    """Rotate a basis so that the noise of one row's gradient is diagonal in it.

    Returns:
        The rotated basis, and the variances in its coordinates of the gradient from one row.
    """
    z = features @ basis
    second = (z * (size**2 / probability)[:, None]).T @ z
    values, rotation = np.linalg.eigh(second)
    return basis @ rotation, np.clip(values, 0.0, None)


def importance(
    features: Float[np.ndarray, "N d"], basis: Float[np.ndarray, "d d"], gaussian: Gaussian
) -> Float[np.ndarray, " N"]:
    """Probabilities of rows for the gradient of the residuals.

    In proportion to residual_i |z_i| they would make the trace of the noise least. But some rows
    have next to no residual under the Gaussian and a large one far from it, so a share is drawn
    by leverage, slope_i |z_i|^2: it bounds what a row can add to the gradient's slope.
    """
    length = np.linalg.norm(features @ basis, axis=1)
    ideal, leverage = gaussian.residual * length, gaussian.slope * length**2
    return (1.0 - LEVERAGE) * ideal / ideal.sum() + LEVERAGE * leverage / leverage.sum()
