"""What biases at several step sizes say: their limit as h -> 0, and their order in h.

Arrays are NumPy's; a bias has the shape (step sizes, functions), and numbers at different
step sizes are independent.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

Steps = Float[np.ndarray, " steps"]
SEEN = 4.0  # standard errors from which a bias counts for the order
NEXT = 0.3  # size of the next power of h in a bias, relative to the leading one
DOUBT = 0.2  # of an extrapolation; with 5 errors to a finding, the limit must be half the bias


class Bias(NamedTuple):
    """A bias and its standard error at each step size, for each function."""

    value: Float[np.ndarray, "steps functions"]
    error: Float[np.ndarray, "steps functions"]


class Estimate(NamedTuple):
    """A number and its standard error for each function."""

    value: Float[np.ndarray, " functions"]
    error: Float[np.ndarray, " functions"]


def limit(h: Steps, bias: Bias) -> Estimate:
    """The a of bias = a + b h + c h^2 + d h^3, by weighted least squares.

    d is held to N(0, (largest bias)^2), in units of the largest step, so that it costs
    precision only where there is a curve to be wrong about. What the extrapolation took off
    the bias at the smallest step is believed to `DOUBT` of itself, as a second error: a limit
    much smaller than that, as of a curve far from its limit, is no finding.

    Args:
        h: step sizes, at least 3; with 3 the highest power is h^2.
        bias: the bias at each.
    """
    powers = np.vander(h / h.max(), min(h.size, 4), increasing=True)

    def intercept(y: np.ndarray, s: np.ndarray) -> tuple[float, float]:
        a, error = _held_fit(powers, y, s, held=np.max(np.abs(y) + s), which=0)
        return a, np.hypot(error, DOUBT * (y[h.argmin()] - a))

    return _each(intercept, bias)


def order(h: Steps, bias: Bias) -> Estimate:
    """The p of log |bias| = a + p log h + b h, for each function.

    The last term is what the next power of h does to the slope; at the largest step it is held
    to N(0, NEXT^2). The largest steps count, down to the first at which the bias is not seen,
    but for those at which it is smaller than at the next: there two powers of h cancel. p is NaN
    where fewer than two are left.

    Args:
        h: step sizes, in any order.
        bias: the bias at each.
    """
    down = np.argsort(-h)

    def slope(y: np.ndarray, s: np.ndarray) -> tuple[float, float]:
        seen = np.logical_and.accumulate(np.abs(y) > SEEN * s)
        falling = np.append(np.abs(y[:-1]) > np.abs(y[1:]), True)
        seen &= np.logical_or.accumulate(falling)
        if seen.sum() < 2:
            return np.nan, np.nan
        x, y, s = h[down][seen] / h.max(), np.abs(y[seen]), s[seen]
        terms = np.stack([np.ones_like(x), np.log(x), x], axis=1)
        return _held_fit(terms, np.log(y), s / y, held=NEXT, which=1)

    return _each(slope, Bias(bias.value[down], bias.error[down]))


def _each(number: Callable[..., tuple[float, float]], bias: Bias) -> Estimate:
    columns = zip(bias.value.T, bias.error.T, strict=True)
    return Estimate(*np.array([number(y, s) for y, s in columns]).T)


def _held_fit(
    terms: np.ndarray, y: np.ndarray, s: np.ndarray, *, held: Any, which: int
) -> tuple[float, float]:
    """A coefficient of a weighted least-squares fit and its standard error.

    The last coefficient is held to N(0, held^2).
    """
    design = np.vstack([terms / s[:, None], np.eye(terms.shape[1])[-1] / held])
    inverse = np.linalg.pinv(design)[which]
    return inverse @ np.append(y / s, 0.0), np.linalg.norm(inverse)
