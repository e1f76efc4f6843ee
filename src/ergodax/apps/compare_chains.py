"""Chains of Hamiltonian Monte Carlo on a logistic regression, by NumPy in double precision."""

import dataclasses

import numpy as np
import scipy.special
from jaxtyping import Bool, Float

CHAINS = 16
LENGTH = 1.5  # of a trajectory, in which a normal law's draws become about independent
LONG = 0.25  # a step for the rows that do not bend sharply, where others do
JITTER = 0.2  # of the step, so that no direction comes back to where it began


@dataclasses.dataclass(frozen=True)
class Rows:
    """The distinct rows of a table.

    Attributes:
        features: each once.
        counts: how often it occurs.
        positives: how often with the label 1.
    """

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
    """Some rows in the coordinates u.

    Attributes:
        features: of u.
        offset: of the scores, a column.
        counts: a column.
        positives: a column.
    """

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

    Args:
        rows: of the table.
        prior_scale: sd of each coefficient's normal prior.
        centre: where u = 0.
        factor: of the coordinates.
        u: where the chains begin.
        sharp: the rows that are followed in shorter steps than the others.
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
        """A trajectory of each chain, accepted or not; returns the mean chance of acceptance.

        Args:
            step: the shortest steps.
            rng: for momenta and decisions.
        """
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
