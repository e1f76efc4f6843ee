"""A logistic regression by SGLD, by NOGIN with control variates and by NUTS.

The N rows are 1000 different ones, each N / 1000 times. So N is a number like others, by which the
log-likelihood is multiplied, and needs no program of its own; a gradient is counted as one of N
rows all the same.
"""

import dataclasses
import functools
from concurrent.futures import ThreadPoolExecutor

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float

import ergodax as ex
from ergodax import tune
from gallery.figures import tables
from gallery.figures.logistic import Exact, exact_moments, make_data

ROWS = 1000  # different ones
SIZES = (1000, 3000, 10_000, 30_000, 100_000)  # N
CHAINS, BATCH_SIZE = 4, 50  # of SGLD
STEPS, BURN_IN = 4000, 500
TRAJECTORIES = 250  # of NUTS
PRIOR_VARIANCE, POINTS = 25.0, 16
SGLD, NOGIN, NUTS = "SGLD", "NOGIN", "NUTS"
SHOWN = 400  # draws of each in a picture


@dataclasses.dataclass(frozen=True)
class Run:
    """What a sampler gave.

    Attributes:
        draws: intercept and slope.
        passes: over the data in all chains, burn-in and tuning not counted.
        settings: in words.
    """

    draws: Float[np.ndarray, "chains draws 2"]
    passes: float
    settings: str

    @property
    def mean(self) -> Float[np.ndarray, " 2"]:
        """Of all draws."""
        return self.draws.mean(axis=(0, 1), dtype=np.float64)

    @property
    def covariance(self) -> Float[np.ndarray, "2 2"]:
        """Of all draws."""
        return np.cov(self.draws.reshape(-1, 2).astype(np.float64).T)

    @property
    def effective(self) -> float:
        """Effective draws of the mean of the worse coefficient."""
        return float(np.min(ex.diagnostics.ess(self.draws, "mean")))


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The three samplers on the same data.

    Attributes:
        num_data: N.
        exact: the posterior's moments, by quadrature.
        runs: by sampler.
    """

    num_data: int
    exact: Exact
    runs: dict[str, Run]

    def ellipses(self) -> pd.DataFrame:
        """Where two sds of each law end: columns intercept, slope, law."""
        laws = {name: (run.mean, run.covariance) for name, run in self.runs.items()}
        laws["exact"] = (self.exact.mean, self.exact.covariance)
        rings = [
            pd.DataFrame(_ellipse(*law), columns=["intercept", "slope"]).assign(law=name)
            for name, law in laws.items()
        ]
        return pd.concat(rings, ignore_index=True)

    def cloud(self, sampler: str) -> pd.DataFrame:
        """Some of the draws: columns intercept, slope."""
        return tables.cloud(self.runs[sampler].draws, ["intercept", "slope"], SHOWN)

    def table(self) -> pd.DataFrame:
        """A row for each sampler.

        Errors of the means are in posterior sds, root mean square over the coefficients; an sd is
        relative to the posterior's, likewise.
        """
        rows = []
        for name, run in self.runs.items():
            error = (run.mean - self.exact.mean) / self.exact.sd
            ratio = np.diag(run.covariance) / self.exact.sd**2
            rows.append(
                {
                    "sampler": name,
                    "error of the means": float(np.sqrt(np.mean(error**2))),
                    "sd": float(np.sqrt(np.mean(ratio))),
                    "passes over the data": run.passes,
                    "effective draws": run.effective,
                    "effective draws a pass": run.effective / run.passes,
                    "settings": run.settings,
                }
            )
        return pd.DataFrame(rows)


class Repeated(eqx.Module):
    """The log-likelihood of a row that occurs several times.

    Attributes:
        times: how often.
    """

    times: Float[Array, ""] = eqx.field(converter=jnp.asarray)

    def __call__(
        self, w: Float[Array, " 2"], row: tuple[Float[Array, ""], Float[Array, ""]]
    ) -> Float[Array, ""]:
        """Of label row[1] given feature row[0], with intercept and slope w."""
        score = w[0] + w[1] * row[0]
        return self.times * (row[1] * score - jax.nn.softplus(score))


def run(num_data: int, step: float, seed: int) -> Comparison:
    """Run SGLD at this step; what does not depend on it is run once.

    Args:
        num_data: N, a multiple of 1000.
        step: of SGLD, in units of the inverse of the largest curvature, below 2.
        seed: of everything random but the data.
    """
    truth, _ = exact(num_data), _round(num_data)  # what they share
    with ThreadPoolExecutor() as pool:  # the first time their programs are compiled side by side
        runs = {
            SGLD: pool.submit(_by_sgld, num_data, step, seed),
            NOGIN: pool.submit(_by_nogin, num_data, seed),
            NUTS: pool.submit(_by_nuts, num_data, seed),
        }
    return Comparison(num_data, truth, {name: run.result() for name, run in runs.items()})


def posterior(num_data: int) -> ex.Posterior:
    """Intercept and slope, prior N(0, 25), of N rows.

    Args:
        num_data: N, a multiple of 1000.
    """
    return ex.Posterior(_log_prior, Repeated(num_data / ROWS), _rows())


@functools.cache
def exact(num_data: int) -> Exact:
    """The posterior's moments.

    Args:
        num_data: N, a multiple of 1000.
    """
    return exact_moments(*make_data(ROWS), num_data / ROWS, PRIOR_VARIANCE)


@functools.cache
def _rows() -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    x, y = make_data(ROWS)
    return jnp.asarray(x, float), jnp.asarray(y, float)


@functools.cache
def _mode(num_data: int) -> Float[Array, " 2"]:
    return ex.find_mode(posterior(num_data), jnp.zeros(2)).position


@functools.lru_cache(maxsize=64)
def _by_sgld(num_data: int, step: float, seed: int) -> Run:
    curvature = float(np.linalg.eigvalsh(np.linalg.inv(exact(num_data).covariance))[-1])
    gradient = ex.Minibatch(posterior(num_data), BATCH_SIZE, replace=True)
    kernel = ex.sgld(gradient, step / curvature)
    samples = ex.sample(
        kernel, _mode(num_data), STEPS, num_chains=CHAINS, burn_in=BURN_IN,
        key=jax.random.key(seed), progress=False,
    )  # fmt: skip
    passes = CHAINS * STEPS * BATCH_SIZE / num_data
    return Run(samples.position, passes, f"plain batches of {BATCH_SIZE}")


@functools.lru_cache(maxsize=64)
def _by_nogin(num_data: int, seed: int) -> Run:
    key_points, key = jax.random.split(jax.random.key(seed))
    coordinates, target = _round(num_data)
    points = jax.random.normal(key_points, (POINTS, 2))
    plan = tune.choose_estimator(target, target.data, points)
    if plan.covariance.ndim == 2:  # turned so that the noise of each coordinate is its own
        values, vectors = np.linalg.eigh(plan.covariance)
        coordinates = coordinates.moved(np.zeros(2), vectors)
        target = _inside(posterior(num_data), coordinates)
        plan = dataclasses.replace(plan, covariance=np.maximum(values, 0.0))
    samples = ex.sample(
        ex.nogin(plan.build(target), plan.step_size, 1.0), jnp.zeros(2), STEPS, num_chains=CHAINS,
        burn_in=BURN_IN, collect=coordinates.position, key=key, progress=False,
    )  # fmt: skip
    evaluations = samples.info.evaluations.sum(dtype=np.float64)
    settings = f"{plan.name}, batches of {plan.batch_size}"
    return Run(samples.position, float(evaluations) / num_data, settings)


@functools.lru_cache(maxsize=64)
def _by_nuts(num_data: int, seed: int) -> Run:
    key_warm, key = jax.random.split(jax.random.key(seed))
    coordinates, _ = _round(num_data)
    starts = jnp.zeros((CHAINS, 2))
    target = posterior(num_data)
    warm = tune.warm_up(target, coordinates, starts, key=key_warm)
    samples = ex.sample(
        warm.kernel, positions=warm.ends, num_steps=TRAJECTORIES, num_chains=CHAINS,
        collect=warm.coordinates.position, key=key, progress=False,
    )  # fmt: skip
    passes = samples.info.evaluations.sum(dtype=np.float64)
    settings = f"{passes / samples.info.evaluations.size:.1f} gradients of all rows a draw"
    return Run(samples.position, float(passes), settings)


@functools.cache
def _round(num_data: int) -> tuple[tune.Coordinates, ex.Posterior]:
    """Coordinates in which the posterior is round, and the posterior in them."""
    target = posterior(num_data)
    coordinates = tune.round_coordinates(target, _mode(num_data), key=jax.random.key(0))
    return coordinates, _inside(target, coordinates)


def _inside(target: ex.Posterior, coordinates: tune.Coordinates) -> ex.Posterior:
    inner = tune.in_coordinates(target, coordinates)
    assert isinstance(inner, ex.Posterior)
    return inner


def _log_prior(w: Float[Array, " 2"]) -> Float[Array, ""]:
    return -0.5 / PRIOR_VARIANCE * jnp.sum(w**2)


def _ellipse(
    mean: Float[np.ndarray, " 2"], covariance: Float[np.ndarray, "2 2"]
) -> Float[np.ndarray, "points 2"]:
    angle = np.linspace(0.0, 2.0 * np.pi, 73)
    circle = 2.0 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return mean + circle @ np.linalg.cholesky(covariance).T
