"""The moments of a logistic regression by a long exact run of Hamiltonian Monte Carlo.

In double precision, by NumPy, with full gradients and a Metropolis decision: nothing of it is
shared with what is compared. Equal rows are counted instead of repeated, which leaves the density
as it is. Many chains move as the columns of one matrix, in coordinates w = centre + L u that are
Newton's at first and then, three times, those of the latest draws; only draws made after the last
change count. Rows of large curvature are followed in shorter steps than the others.
"""

import dataclasses
import time

import numpy as np
import scipy.linalg
import scipy.special
from jaxtyping import Bool, Float

CHAINS = 16
LENGTH = 1.5  # of a trajectory, in which a normal law's draws become about independent
LONG = 0.25  # a step for the rows of small curvature, where others are sharp
JITTER = 0.2  # of the step, so that no direction comes back to where it began
SETTLING = 15, 30, 60  # steps of each stage before coordinates and step size are fixed
ACCEPTANCE = 0.85
LOOKS = 50  # steps between looks at the errors
TOLERANCE = 1e-8  # of the mode: its squared distance, in posterior sds
SMALL_ERROR = 0.01  # posterior sds, at which the run ends
SHARP = 1.0  # curvature of a row, in whitened coordinates, from which it counts as large
LOOKED_AT = 200  # draws, about, at which rows are looked at
MOST_SHARP = 0.02  # of the rows, beyond which no difference is made


@dataclasses.dataclass(frozen=True)
class Rows:
    """The distinct rows of a table, how often each occurs, and how often with the label 1."""

    features: Float[np.ndarray, "rows d"]
    counts: Float[np.ndarray, " rows"]
    positives: Float[np.ndarray, " rows"]

    @classmethod
    def of(cls, features: Float[np.ndarray, "n d"], labels: Float[np.ndarray, " n"]) -> "Rows":
        """Count equal rows."""
        whole = np.ascontiguousarray(features)
        bytes_of = whole.view(np.dtype((np.void, whole.itemsize * whole.shape[1]))).ravel()
        _, first, which, counts = np.unique(
            bytes_of, return_index=True, return_inverse=True, return_counts=True
        )
        positives = np.bincount(which, weights=labels)
        return cls(whole[first].astype(np.float64), counts.astype(np.float64), positives)


@dataclasses.dataclass(frozen=True)
class _Part:
    """Some rows in the coordinates u; all but the features are columns."""

    features: Float[np.ndarray, "rows d"]
    offset: Float[np.ndarray, "rows 1"]
    counts: Float[np.ndarray, "rows 1"]
    positives: Float[np.ndarray, "rows 1"]

    def of(self, which: Bool[np.ndarray, " rows"]) -> "_Part":
        """Some of them."""
        return _Part(*(x[which] for x in dataclasses.astuple(self)))

    def slope(self, u: Float[np.ndarray, "d chains"]) -> Float[np.ndarray, "d chains"]:
        """The gradient of these rows' potential in each column."""
        scores = self.features @ u + self.offset
        scipy.special.expit(scores, out=scores)
        scores *= self.counts
        scores -= self.positives
        return self.features.T @ scores

    def potential(self, u: Float[np.ndarray, "d chains"]) -> Float[np.ndarray, " chains"]:
        """These rows' potential in each column."""
        scores = self.features @ u + self.offset
        values = -self.positives[:, 0] @ scores
        # softplus(s) = max(s, 0) + log1p(exp(-|s|)), in place: these are the run's largest arrays.
        values += self.counts[:, 0] @ np.maximum(scores, 0.0)
        np.abs(scores, out=scores)
        np.negative(scores, out=scores)
        np.exp(scores, out=scores)
        return values + self.counts[:, 0] @ np.log1p(scores, out=scores)


class Chains:
    """Chains in the coordinates u, w = centre + factor u, the columns of a matrix.

    The rows that are `sharp` are followed in shorter steps than the others.
    """

    def __init__(
        self,
        rows: Rows,
        prior_scale: float,
        centre: Float[np.ndarray, " d"],
        factor: Float[np.ndarray, "d d"],
        u: Float[np.ndarray, "d chains"],
        sharp: Bool[np.ndarray, " rows"],
    ) -> None:
        offset = (rows.features @ centre)[:, None]
        columns = rows.counts[:, None], rows.positives[:, None]
        self.all = _Part(rows.features @ factor, offset, *columns)
        self.slow, self.fast = (self.all.of(~sharp), self.all.of(sharp)) if sharp.any() else (
            self.all, None
        )  # fmt: skip
        self.centre, self.factor, self.precision = centre, factor, prior_scale**-2
        self.u, self.value, self.slopes = u, self._potential(u), self._slopes(u)

    def move(self, step: float, rng: np.random.Generator) -> float:
        """A trajectory of each chain in steps no shorter than `step`; the mean acceptance."""
        inner = 1 if self.fast is None else max(1, round(LONG / step))
        h = step * (1.0 + JITTER * (2.0 * rng.random(CHAINS) - 1.0))
        momentum = rng.standard_normal(self.u.shape)
        before = self.value + 0.5 * np.sum(momentum**2, axis=0)
        u, (slow, fast) = self.u, self.slopes
        for _ in range(max(1, round(LENGTH / (inner * step)))):
            momentum = momentum - 0.5 * inner * h * slow
            for _ in range(inner):
                momentum = momentum - 0.5 * h * fast
                u = u + h * momentum
                fast = self._fast(u)
                momentum = momentum - 0.5 * h * fast
            slow = self._slow(u)
            momentum = momentum - 0.5 * inner * h * slow
        value = self._potential(u)
        after = value + 0.5 * np.sum(momentum**2, axis=0)
        chance = np.exp(np.minimum(0.0, np.nan_to_num(before - after, nan=-np.inf)))
        yes = rng.random(CHAINS) < chance
        self.u, self.value = np.where(yes, u, self.u), np.where(yes, value, self.value)
        new = zip((slow, fast), self.slopes, strict=True)
        self.slopes = tuple(np.where(yes, *pair) for pair in new)
        return float(chance.mean())

    def _potential(self, u: np.ndarray) -> np.ndarray:
        w = self.centre[:, None] + self.factor @ u
        return self.all.potential(u) + 0.5 * self.precision * np.sum(w**2, axis=0)

    def _slopes(self, u: np.ndarray) -> tuple[np.ndarray, ...]:
        return self._slow(u), self._fast(u)

    def _slow(self, u: np.ndarray) -> np.ndarray:
        w = self.centre[:, None] + self.factor @ u
        return self.slow.slope(u) + self.precision * (self.factor.T @ w)

    def _fast(self, u: np.ndarray) -> np.ndarray:
        return np.zeros_like(u) if self.fast is None else self.fast.slope(u)


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

    At least 50 steps are made after settling. `guess`, draws of w, tells where to begin and in
    which coordinates; the stationary law does not depend on it.
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
    """The rows of large curvature at some of the draws."""
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
