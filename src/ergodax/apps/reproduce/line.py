"""A density on the line, by quadrature: what the samplers are measured against."""

from collections.abc import Callable

import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from scipy import integrate

POINTS = 20_001

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
