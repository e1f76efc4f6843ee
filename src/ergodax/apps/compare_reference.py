"""The exact moments of a logistic regression by a long run of Hamiltonian Monte Carlo.

In double precision, by NumPy, with full gradients and a Metropolis decision: nothing of it is
shared with what is compared. Equal rows are counted instead of repeated, which leaves the density
as it is. Many chains move as the columns of one matrix, in coordinates w = centre + L u that are
Newton's at first and then, three times, those of the latest draws; only draws made after the last
change count. Rows that bend sharply are followed in shorter steps than the others.
"""

import dataclasses
import time

import numpy as np
import scipy.linalg
import scipy.special
from jaxtyping import Bool, Float

from ergodax.apps.compare_chains import CHAINS, Chains, Rows

SETTLING = 15, 30, 60  # steps of each stage before coordinates and step size are fixed
ACCEPTANCE = 0.85
LOOKS = 50  # steps between looks at the errors
TOLERANCE = 1e-8  # of the mode: its squared distance, in posterior sds
SMALL_ERROR = 0.01  # posterior sds, at which the run ends
SHARP = 1.0  # curvature of a row, in round coordinates, from which it does
LOOKED_AT = 200  # draws, about, at which rows are looked at
MOST_SHARP = 0.02  # of the rows, beyond which no difference is made


@dataclasses.dataclass(frozen=True)
class Run:
    """The draws that count.

    Attributes:
        draws: of w.
        mode: of the posterior.
        factor: L of the coordinates in which they were made.
        mean_errors: the Monte Carlo standard error of each mean, in posterior sd.
        sd_errors: of each sd, relative.
        r_hat: the largest.
        acceptance: the share of accepted trajectories.
        step: of the shortest steps, in coordinates in which the draws are round.
        seconds: that the whole took.
    """

    draws: Float[np.ndarray, "chains draws d"]
    mode: Float[np.ndarray, " d"]
    factor: Float[np.ndarray, "d d"]
    mean_errors: Float[np.ndarray, " d"]
    sd_errors: Float[np.ndarray, " d"]
    r_hat: float
    acceptance: float
    step: float
    seconds: float


def run(
    rows: Rows,
    prior_scale: float,
    rng: np.random.Generator,
    seconds: float = 180.0,
    guess: Float[np.ndarray, "draws d"] | None = None,
) -> Run:
    """Draws until every mean and sd has a Monte Carlo error of 0.01 posterior sd, or time is up.

    Args:
        rows: of the table.
        prior_scale: sd of each coefficient's normal prior.
        rng: for the draws.
        seconds: for the whole; at least 50 steps are made after settling.
        guess: draws of w that tell where to begin and in which coordinates. What they are the law
            of the draws does not depend on, only how soon it is reached.
    """
    begin = time.perf_counter()
    mode, hessian = newton(rows, prior_scale)
    if guess is None:
        centre, factor = mode, scipy.linalg.cholesky(np.linalg.inv(hessian), lower=True)
        u, step = rng.standard_normal((mode.size, CHAINS)), mode.size**-0.25
        sharp = np.zeros(len(rows.counts), bool)
    else:
        centre, factor = guess.mean(axis=0), scipy.linalg.cholesky(np.cov(guess.T), lower=True)
        inside = scipy.linalg.solve_triangular(factor, (guess - centre).T, lower=True)
        u, step = inside[:, rng.choice(len(guess), CHAINS, replace=False)], 0.01
        sharp = _sharp(rows, factor, guess)
    for length in SETTLING:
        chains = Chains(rows, prior_scale, centre, factor, u, sharp)
        kept = []
        for _ in range(length):
            share = chains.move(step, rng)
            step *= np.exp(0.3 * (share - ACCEPTANCE))
            kept.append(chains.u)
        if guess is not None:  # of more draws than have been made
            u = chains.u
            continue
        draws = centre[:, None, None] + np.einsum("de,tec->dtc", factor, kept[length // 3 :])
        here = centre[:, None] + factor @ chains.u
        centre, factor = _gaussian(draws.reshape(mode.size, -1), factor)
        u = scipy.linalg.solve_triangular(factor, here - centre[:, None], lower=True)
    chains, kept, accepted = Chains(rows, prior_scale, centre, factor, u, sharp), [], []
    while True:
        accepted.append(chains.move(step, rng))
        kept.append(chains.u)
        late = time.perf_counter() - begin > seconds
        if len(kept) % LOOKS == 0 or (late and len(kept) > LOOKS):
            draws = centre + np.transpose(kept, (2, 0, 1)) @ factor.T
            errors = _errors(draws)
            if late or max(e.max() for e in errors[:2]) < SMALL_ERROR:
                break
    means, sds, r_hat = errors
    spent = time.perf_counter() - begin
    return Run(draws, mode, factor, means, sds, r_hat, float(np.mean(accepted)), step, spent)


def _sharp(
    rows: Rows, factor: Float[np.ndarray, "d d"], draws: Float[np.ndarray, "draws d"]
) -> Bool[np.ndarray, " rows"]:
    """The rows that bend sharply at some of the draws."""
    largest = np.zeros(len(rows.counts))
    for w in draws[:: max(1, len(draws) // LOOKED_AT)]:
        chance = scipy.special.expit(rows.features @ w)
        largest = np.maximum(largest, rows.counts * chance * (1.0 - chance))
    sharp = largest * np.sum((rows.features @ factor) ** 2, axis=1) > SHARP
    return sharp if sharp.mean() < MOST_SHARP else np.zeros_like(sharp)


def newton(rows: Rows, prior_scale: float) -> tuple[np.ndarray, np.ndarray]:
    """The mode by Newton's method with step halving, and the Hessian of the potential there."""
    d, none = rows.features.shape[1], np.zeros(1)
    w = np.zeros(d)
    value, gradient, chance = _potential(rows, prior_scale, w[:, None], none)
    while True:
        weights = rows.counts * (chance * (1.0 - chance))[:, 0]
        hessian = (rows.features.T * weights) @ rows.features + np.eye(d) / prior_scale**2
        move, size = np.linalg.solve(hessian, gradient[:, 0]), 1.0
        if move @ gradient[:, 0] < TOLERANCE:
            return w, hessian
        while True:
            tried = _potential(rows, prior_scale, (w - size * move)[:, None], none)
            if tried[0] < value or size < TOLERANCE:
                break
            size *= 0.5
        w = w - size * move
        value, gradient, chance = tried


def _potential(
    rows: Rows, prior_scale: float, w: np.ndarray, offset: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """U of each column of w, its gradient, and the chance of a 1 in each row."""
    scores = rows.features @ w + offset
    chance = scipy.special.expit(scores)
    values = rows.counts @ np.logaddexp(0.0, scores) - rows.positives @ scores
    values = values + 0.5 * np.sum(w**2, axis=0) / prior_scale**2
    residual = rows.counts[:, None] * chance - rows.positives[:, None]
    return values, rows.features.T @ residual + w / prior_scale**2, chance


def _gaussian(draws: np.ndarray, factor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and Cholesky factor of the covariance of draws, shrunk towards the present one's."""
    d, count = draws.shape
    kept = count / (count + 2.0 * d)
    covariance = kept * np.cov(draws) + (1.0 - kept) * factor @ factor.T
    return draws.mean(axis=1), scipy.linalg.cholesky(covariance, lower=True)


def _errors(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Of means and sds, in posterior sds, and the largest R-hat."""
    from arviz_stats.base.array import array_stats

    stats: dict = {"chain_axis": 0, "draw_axis": 1}
    scale = draws.std(axis=(0, 1))
    means, sds = (array_stats.mcse(draws, method=kind, **stats) / scale for kind in ("mean", "sd"))
    return means, sds, float(np.max(array_stats.rhat(draws, method="rank", **stats)))
