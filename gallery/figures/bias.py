"""Bias and variance of SGLD's averages by step size and length, beside the exact ones."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float
from scipy import stats

import ergodax as ex
from experiments.formalml.linear_law import spread_of_batches
from gallery.figures import tables
from gallery.figures.autoregression import Errors, errors, variance
from gallery.figures.sweep import side_by_side, with_repeats, without_repeats

NUM_DATA, PRIOR_VARIANCE = 64, 100.0
BATCH_SIZES = (1, 4, 16, 64)
LEAST, MOST = 0.003, 1.0  # steps, in units of the posterior's variance
STEPS = np.geomspace(LEAST, MOST, 10)  # of the chains
FINE = np.geomspace(LEAST, MOST, 81)  # of the exact curves
CHAINS, REPEATS, LONGEST, SHORTEST = 16, 4, 2000, 30
LENGTHS = np.unique(np.geomspace(SHORTEST, LONGEST, 31).astype(int))
QUANTITIES = ("variance", "mean")


@dataclasses.dataclass(frozen=True)
class Bias:
    """Chains at each of `STEPS` and at one more, on the posterior of a mean.

    Attributes:
        batch_size: n of the N = 64 examples.
        step: the one more, in units of the posterior's variance.
        draws: at each of `STEPS`, in posterior standard deviations from the posterior mean.
        more: at the one more, of which there are `REPEATS` times as many chains.
    """

    batch_size: int
    step: float
    draws: Float[np.ndarray, "chains length steps"]
    more: Float[np.ndarray, "more_chains length"]

    @property
    def noise(self) -> float:
        """The variance of the gradient, in units of the posterior's precision."""
        return gradient_noise(self.batch_size)

    def exact(self, steps: Float[np.ndarray, " k"], length: int, quantity: str) -> Errors:
        """Exact errors of an average over so many steps."""
        return errors(steps, self.noise, length, quantity)

    def by_step(self, length: int, quantity: str) -> pd.DataFrame:
        """Exact curves: columns step size, error, part."""
        found = self.exact(FINE, length, quantity)
        parts = {"total": found.total, "spread": found.spread}
        if quantity == "variance":
            parts["bias"] = np.abs(found.bias)
        return tables.curves("step size", FINE, "error", parts, by="part")

    def measured_by_step(self, length: int, quantity: str) -> pd.DataFrame:
        """Root mean square errors of the chains' averages: columns step size, error."""
        found = _root_mean_square(averages(self.draws, length, quantity))
        return pd.DataFrame({"step size": STEPS, "error": found})

    def by_length(self, quantity: str) -> pd.DataFrame:
        """Exact curves: columns steps, error, with; at the one more step, and at the best."""
        own = [self.exact(np.array([self.step]), n, quantity).total[0] for n in LENGTHS.tolist()]
        best = [self.exact(FINE, n, quantity).total.min() for n in LENGTHS.tolist()]
        curves = {"this step size": np.array(own), "best for each length": np.array(best)}
        return tables.curves("steps", LENGTHS.astype(float), "error", curves, by="with")

    def measured_by_length(self, quantity: str) -> pd.DataFrame:
        """Root mean square errors of the chains' averages at the one more step."""
        each = [averages(self.more, n, quantity) for n in LENGTHS.tolist()]
        found = _root_mean_square(np.stack(each, axis=1))
        return pd.DataFrame({"steps": LENGTHS.astype(float), "error": found})

    def best_step(self, length: int, quantity: str) -> float:
        """The step size of the least error."""
        return float(FINE[self.exact(FINE, length, quantity).total.argmin()])

    def measured_bias(self) -> tuple[float, float]:
        """Of the variance at the one more step, with its standard error over chains."""
        found = averages(self.more, LONGEST, "variance")
        return float(found.mean()), float(found.std(ddof=1) / np.sqrt(len(found)))

    def exact_bias(self) -> float:
        """Of the stationary variance at the one more step."""
        return float(variance(np.array([self.step]), self.noise)[0] - 1.0)


def averages(
    draws: Float[np.ndarray, "chains length *steps"], length: int, quantity: str
) -> Float[np.ndarray, "chains *steps"]:
    """Errors of each chain's average over its first steps.

    Args:
        draws: in posterior standard deviations from the posterior mean.
        length: how many steps.
        quantity: of `QUANTITIES`.
    """
    x = draws[:, :length].astype(np.float64)
    return x.mean(axis=1) if quantity == "mean" else (x**2).mean(axis=1) - 1.0


def run(batch_size: int, step: float, seed: int) -> Bias:
    """Run SGLD from exact draws of the posterior, at all step sizes side by side.

    Args:
        batch_size: n rows drawn with replacement, or 64, all of them; one of `BATCH_SIZES`, each of
            which has a program of its own.
        step: one more than `STEPS`, in units of the posterior's variance, below 2.
        seed: of everything random.
    """
    posterior, mean, sd = problem()
    key_start, key = jax.random.split(jax.random.key(seed))
    gradient = _estimator(posterior, batch_size)
    kernels = [ex.sgld(gradient, h * sd**2) for h in with_repeats(STEPS, step, REPEATS)]
    starts = mean + sd * jax.random.normal(key_start, (CHAINS, len(kernels), 1))
    samples = ex.sample(
        side_by_side(kernels), positions=starts, num_steps=LONGEST, num_chains=CHAINS, key=key,
        progress=False,
    )  # fmt: skip
    draws = (samples.position[..., 0] - mean) / sd
    return Bias(batch_size, step, *without_repeats(draws, REPEATS))


@functools.cache
def problem() -> tuple[ex.Posterior, float, float]:
    """The posterior of the mean of N(mean, 1), and its mean and standard deviation."""
    y, precision = _data(), NUM_DATA + 1.0 / PRIOR_VARIANCE
    posterior = ex.Posterior(_log_prior, _log_likelihood, jnp.asarray(y, float))
    return posterior, float(y.sum() / precision), float(precision**-0.5)


def gradient_noise(batch_size: int) -> float:
    """The variance of the gradient over the posterior's precision."""
    if batch_size == NUM_DATA:
        return 0.0
    precision = NUM_DATA + 1.0 / PRIOR_VARIANCE
    return float(spread_of_batches(NUM_DATA, batch_size, replace=True) * _data().var() / precision)


def _estimator(posterior: ex.Posterior, batch_size: int) -> ex.GradientEstimator:
    if batch_size == NUM_DATA:
        return ex.FullGradient(posterior)
    return ex.Minibatch(posterior, batch_size, replace=True)


def _data() -> Float[np.ndarray, " n"]:
    """Quantiles of N(0, 1)."""
    return stats.norm.ppf((np.arange(NUM_DATA) + 0.5) / NUM_DATA)


def _log_prior(mean: Float[Array, " 1"]) -> Float[Array, ""]:
    return -0.5 / PRIOR_VARIANCE * jnp.sum(mean**2)


def _log_likelihood(mean: Float[Array, " 1"], y: Float[Array, ""]) -> Float[Array, ""]:
    return -0.5 * (y - mean[0]) ** 2


def _root_mean_square(values: Float[np.ndarray, "chains k"]) -> Float[np.ndarray, " k"]:
    return np.sqrt(np.mean(values**2, axis=0))
