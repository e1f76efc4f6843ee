"""The problems: logistic regression on N made-up rows or on a table, with reference moments.

The reference is computed in double precision and without any sampler that is compared. For made-up
rows it is importance sampling from the Gaussian at the mode: with many rows the posterior is close
to that Gaussian, so the weights hardly vary, and a few antithetic pairs of points settle mean and
standard deviation. For a table it is a long run of exact HMC (long_run.py).
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import ergodax as ex
from benchmarks.nuts import long_run
from ergodax.learn import tables

PRIOR_SCALE = 10.0
LARGE = 5_000_000  # numbers in a table from which others are given what they would have to find
SUBSET = 50_000  # rows on which Newton's method comes near the mode
NUMBERS = 2**22  # scores that are held at a time
EVALUATIONS = 200_000_000  # of one row's likelihood, for the reference
POINTS = 64, 40_000  # of the reference, at least and at most


@dataclasses.dataclass(frozen=True)
class Reference:
    """Mean and standard deviation of every coefficient, and how well they are known.

    Attributes:
        mode: shape (d,).
        basis: L with L L^T the covariance, or the inverse of the Hessian at the mode, shape (d, d).
        mean: shape (d,).
        sd: shape (d,).
        error: the largest standard error of a mean or an sd, in posterior sd.
        told: how it was computed, in words.
        draws: of the posterior, from where others may begin, where it was sampled.
        step: that HMC took, in the coordinates of `basis`, likewise.
    """

    mode: Float[np.ndarray, " d"]
    basis: Float[np.ndarray, "d d"]
    mean: Float[np.ndarray, " d"]
    sd: Float[np.ndarray, " d"]
    error: float
    told: str = "importance sampling in double precision"
    draws: Float[np.ndarray, "draws d"] | None = None
    step: float | None = None

    def errors(self, draws: np.ndarray) -> tuple[float, float]:
        """The largest error of a mean and of an sd, in posterior sds, of (chains, draws, d)."""
        flat = np.asarray(draws, np.float64).reshape(-1, self.mean.size)
        means = np.abs(flat.mean(axis=0) - self.mean) / self.sd
        return float(means.max()), float(np.abs(flat.std(axis=0) / self.sd - 1.0).max())


@dataclasses.dataclass(frozen=True)
class Problem:
    """A posterior, its reference moments, and the sd of each coefficient's normal prior."""

    posterior: ex.Posterior
    reference: Reference
    prior_scale: float = PRIOR_SCALE

    @property
    def num_data(self) -> int:
        """N."""
        return self.posterior.num_data

    @property
    def dimension(self) -> int:
        """D."""
        return self.posterior.data[0].shape[1]


def size(problem: Problem) -> int:
    """Numbers in its table."""
    return problem.num_data * problem.dimension


def is_large(problem: Problem) -> bool:
    """Whether a warm-up of NUTS would take too long."""
    return size(problem) >= LARGE


def make(num_data: int, dimension: int, seed: int) -> Problem:
    """Standard normal features, labels from true coefficients of 0.3 or so, float32."""
    rng = np.random.default_rng(seed)
    truth = 0.3 * rng.standard_normal(dimension)
    features = rng.standard_normal((num_data, dimension), np.float32)
    chance = 1.0 / (1.0 + np.exp(-features @ truth))
    labels = (rng.random(num_data) < chance).astype(np.float32)
    posterior = ex.Posterior(
        log_prior, log_likelihood, data=(jnp.asarray(features), jnp.asarray(labels))
    )
    return Problem(posterior, reference(features, labels, rng))


def log_prior(w: Array) -> Array:
    """N(0, 10^2) for each coefficient."""
    return -0.5 * jnp.sum(w**2) / PRIOR_SCALE**2


def log_likelihood(w: Array, example: Any) -> Array:
    """Of one row."""
    x, y = example
    score = w @ x  # in this order all chains' scores come out contiguous
    return y * score - jax.nn.softplus(score)


def log_density(
    w: Array, prior_scale: float, features: Array, labels: Array, at_mode: Array | None = None
) -> Array:
    """Of the whole data, by one product of a matrix and a vector: what NUTS differentiates.

    `at_mode` has every row's log-likelihood at the mode, for millions of rows. Subtracted row by
    row it keeps digits, at half as much time again: the plain sum is rounded so coarsely in single
    precision that NUTS stands still.
    """
    scores, prior = features @ w, -0.5 * jnp.sum(w**2) / prior_scale**2
    if at_mode is None:
        return prior + labels @ scores - jnp.sum(jax.nn.softplus(scores))
    return prior + jnp.sum(labels * scores - jax.nn.softplus(scores) - at_mode)


def reference(features: np.ndarray, labels: np.ndarray, rng: np.random.Generator) -> Reference:
    """The posterior's moments by importance sampling from the Gaussian at the mode."""
    total, d = features.shape
    mode, hessian = np.zeros(d), np.eye(d)
    for rows, count in ((min(total, SUBSET), 8), (total, 4)):
        for _ in range(count):
            gradient, hessian = _derivatives(features[:rows], labels[:rows], mode)
            mode = mode + np.linalg.solve(hessian, gradient)
    basis = np.linalg.cholesky(np.linalg.inv(hessian))
    pairs = int(np.clip(EVALUATIONS // total, *POINTS)) // 2
    normal = rng.standard_normal((pairs, d))
    offsets = np.concatenate([normal, -normal])
    points = mode + offsets @ basis.T
    logs = _log_posterior(features, labels, points) + 0.5 * np.sum(offsets**2, axis=1)
    weights = np.exp(logs - logs.max())
    return _moments(mode, basis, offsets, weights / weights.mean())


def _moments(
    mode: np.ndarray, basis: np.ndarray, offsets: np.ndarray, weights: np.ndarray
) -> Reference:
    """Weighted moments, as corrections to the Gaussian's, which are known."""
    scale = np.linalg.norm(basis, axis=1)
    units = offsets @ basis.T / scale  # standard normal, each
    shift = np.mean(weights[:, None] * units, axis=0)
    excess = (weights[:, None] - 1.0) * (units**2 - 1.0)
    sd = np.sqrt(1.0 + np.mean(excess, axis=0) - shift**2)
    # A point and its mirror image are one independent observation.
    first = (weights[:, None] * (units - shift)).reshape(2, -1, scale.size).mean(axis=0)
    second = 0.5 * excess.reshape(2, -1, scale.size).mean(axis=0)
    errors = [np.std(x, axis=0).max() / np.sqrt(len(x)) for x in (first, second)]
    return Reference(mode, basis, mode + scale * shift, scale * sd, float(max(errors)))


def _blocks(total: int, columns: int) -> Iterator[slice]:
    size = max(1, NUMBERS // columns)
    return (slice(begin, begin + size) for begin in range(0, total, size))


def _derivatives(
    features: np.ndarray, labels: np.ndarray, w: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Gradient of the log-posterior and minus its Hessian."""
    gradient, hessian = -w / PRIOR_SCALE**2, np.eye(w.size) / PRIOR_SCALE**2
    for block in _blocks(len(labels), w.size):
        x = features[block].astype(np.float64)
        chance = 1.0 / (1.0 + np.exp(-x @ w))
        gradient = gradient + x.T @ (labels[block] - chance)
        hessian = hessian + x.T @ (x * (chance * (1.0 - chance))[:, None])
    return gradient, hessian


def _log_posterior(features: np.ndarray, labels: np.ndarray, points: np.ndarray) -> np.ndarray:
    """At each point, up to a constant."""
    logs = -0.5 * np.sum(points**2, axis=1) / PRIOR_SCALE**2
    for block in _blocks(len(labels), len(points)):
        scores = features[block].astype(np.float64) @ points.T
        logs = logs + labels[block].astype(np.float64) @ scores
        np.exp(scores, out=scores)
        logs = logs - np.sum(np.log1p(scores, out=scores), axis=0)
    return logs


def from_table(
    table: tables.Table,
    *,
    prior_scale: float = PRIOR_SCALE,
    components: int | None = None,
    seed: int = 0,
    seconds: float = 180.0,
) -> tuple[Problem, str]:
    """The posterior of a table with its reference, and what is regressed on what.

    Args:
        table: two classes, as read.
        prior_scale: standard deviation of each coefficient's normal prior.
        components: reduce the features to so many principal components first.
        seed: of the reference.
        seconds: for the reference's sampling; three times as much for a large table.
    """
    (chosen,) = tables.varying([table], components)
    x = (chosen.features - chosen.features.mean(axis=0)) / chosen.features.std(axis=0)
    features, labels = np.float32(np.c_[x, np.ones(len(x))]), np.float32(chosen.target)
    posterior = ex.Posterior(
        lambda w: log_prior(w) * (PRIOR_SCALE / prior_scale) ** 2,
        log_likelihood,
        data=(jnp.asarray(features), jnp.asarray(labels)),
    )
    guess = None
    if features.size >= LARGE:
        seconds *= 3.0
        key, init = jax.random.key(seed + 1), jnp.zeros(features.shape[1])
        found = ex.infer(posterior, init, key=key, progress=False)
        guess = np.asarray(found.samples.position, np.float64).reshape(-1, features.shape[1])
    rows, rng = long_run.Rows.of(features, labels), np.random.default_rng(seed)
    run = long_run.run(rows, prior_scale, rng, seconds, guess)
    title = "{1} against {0}".format(*table.classes)
    return Problem(posterior, _from_long_run(run, guess), prior_scale), title


def _from_long_run(run: long_run.Run, guess: np.ndarray | None) -> Reference:
    flat = run.draws.reshape(-1, run.mode.size)
    count, chains = f"{len(flat):,}", len(run.draws)
    whitened = "whitened by its own draws"
    if guess is not None:
        whitened = "whitened by and begun at draws of an infer with another seed"
    told = (
        f"HMC in double precision {whitened}, {count} draws of {chains} chains in "
        f"{run.seconds:.0f} s, acceptance {run.acceptance:.2f}, R-hat {run.r_hat:.3f}"
    )
    error = float(max(run.mean_errors.max(), run.sd_errors.max()))
    return Reference(
        run.mode, run.factor, flat.mean(axis=0), flat.std(axis=0), error, told,
        run.draws[:, -1], run.step,
    )  # fmt: skip
