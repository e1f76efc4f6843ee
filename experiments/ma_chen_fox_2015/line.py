"""Densities on the line by quadrature, and the one-dimensional targets of Figure 2."""

import dataclasses
from collections.abc import Callable

import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from scipy import integrate

import ergodax as ex
from experiments import measured
from experiments.ma_chen_fox_2015.samplers import Quartic

POINTS = 20_001
TAIL = 0.004  # probability of each of the two open bins

Function = Callable[[np.ndarray], np.ndarray]


class Line:
    """The density proportional to exp(log_density) on [-edge, edge].

    Args:
        log_density: a function of an array of places, smooth; any constant may be added to it.
        edge: beyond it there is no mass to speak of.
    """

    def __init__(self, log_density: Function, edge: float) -> None:
        self.places = np.linspace(-edge, edge, POINTS)
        log_values = log_density(self.places)
        values = np.exp(log_values - log_values.max())
        cumulative = integrate.cumulative_simpson(values, x=self.places, initial=0.0)
        self.density = values / cumulative[-1]
        self.cumulative = cumulative / cumulative[-1]

    def mean(self, function: Function) -> float:
        """The expectation of a function of the place."""
        return float(integrate.simpson(self.density * function(self.places), x=self.places))

    def quantile(self, probability: float | np.ndarray) -> np.ndarray:
        """Where the distribution function has this value."""
        return np.asarray(np.interp(probability, self.cumulative, self.places))

    def probabilities(self, edges: np.ndarray) -> np.ndarray:
        """Of the bins between the edges and of the two tails: one more than there are edges."""
        return np.diff(np.interp(edges, self.places, self.cumulative), prepend=0.0, append=1.0)

    def divergence(self, other: "Line") -> float:
        """Kullback-Leibler divergence of `other`, on the same places, from this density."""
        inside = self.density > 0
        gap = np.zeros_like(self.density)
        gap[inside] = np.log(self.density[inside]) - np.log(other.density[inside])
        return float(integrate.simpson(self.density * gap, x=self.places))

    def draw(self, key: PRNGKeyArray, n: int) -> Float[Array, " n"]:
        """n independent exact draws, by the inverse of the distribution function."""
        return jax.numpy.asarray(self.quantile(np.asarray(jax.random.uniform(key, (n,)))), float)


@dataclasses.dataclass(frozen=True)
class Case:
    """A target: U = quadratic x^2 + quartic x^4, and the C of its metric."""

    name: str
    quadratic: float
    quartic: float
    offset: float
    edge: float

    @property
    def target(self) -> ex.Target:
        """For the samplers."""
        return ex.Target(Quartic(self.quadratic, self.quartic))

    def potential(self, x: np.ndarray) -> np.ndarray:
        """U at an array of places."""
        return self.quadratic * x**2 + self.quartic * x**4

    @property
    def truth(self) -> Line:
        """exp(-U)."""
        return Line(lambda x: -self.potential(x), self.edge)

    @property
    def naive(self) -> Line:
        """exp(-U) / s: the exact law of naive SGRHMC as h goes to 0."""
        return Line(lambda x: -self.potential(x) - self.log_speed(x), self.edge)

    def log_speed(self, x: np.ndarray) -> np.ndarray:
        """log s, s^2 = G^-1, up to a constant: the log ratio of the right law and the naive one.

        Of all functions its mean tells the two apart with the fewest draws.
        """
        return 0.25 * np.log(self.potential(x) + self.offset)


CASES = (Case("U = x²/2", 0.5, 0.0, 0.5, 8.0), Case("U = x⁴ - 2x²", -2.0, 1.0, 1.5, 4.0))


def edges_of(truth: Line, bins: int) -> Float[np.ndarray, " edges"]:
    """Of bins of one width between the two tails."""
    low, high = truth.quantile(np.array([TAIL, 1 - TAIL]))
    return np.linspace(low, high, bins + 1)


def exact_values(case: Case, edges: np.ndarray) -> dict[str, float]:
    """By quadrature: means of the target and of naive SGRHMC, and the latter's divergences.

    A histogram can see no more of a divergence than is between its bins, so that stands here too.
    """
    truth, naive = case.truth, case.naive
    p, q = truth.probabilities(edges), naive.probabilities(edges)
    return {
        "metric_offset": case.offset,
        "second_moment": truth.mean(np.square),
        "log_speed": truth.mean(case.log_speed),
        "naive_second_moment": naive.mean(np.square),
        "naive_log_speed": naive.mean(case.log_speed),
        "naive_kl_from_target": truth.divergence(naive),
        "naive_kl_to_target": naive.divergence(truth),
        "naive_kl_from_target_in_bins": measured.divergence(p, q),
        "naive_kl_to_target_in_bins": measured.divergence(q, p),
    }
