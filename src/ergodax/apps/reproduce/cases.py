"""The one-dimensional targets of Figure 2, and all that is known of them exactly."""

import dataclasses

import numpy as np
from jaxtyping import Float

from ergodax.apps.reproduce import divergences, problem
from ergodax.apps.reproduce.line import Line

TAIL = 0.004  # probability of each of the two open bins


@dataclasses.dataclass(frozen=True)
class Case:
    """A target: U = quadratic x^2 + quartic x^4, and the C of its metric."""

    name: str
    quadratic: float
    quartic: float
    offset: float
    edge: float

    @property
    def target(self) -> problem.Quartic:
        """For the samplers."""
        return problem.Quartic(self.quadratic, self.quartic)

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
        "naive_kl_from_target_in_bins": divergences.divergence(p, q),
        "naive_kl_to_target_in_bins": divergences.divergence(q, p),
    }
