"""Six families of models whose parameters are drawn from their own prior.

Every data set of a family has one shape and the same two functions, so that what is compiled for
the first serves all. Positions are vectors; scales are their logarithms.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, nn
from jax.scipy.special import gammaln
from jax.scipy.stats import norm
from jax.scipy.stats import t as student

import ergodax as ex
from benchmarks.calibration.reference import Answer, Linear, importance, quadrature

GROUPS, FREEDOM, NOISE = 6, 4.0, 0.1


@dataclasses.dataclass(frozen=True)
class Family:
    """A prior, a likelihood, and how data are drawn.

    Attributes:
        what: one line.
        scale: the standard deviations of the prior, which is normal about 0.
        log_likelihood: of a position and an example.
        covariates: (rng, rows) -> what of an example is not random.
        outcomes: (rng, position, covariates) -> the rest.
        linear: the model given its last parameter, where it is a linear one; its answer is exact.
    """

    what: str
    scale: np.ndarray
    log_likelihood: Callable[[Array, Any], Array]
    covariates: Callable[[np.random.Generator, int], np.ndarray]
    outcomes: Callable[[np.random.Generator, np.ndarray, np.ndarray], np.ndarray]
    linear: Callable[[float, np.ndarray], Linear] | None = None

    def log_prior(self, position: Array) -> Array:
        """Independent normals."""
        return norm.logpdf(position, 0.0, jnp.asarray(self.scale, position.dtype)).sum()

    def simulate(self, rng: np.random.Generator, rows: int) -> tuple[np.ndarray, ex.Posterior]:
        """Parameters from the prior and the posterior of data from them, in single precision."""
        truth = self.scale * rng.standard_normal(self.scale.size)
        x = self.covariates(rng, rows).astype(np.float32)
        y = self.outcomes(rng, truth, x.astype(float)).astype(np.float32)
        return truth, ex.Posterior(self.log_prior, self.log_likelihood, (x, y))

    def answer(self, posterior: ex.Posterior, draws: np.ndarray) -> Answer:
        """Means and sds: exact where the model is linear given one parameter."""
        if self.linear is None:
            return importance(posterior, draws)
        x, y = (np.asarray(part, np.float64) for part in posterior.data)
        return quadrature(lambda last: self.linear(last, x), y, self.scale)


def design(rng: np.random.Generator, rows: int) -> np.ndarray:
    """A constant and two standard normal columns."""
    return np.column_stack([np.ones(rows), rng.standard_normal((rows, 2))])


def members(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Which of the groups each row belongs to, one-hot."""
    return np.eye(GROUPS)[np.arange(rows) % GROUPS]


def times(rng: np.random.Generator, rows: int) -> np.ndarray:
    """From 0 to 4."""
    return np.linspace(0.0, 4.0, rows)


def normal(w: Array, row: Any) -> Array:
    x, y = row
    return norm.logpdf(y, x @ w[:3], jnp.exp(w[3]))


def logistic(w: Array, row: Any) -> Array:
    x, y = row
    return y * (x @ w) - nn.softplus(x @ w)


def poisson(w: Array, row: Any) -> Array:
    x, y = row
    return y * (x @ w) - jnp.exp(x @ w) - gammaln(y + 1.0)


def robust(w: Array, row: Any) -> Array:
    x, y = row
    return student.logpdf(y, FREEDOM, x @ w[:3], jnp.exp(w[3]))


def grouped(w: Array, row: Any) -> Array:
    """w: the mean, the standardised effects, the log of their sd."""
    x, y = row
    return norm.logpdf(y, w[0] + jnp.exp(w[-1]) * (x @ w[1:-1]), 1.0)


def growth(w: Array, row: Any) -> Array:
    """A curve that saturates: e^a (1 - exp(-e^k t))."""
    t, y = row
    return norm.logpdf(y, jnp.exp(w[0]) * (1.0 - jnp.exp(-jnp.exp(w[1]) * t)), NOISE)


FAMILIES = {
    "normal": Family(
        "linear regression, the scale unknown",
        np.array([1.0, 1.0, 1.0, 0.5]),
        normal,
        design,
        lambda rng, w, x: x @ w[:3] + np.exp(w[3]) * rng.standard_normal(len(x)),
        lambda last, x: Linear(x, np.exp(last)),
    ),
    "logistic": Family(
        "logistic regression",
        np.ones(3),
        logistic,
        design,
        lambda rng, w, x: rng.random(len(x)) < 1.0 / (1.0 + np.exp(-x @ w)),
    ),
    "poisson": Family(
        "Poisson regression",
        np.full(3, 0.5),
        poisson,
        design,
        lambda rng, w, x: rng.poisson(np.exp(x @ w)),
    ),
    "student": Family(
        "Student's regression with 4 degrees of freedom, the scale unknown",
        np.array([1.0, 1.0, 1.0, 0.5]),
        robust,
        design,
        lambda rng, w, x: x @ w[:3] + np.exp(w[3]) * rng.standard_t(FREEDOM, len(x)),
    ),
    "groups": Family(
        "a hierarchy of 6 normal groups, not centred",
        np.array([1.0] * (1 + GROUPS) + [0.5]),
        grouped,
        members,
        lambda rng, w, x: w[0] + np.exp(w[-1]) * (x @ w[1:-1]) + rng.standard_normal(len(x)),
        lambda last, x: Linear(np.column_stack([np.ones(len(x)), np.exp(last) * x]), 1.0),
    ),
    "growth": Family(
        "a curve that saturates, its height and rate unknown",
        np.full(2, 0.5),
        growth,
        times,
        lambda rng, w, x: (
            np.exp(w[0]) * (1.0 - np.exp(-np.exp(w[1]) * x)) + NOISE * rng.standard_normal(len(x))
        ),
    ),
}
