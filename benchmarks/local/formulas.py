"""Learning coefficients that are known, as n grows or at finite t; references for tests too."""

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from scipy.integrate import quad

Known = tuple[Fraction, int]  # lambda and its multiplicity m


def regular(curvatures: np.ndarray, t: float, localization: float) -> float:
    """lambda-hat at the minimum of a quadratic loss: (1/2) sum t k / (t k + gamma)."""
    k = np.asarray(curvatures, float)
    return float(0.5 * np.sum(t * k / (t * k + localization)))


def crossing(power: int, t: float, localization: float) -> float:
    """lambda-hat of L = x^2 y^p at 0, by quadrature.

    x is integrated out: given y it is normal of precision 2 t y^p + gamma, and the mean of
    t x^2 y^p is t y^p over that. Substituting y = e^s spreads the scales.
    """

    def weight(s: float) -> float:
        y = math.exp(s)
        spread = math.sqrt(2.0 * t * y**power + localization)
        return math.exp(-0.5 * localization * y * y) * y / spread

    def weighted(s: float) -> float:
        steepness = t * math.exp(s) ** power
        return weight(s) * steepness / (2.0 * steepness + localization)

    low, high = math.log(1e-9 / math.sqrt(localization)), math.log(9.0 / math.sqrt(localization))
    total, mean = (quad(f, low, high, limit=500)[0] for f in (weight, weighted))
    return mean / total


def reduced_rank(inputs: int, hidden: int, outputs: int, rank: int) -> Known:
    """Of a linear network with one hidden layer about a map of a rank (Aoyagi, Watanabe 2005).

    lambda = r (M + N - r) / 2 + min_k [(N - r)(p - k) + k (q - p + k)] / 2 over k of 0 to p, with
    p, q the smaller and the larger of H - r and M - r; m is the number of minimisers.
    """
    p, q = sorted((hidden - rank, inputs - rank))
    terms = [(outputs - rank) * (p - k) + k * (q - p + k) for k in range(p + 1)]
    least = min(terms)
    return Fraction(rank * (inputs + outputs - rank) + least, 2), terms.count(least)


def deep_linear(widths: Sequence[int], rank: int) -> Known:
    """Of a linear network with several layers about a map of a rank (Aoyagi 2024).

    `widths` are H_1 to H_(L+1). With M_s = H_s - r, Sigma is the set of the l + 1 smallest M with
    sum M >= l max M over Sigma, sum M < l min M over the rest, max over Sigma < min over the rest.
    """
    excess = sorted(width - rank for width in widths)
    for size in range(2, len(excess) + 1):
        inside, outside = excess[:size], excess[size:]
        total, layers = sum(inside), size - 1
        apart = not outside or (total < layers * outside[0] and inside[-1] < outside[0])
        if total >= layers * inside[-1] and apart:
            break
    else:
        raise ValueError(f"no set of layers fits widths {widths} and rank {rank}.")
    a = total - (math.ceil(total / layers) - 1) * layers
    pairs = sum(x * y for x, y in itertools.combinations(inside, 2))
    whole = Fraction(rank * (widths[0] + widths[-1]) - rank**2 + pairs, 2)
    rest = Fraction(a * (layers - a) - (layers - 1) * total**2, 4 * layers)
    return whole + rest, a * (layers - a) + 1
