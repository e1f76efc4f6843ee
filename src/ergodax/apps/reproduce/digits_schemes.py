"""The samplers that are compared: as in the paper, whitened, and with a Gaussian as control."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ergodax.apps.reproduce import digits_fit, digits_posterior
from ergodax.apps.reproduce.digits_fit import Gaussian
from ergodax.apps.reproduce.digits_gradient import GaussianControl, Recorded, alias_table
from ergodax.gradient import KnownCovariance, Minibatch
from ergodax.learn.tables import Table
from ergodax.recipe.operators import Diagonal
from ergodax.sampler import ccadl, msgld, nogin
from ergodax.target import Posterior
from ergodax.tune import Whitening

PAPER_STEP = 0.005
LONGEST_STEP = 0.25  # in whitened coordinates, where the posterior has scale 1
HEAT = 0.06  # largest h lambda / 2, what the noise would add to a temperature of 1
FRICTION = 1.5
PAPER = ("NOGIN", "mSGLD", "CC-ADL", "CC-ADL, Euler")
WHITENED = "whitened NOGIN"
CONTROLLED = "controlled NOGIN"  # whitened, with the Gaussian as control variate


@dataclasses.dataclass(frozen=True)
class Problem:
    """A logistic posterior and the Gaussian fitted to it.

    Attributes:
        table: the rows.
        prior_scale: standard deviation of each coefficient.
        posterior: of the coefficients w.
        gaussian: fitted.
        whitening: L.
    """

    table: Table
    prior_scale: float
    posterior: Posterior
    gaussian: Gaussian
    whitening: Float[np.ndarray, "d d"]

    def coordinates(self, basis: Float[np.ndarray, "d d"]) -> Posterior:
        """The posterior of u, w = centre + basis u."""
        nothing = jnp.zeros(len(basis), jnp.float32)
        change = Whitening(_single(self.gaussian.centre), _single(basis), nothing)
        return digits_posterior.whitened(self.posterior, change)

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
    gaussian = digits_fit.fit(table, prior_scale, seed)
    posterior = digits_posterior.logistic_posterior(table, prior_scale)
    return Problem(table, prior_scale, posterior, gaussian, digits_fit.whitening(gaussian))


@dataclasses.dataclass(frozen=True)
class Scheme:
    """A sampler in its coordinates.

    Attributes:
        name: of the scheme.
        batch_size: n.
        step_size: h; for mSGLD too, whose own step is h^2 / 2.
        kernel: on coordinates u.
        basis: B, w = centre + B u.
        whitened: whether B whitens, so that Stein's identity is of use.
    """

    name: str
    batch_size: int
    step_size: float
    kernel: Any
    basis: Float[np.ndarray, "d d"]
    whitened: bool


def all_schemes(problem: Problem, plain: tuple[int, ...], control: tuple[int, ...]) -> list[Scheme]:
    """Every scheme at its batch sizes, those of the paper first.

    Args:
        problem: the posterior.
        plain: batch sizes of those with ordinary minibatches.
        control: batch sizes of that with a Gaussian as control.
    """
    white = minibatches(problem, problem.whitening)
    ours = controlled(problem)
    return [
        *(scheme for n in plain for scheme in as_in_the_paper(problem, n)),
        *(_nogin(WHITENED, white, n) for n in plain),
        *(_nogin(CONTROLLED, ours, n) for n in control),
    ]


@dataclasses.dataclass(frozen=True)
class Coordinates:
    """Coordinates in which the gradient's noise is diagonal.

    Attributes:
        basis: B.
        noise: variances of the gradient from one row, averaged over the Gaussian.
        gradient: batch size -> estimator.
    """

    basis: Float[np.ndarray, "d d"]
    noise: Float[np.ndarray, " d"]
    gradient: Any


def minibatches(problem: Problem, basis: Float[np.ndarray, "d d"]) -> Coordinates:
    """Ordinary minibatches, drawn with replacement, in a basis rotated to diagonal noise."""
    features = problem.table.features
    uniform = np.full(len(features), 1.0 / len(features))
    basis, noise = digits_fit.diagonalised(features, basis, problem.gaussian.score, uniform)
    target = problem.coordinates(basis)

    def gradient(n: int) -> Recorded:
        known = Diagonal(_single(noise / n))
        return Recorded(KnownCovariance(Minibatch(target, n, replace=True), known))

    return Coordinates(basis, noise, gradient)


def controlled(problem: Problem) -> Coordinates:
    """Batches of what is left beside the Gaussian, in a whitened basis rotated likewise."""
    features, gaussian = problem.table.features, problem.gaussian
    probability = digits_fit.importance(features, problem.whitening, gaussian)
    basis, noise = digits_fit.diagonalised(
        features, problem.whitening, gaussian.residual, probability
    )
    target, table = problem.coordinates(basis), alias_table(probability)
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
        "NOGIN": nogin(gradient, h),
        "mSGLD": msgld(gradient, 0.5 * h**2),
        "CC-ADL": ccadl(gradient, h, scheme="splitting"),
        "CC-ADL, Euler": ccadl(gradient, h),
    }
    return [Scheme(name, n, h, kernels[name], where.basis, False) for name in PAPER]


def _nogin(name: str, where: Coordinates, n: int) -> Scheme:
    """The step bounds the heat of the noise, of which only the average course is known."""
    h = LONGEST_STEP
    if name == CONTROLLED:
        h = min(h, 2.0 * HEAT * n / float(where.noise.mean()))
    return Scheme(name, n, h, nogin(where.gradient(n), h, FRICTION), where.basis, True)


def _single(x: np.ndarray) -> Any:
    return jnp.asarray(x, jnp.float32)
