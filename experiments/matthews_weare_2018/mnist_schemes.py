"""MNIST's 7 against 9: the posterior, the Gaussian as a control variate, and the samplers compared.

In the coordinates u in which the fitted Gaussian is N(0, I), grad U = offset + u + the sum of the
rows' residuals (see `gaussian_fit`). The first two terms are exact and cost nothing; only the
residuals, what makes the posterior not Gaussian, are estimated from a batch, of rows drawn with
probabilities in proportion to how much they matter.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

import ergodax as ex
from ergodax.learn.tables import Table
from experiments.matthews_weare_2018 import gaussian_fit
from experiments.matthews_weare_2018.gaussian_fit import Gaussian

PAPER_STEP = 0.005
LONGEST_STEP = 0.25  # in whitened coordinates, where the posterior has scale 1
HEAT = 0.06  # largest h lambda / 2, what the noise would add to a temperature of 1
FRICTION = 1.5
PAPER = ("NOGIN", "mSGLD", "CC-ADL", "CC-ADL, Euler")
WHITENED = "whitened NOGIN"
CONTROLLED = "controlled NOGIN"  # whitened, with the Gaussian as control variate


class NormalPrior(eqx.Module):
    """log N(w; 0, scale^2 I), for w = centre + basis u."""

    scale: Float[Array, ""]
    centre: Float[Array, " d"]
    basis: Float[Array, "d d"]

    def __call__(self, u: Float[Array, " d"]) -> Float[Array, ""]:
        """Log density up to a constant."""
        return -0.5 * jnp.sum((self.centre + self.basis @ u) ** 2) / self.scale**2


def bernoulli(u: Float[Array, " d"], example: PyTree) -> Float[Array, ""]:
    """The log-likelihood of one (features, offset, label in {0, 1})."""
    x, offset, y = example
    logit = x @ u + offset
    return y * logit - jax.nn.softplus(logit)


class GaussianControl(ex.GradientEstimator):
    """Minibatch gradients of what is left of a logistic posterior beside a Gaussian.

    Attributes:
        target: the posterior in coordinates u, its data (features, offset, y).
        offset: the averaged gradient, shape (d,).
        level: of each row, shape (N,).
        slope: of each row, shape (N,).
        probability: with which a row is drawn, shape (N,).
        table: which draws so.
        noise: variances of the gradient from one row, averaged over the Gaussian, shape (d,).
        batch_size: n.
    """

    target: ex.Posterior
    offset: Float[Array, " d"]
    level: Float[Array, " N"]
    slope: Float[Array, " N"]
    probability: Float[Array, " N"]
    table: ex.exact.AliasTable
    noise: Float[Array, " d"]
    batch_size: int = eqx.field(static=True)

    def init(self, key: PRNGKeyArray, position: PyTree) -> Any:
        """Nothing to remember."""
        return None

    def growth(self, position: Float[Array, " d"]) -> Float[Array, ""]:
        """How large the noise is here, 1 on average over the Gaussian.

        What a tangent leaves of a curve grows with the square of the distance, and the noise's
        variance with its fourth power. A chain that took it to be constant would heat up where
        it is largest, and go there still more.
        """
        return jnp.sum(position**2) ** 2 / (position.size * (position.size + 2))

    def estimate(self, key: PRNGKeyArray, state: Any, position: PyTree) -> tuple[ex.Estimate, Any]:
        """offset + u + the sum over the batch of residual_i z_i / (n p_i)."""
        rows = self.table.draw(key, self.batch_size)
        z, centre, y = (x[rows] for x in self.target.data)
        weight = 1.0 / (self.batch_size * self.probability[rows])
        along = z @ position
        logit = centre + along
        residual = jax.nn.sigmoid(logit) - self.level[rows] - self.slope[rows] * along
        gradient = self.offset + position + (weight * residual) @ z
        likelihood = weight @ (y * logit - jax.nn.softplus(logit))
        potential = -self.target.log_prior(position) - likelihood
        covariance = ex.Diagonal(self.growth(position) * self.noise / self.batch_size)
        cost = jnp.int32(self.batch_size)
        return ex.Estimate(gradient, potential, covariance, cost), state


class Recorded(ex.GradientEstimator):
    """Another estimator, which keeps in its state where it was asked last, and its answer.

    Args:
        gradient: the other.
    """

    gradient: Any

    def __init__(self, gradient: ex.GradientEstimator) -> None:
        self.gradient = gradient

    @property
    def target(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The inner estimator's target."""
        return self.gradient.target

    def init(self, key: PRNGKeyArray, position: PyTree) -> Any:
        """The inner state, the position and no gradient yet."""
        return self.gradient.init(key, position), (position, jnp.zeros_like(position))

    def estimate(self, key: PRNGKeyArray, state: Any, position: PyTree) -> tuple[ex.Estimate, Any]:
        """The inner estimate."""
        estimate, inner = self.gradient.estimate(key, state[0], position)
        return estimate, (inner, (position, estimate.gradient))


@dataclasses.dataclass(frozen=True)
class Problem:
    """A logistic posterior and the Gaussian fitted to it."""

    table: Table  # the rows
    prior_scale: float  # standard deviation of each coefficient
    gaussian: Gaussian  # fitted
    whitening: Float[np.ndarray, "d d"]  # L

    def coordinates(self, basis: Float[np.ndarray, "d d"]) -> ex.Posterior:
        """The posterior of u, w = centre + basis u."""
        centre, to_w = _single(self.gaussian.centre), _single(basis)
        x, y = _single(self.table.features), _single(self.table.target)
        prior = NormalPrior(_single(self.prior_scale), centre, to_w)
        return ex.Posterior(prior, bernoulli, (x @ to_w, x @ centre, y))

    def starts(
        self, basis: Float[np.ndarray, "d d"], chains: int, seed: int
    ) -> Float[np.ndarray, "chains d"]:
        """Draws from the Gaussian, in the coordinates u."""
        normal = np.random.default_rng(seed).standard_normal((chains, len(basis)))
        return np.linalg.solve(basis, self.whitening @ normal.T).T.astype(np.float32)


def prepare(table: Table, prior_scale: float, seed: int = 0) -> Problem:
    """Fit the Gaussian.

    Raises:
        ValueError: the fit does not converge.
    """
    gaussian = gaussian_fit.fit(table, prior_scale, seed)
    return Problem(table, prior_scale, gaussian, gaussian_fit.whitening(gaussian))


@dataclasses.dataclass(frozen=True)
class Scheme:
    """A sampler in its coordinates."""

    name: str  # of the scheme
    batch_size: int  # n
    step_size: float  # h; for mSGLD too, whose own step is h^2 / 2
    kernel: Any  # on coordinates u
    basis: Float[np.ndarray, "d d"]  # B, w = centre + B u
    whitened: bool  # whether B whitens, so that Stein's identity is of use


def all_schemes(problem: Problem, plain: tuple[int, ...], control: tuple[int, ...]) -> list[Scheme]:
    """Every scheme at its batch sizes, those of the paper first."""
    white = minibatches(problem, problem.whitening)
    ours = controlled(problem)
    return [
        *(scheme for n in plain for scheme in as_in_the_paper(problem, n)),
        *(_nogin(WHITENED, white, n) for n in plain),
        *(_nogin(CONTROLLED, ours, n) for n in control),
    ]


@dataclasses.dataclass(frozen=True)
class Coordinates:
    """Coordinates in which the gradient's noise is diagonal."""

    basis: Float[np.ndarray, "d d"]  # B
    # variances of the gradient from one row, averaged over the Gaussian
    noise: Float[np.ndarray, " d"]
    gradient: Any  # batch size -> estimator


def minibatches(problem: Problem, basis: Float[np.ndarray, "d d"]) -> Coordinates:
    """Ordinary minibatches, drawn with replacement, in a basis rotated to diagonal noise."""
    features = problem.table.features
    uniform = np.full(len(features), 1.0 / len(features))
    basis, noise = gaussian_fit.diagonalised(features, basis, problem.gaussian.score, uniform)
    target = problem.coordinates(basis)

    def gradient(n: int) -> Recorded:
        known = ex.Diagonal(_single(noise / n))
        return Recorded(ex.KnownCovariance(ex.Minibatch(target, n, replace=True), known))

    return Coordinates(basis, noise, gradient)


def controlled(problem: Problem) -> Coordinates:
    """Batches of what is left beside the Gaussian, in a whitened basis rotated likewise."""
    features, gaussian = problem.table.features, problem.gaussian
    probability = gaussian_fit.importance(features, problem.whitening, gaussian)
    basis, noise = gaussian_fit.diagonalised(
        features, problem.whitening, gaussian.residual, probability
    )
    target, table = problem.coordinates(basis), ex.exact.AliasTable(probability)
    arrays = (basis.T @ gaussian.offset, gaussian.level, gaussian.slope, probability)
    offset, level, slope, chance = (_single(x) for x in arrays)

    def gradient(n: int) -> Recorded:
        of_one = _single(noise)
        return Recorded(GaussianControl(target, offset, level, slope, chance, table, of_one, n))

    return Coordinates(basis, noise, gradient)


def as_in_the_paper(problem: Problem, n: int) -> list[Scheme]:
    """The paper's schemes, mass 1 in the coordinates of the data, h = 0.005.

    A rotation changes nothing where the mass is 1, and makes the noise's covariance diagonal.
    CC-ADL is run as published and in its symmetric splitting.
    """
    where = minibatches(problem, np.eye(len(problem.whitening)))
    gradient, h = where.gradient(n), PAPER_STEP
    kernels = {
        "NOGIN": ex.nogin(gradient, h),
        "mSGLD": ex.msgld(gradient, 0.5 * h**2),
        "CC-ADL": ex.ccadl(gradient, h, scheme="splitting"),
        "CC-ADL, Euler": ex.ccadl(gradient, h),
    }
    return [Scheme(name, n, h, kernels[name], where.basis, False) for name in PAPER]


def _nogin(name: str, where: Coordinates, n: int) -> Scheme:
    """The step bounds the heat of the noise, of which only the average course is known."""
    h = LONGEST_STEP
    if name == CONTROLLED:
        h = min(h, 2.0 * HEAT * n / float(where.noise.mean()))
    return Scheme(name, n, h, ex.nogin(where.gradient(n), h, FRICTION), where.basis, True)


def _single(x: Any) -> Any:
    return jnp.asarray(x, jnp.float32)
