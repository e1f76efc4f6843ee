"""Data of a logistic regression with one feature, and its posterior by quadrature."""

from typing import NamedTuple

import numpy as np
import scipy.optimize
from jaxtyping import Float

DATA_SEED = 3
INTERCEPT, SLOPE = -1.0, 1.0  # of the data
EDGE, CELLS = 7.0, 43  # of the grid, in sds of the Gaussian at the mode


class Exact(NamedTuple):
    """Moments of the posterior.

    Attributes:
        mean: of intercept and slope.
        covariance: of them.
    """

    mean: Float[np.ndarray, " 2"]
    covariance: Float[np.ndarray, "2 2"]

    @property
    def sd(self) -> Float[np.ndarray, " 2"]:
        """Of intercept and slope."""
        return np.sqrt(np.diag(self.covariance))


def make_data(num_data: int) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Features of N(1, 1), so that intercept and slope are correlated, and labels 0 or 1.

    Args:
        num_data: N; smaller data are the first rows of larger ones.
    """
    x, u = np.random.default_rng(DATA_SEED).random((num_data, 2)).T
    x = 1.0 + scipy.special.ndtri(x)
    return x, (u < scipy.special.expit(INTERCEPT + SLOPE * x)).astype(float)


def exact_moments(
    x: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"], times: float, prior_variance: float
) -> Exact:
    """Mean and covariance by the trapezoidal rule about the mode, exact to rounding.

    Args:
        x: features.
        y: labels, 0 or 1.
        times: how often each row occurs.
        prior_variance: of both coefficients.
    """
    features = np.stack([np.ones_like(x), x], axis=1)

    def potential(w: Float[np.ndarray, " 2"]) -> float:
        score = features @ w
        likelihood = np.sum(y * score - np.logaddexp(0.0, score))
        return float(w @ w / (2.0 * prior_variance) - times * likelihood)

    def slope(w: Float[np.ndarray, " 2"]) -> Float[np.ndarray, " 2"]:
        off = scipy.special.expit(features @ w) - y
        return times * features.T @ off + w / prior_variance

    mode = scipy.optimize.minimize(potential, np.zeros(2), jac=slope).x
    share = scipy.special.expit(features @ mode)
    weighted = features * (times * share * (1.0 - share))[:, None]
    hessian = features.T @ weighted + np.eye(2) / prior_variance
    places = np.linspace(-EDGE, EDGE, CELLS)
    u = np.stack(np.meshgrid(places, places), axis=-1).reshape(-1, 2)
    w = mode + u @ np.linalg.inv(np.linalg.cholesky(hessian))
    weight = np.exp(potential(mode) - np.array([potential(one) for one in w]))
    weight /= weight.sum()
    mean = weight @ w
    return Exact(mean, (w - mean).T @ (weight[:, None] * (w - mean)))
