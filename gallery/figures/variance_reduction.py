"""The noise of four gradient estimators along a chain, and the law that each of them gives."""

import dataclasses
import functools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Float, PRNGKeyArray
from scipy import stats

import ergodax as ex
from experiments.formalml.linear_law import Regression, covariance_of_sgld, spread_of_batches
from experiments.formalml.reduction_methods import Metered
from gallery.figures import tables

NUM_DATA, DIMENSION, DATA_SEED = 1000, 3, 5
BATCH_SIZES = (10, 30, 100)
CHAINS, STEPS, BURN_IN = 16, 1000, 400
WINDOW = 5  # steps that a point of the picture of noise is averaged over
EDGE, BINS = 6.0, 48  # of the histograms, in posterior standard deviations
PLAIN, CENTRED = "plain batches", "control variates"
ESTIMATORS: tuple[str, ...] = (PLAIN, CENTRED, "SVRG", "SAGA")


@dataclasses.dataclass(frozen=True)
class Chains:
    """Of SGLD with one estimator.

    Attributes:
        draws: in posterior standard deviations of each coefficient.
        squares: |g - grad U|^2 at each step, averaged over the chains.
        evaluations: gradients of single examples in a step, on average.
    """

    draws: Float[np.ndarray, "chains steps d"]
    squares: Float[np.ndarray, " steps"]
    evaluations: float

    @property
    def sd(self) -> float:
        """Of the coefficients after burn-in, the posterior's being 1: root mean square of them."""
        return float(np.sqrt(np.mean(self.draws[:, BURN_IN:] ** 2, dtype=np.float64)))


@dataclasses.dataclass(frozen=True)
class Reduction:
    """SGLD on a linear regression with each estimator.

    Attributes:
        batch_size: n.
        step: in units of the inverse of the largest curvature.
        chains: by estimator.
    """

    batch_size: int
    step: float
    chains: dict[str, Chains]

    def noise(self) -> pd.DataFrame:
        """Variance of the gradient: columns step, variance of the gradient, estimator.

        In units of a plain batch's variance at the posterior mean.
        """
        unit = plain_variance(self.batch_size)
        middle = (np.arange(STEPS // WINDOW) + 0.5) * WINDOW
        curves = {
            name: np.maximum(c.squares.reshape(-1, WINDOW).mean(axis=1) / unit, 1e-9)
            for name, c in self.chains.items()
        }
        return tables.curves("step", middle, "variance of the gradient", curves, by="estimator")

    def laws(self) -> pd.DataFrame:
        """Histograms of all coefficients after burn-in, beside N(0, 1)."""
        draws = {name: c.draws[:, BURN_IN:] for name, c in self.chains.items()}
        return tables.laws("coefficient", EDGE, BINS, stats.norm.pdf, draws, by="estimator")

    def exact_sd(self, name: str) -> float:
        """What `Chains.sd` is of the stationary law.

        nan where no closed form is known, and inf where the chain is unstable.
        """
        if name not in (PLAIN, CENTRED):
            return float("nan")
        regression, h = problem(), self.step * largest_step()
        try:
            found = covariance_of_sgld(regression, h, self.batch_size, centred=name == CENTRED)
        except ValueError:
            return float("inf")
        return float(np.sqrt(np.mean(np.diag(found) / np.diag(regression.covariance))))

    def table(self) -> pd.DataFrame:
        """A row for each estimator: noise at the end, sds, cost."""
        unit = plain_variance(self.batch_size)
        rows = [
            {
                "estimator": name,
                "variance of the gradient": float(c.squares[BURN_IN:].mean()) / unit,
                "sd": c.sd,
                "exact sd": self.exact_sd(name),
                "gradients a step": c.evaluations,
            }
            for name, c in self.chains.items()
        ]
        return pd.DataFrame(rows)


def run(batch_size: int, step: float, period: int, distance: float, seed: int) -> Reduction:
    """Run SGLD with each estimator from the same place.

    Args:
        batch_size: n, one of `BATCH_SIZES`; each has programs of its own.
        step: in units of the inverse of the largest curvature.
        period: steps between two snapshots of SVRG.
        distance: of the start from the posterior mean, in posterior standard deviations.
        seed: of everything random.
    """
    regression, key = problem(), jax.random.key(seed)
    sd = np.sqrt(np.diag(regression.covariance))
    start = jnp.asarray(regression.mean + distance * sd, float)

    def chains_of(name: str) -> Chains:
        gradient = Metered(_estimator(name, batch_size, period), regression)
        return _chains(ex.sgld(gradient, step * largest_step()), start, key, regression.mean, sd)

    _centred(batch_size)  # what threads share is made before they begin
    with ThreadPoolExecutor() as pool:  # the first time their programs are compiled side by side
        chains = dict(zip(ESTIMATORS, pool.map(chains_of, ESTIMATORS), strict=True))
    return Reduction(batch_size, step, chains)


def _chains(
    kernel: ex.Kernel,
    start: Float[jax.Array, " d"],
    key: PRNGKeyArray,
    mean: Float[np.ndarray, " d"],
    sd: Float[np.ndarray, " d"],
) -> Chains:
    samples = ex.sample(kernel, start, STEPS, num_chains=CHAINS, key=key, progress=False)
    squares = samples.info.potential.mean(axis=0, dtype=np.float64)  # by Metered
    evaluations = float(samples.info.evaluations.mean(dtype=np.float64))
    return Chains((samples.position - mean) / sd, squares, evaluations)


def _estimator(name: str, batch_size: int, period: int) -> Any:
    posterior = _posterior()
    if name == PLAIN:
        return ex.Minibatch(posterior, batch_size)
    if name == CENTRED:
        return _centred(batch_size)
    if name == "SVRG":
        return ex.SVRG(posterior, batch_size, period)
    return ex.SAGA(posterior, batch_size)


@functools.cache
def _centred(batch_size: int) -> ex.ControlVariate:
    return ex.ControlVariate(_posterior(), batch_size, jnp.asarray(problem().mean, float))


@functools.cache
def _posterior() -> ex.Posterior:
    return problem().posterior


@functools.cache
def problem() -> Regression:
    """Correlated features, coefficients of N(0, 1) and noise of variance 1."""
    rng = np.random.default_rng(DATA_SEED)
    lags = np.abs(np.subtract.outer(np.arange(DIMENSION), np.arange(DIMENSION)))
    x = rng.normal(size=(NUM_DATA, DIMENSION)) @ np.linalg.cholesky(0.3**lags).T
    return Regression(x, x @ rng.normal(size=DIMENSION) + rng.normal(size=NUM_DATA))


@functools.cache
def largest_step() -> float:
    """The inverse of the largest curvature."""
    return 1.0 / float(np.linalg.eigvalsh(problem().precision)[-1])


@functools.cache
def plain_variance(batch_size: int) -> float:
    """The trace of the covariance of a plain batch's gradient at the posterior mean."""
    regression = problem()
    residual = regression.y - regression.x @ regression.mean
    scores = regression.x * residual[:, None] / regression.noise
    return spread_of_batches(NUM_DATA, batch_size) * float(scores.var(axis=0).sum())
