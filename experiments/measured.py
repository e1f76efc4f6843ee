"""Numbers with standard errors over repeats, and Kullback-Leibler divergences by histogram.

A histogram of n independent draws in k bins is (k - 1) / (2 n) from its own law on average,
and that of a Markov chain further by its correlation time. The jackknife over independent
repeats takes this bias away whatever the correlation along a chain, and gives the standard error.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

Rows = Float[np.ndarray, "repeats ..."]


class Measured(NamedTuple):
    """A number and its standard error over the repeats."""

    value: float
    error: float

    def deviation(self, expected: float) -> float:
        """How many standard errors the number lies above what was expected."""
        if not np.isfinite(self.value):
            return float("inf")
        return (self.value - expected) / self.error

    def __str__(self) -> str:
        """With the error to one digit, or two where that begins with 1 or 2."""
        if not np.isfinite(self.error) or self.error <= 0:
            return f"{self.value:.3g}"
        digits = max(0, -int(np.floor(np.log10(self.error / 3))))
        return f"{self.value:.{digits}f} ± {self.error:.{digits}f}"


def frequencies(
    draws: Float[np.ndarray, "repeats n"], edges: Float[np.ndarray, " k"]
) -> Float[np.ndarray, "repeats k+1"]:
    """The fraction of each repeat's draws in each bin; the first and last bins are the tails."""
    bins = np.searchsorted(edges, draws)
    return np.stack([np.bincount(row, minlength=edges.size + 1) for row in bins]) / draws.shape[1]


def divergence(p: Float[np.ndarray, " k"], q: Float[np.ndarray, " k"]) -> float:
    """KL(p || q) = sum of p log(p / q); infinite where q lacks a bin of p."""
    inside = p > 0
    if np.any(q[inside] <= 0):
        return float("inf")
    return float(np.sum(p[inside] * np.log(p[inside] / q[inside])))


def jackknife(function: Callable[[np.ndarray], float], rows: Rows) -> Measured:
    """A function of the mean of independent rows, without its bias of first order in 1 / rows."""
    count = rows.shape[0]
    total = rows.sum(axis=0)
    whole = function(total / count)
    without = np.array([function((total - row) / (count - 1)) for row in rows])
    if not np.isfinite([whole, *without]).all():
        return Measured(float("inf"), float("nan"))
    error = np.sqrt((count - 1) * without.var())
    return Measured(float(count * whole - (count - 1) * without.mean()), float(error))


def mean(values: Float[np.ndarray, " repeats"]) -> Measured:
    """The mean over repeats."""
    return jackknife(float, values)


def number(row: Any, name: str) -> Measured:
    """A number of a row of a table, and its standard error in the column NAME_error."""
    return Measured(float(row[name]), float(row[f"{name}_error"]))
