"""SGLD on N(0, 1) with a noisy gradient, exactly: x+ = (1 - h) x + N(0, 2 h + h^2 V)."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

Steps = Float[np.ndarray, " k"]


class Errors(NamedTuple):
    """Of an average over a chain.

    Attributes:
        bias: its mean less the truth.
        spread: its standard deviation.
    """

    bias: Steps
    spread: Steps

    @property
    def total(self) -> Steps:
        """The root mean square error."""
        return np.sqrt(self.bias**2 + self.spread**2)


def variance(steps: Steps, noise: float) -> Steps:
    """Of the stationary law: (1 + h V / 2) / (1 - h / 2).

    Args:
        steps: h.
        noise: V.
    """
    return (1.0 + 0.5 * steps * noise) / (1.0 - 0.5 * steps)


def errors(steps: Steps, noise: float, length: int, quantity: str) -> Errors:
    """Errors of the average of x or x^2 over steps 1 ... n from an exact draw.

    With S_s the variance of x_s, Cov(x_s, x_t) = (1 - h)^(t - s) S_s, and for Gaussian noise
    Cov(x_s^2, x_t^2) is twice its square.

    Args:
        steps: h of each chain, in (0, 2).
        noise: V.
        length: n.
        quantity: "mean", whose truth is 0, or "variance", whose truth is 1.

    Raises:
        ValueError: another quantity.
    """
    if quantity not in ("mean", "variance"):
        raise ValueError(f"quantity must be 'mean' or 'variance', not {quantity!r}.")
    kept, times = 1.0 - steps[:, None], np.arange(1, length + 1)
    final = variance(steps, noise)[:, None]
    own = final + kept ** (2 * times)[None] * (1.0 - final)
    if quantity == "mean":
        bias, own, ratio = np.zeros_like(steps), own, kept
    else:
        bias, own, ratio = own.mean(axis=1) - 1.0, 2.0 * own**2, kept**2
    # The lags 1 ... n - s that follow step s add up to a geometric series.
    later = ratio * (1.0 - ratio ** (length - times)[None]) / (1.0 - ratio)
    spread = np.sum(own * (1.0 + 2.0 * later), axis=1) / length**2
    return Errors(bias, np.sqrt(spread))
