"""Tails so heavy that draws tell less of a mean and an sd than their standard errors say."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ergodax.stats.estimators import kurtosis

FEWEST = 16  # draws of a tail
KURTOSIS = 6.0  # from which a tail is fitted, that of Laplace's law
MOST = 8  # components
LIGHT = 0.45  # the largest shape with which a variance is computed: it has none from 1/2 on
HEAVY = (
    "the tails of {name} are so heavy (Pareto shape {shape:.2f}) that it has no finite variance, "
    "or none that draws can tell: more of them do not help; use its quantiles and not its mean, or "
    "a prior with lighter tails"
)
SLOW = (
    "the tails of {name} are so heavy that its sd takes {needed:,.0f} draws or more even if they "
    "are independent; use its quantiles, try a larger max_seconds, or other parameters of the model"
)


class Tail(NamedTuple):
    """What draws are beyond a threshold, and the shape k of the Pareto law of these."""

    excess: Float[np.ndarray, " draws"]
    shape: float

    @property
    def error(self) -> float:
        """The standard error of the shape."""
        return (1.0 + self.shape) / float(np.sqrt(len(self.excess)))

    @property
    def unseen(self) -> float:
        """By how much the mean square of the law differs from that of the draws beyond it.

        The law has their mean m, and 2 (1 - k) m^2 / (1 - 2 k) is the mean square of the excess.
        Where the largest draws are still to come, k is found too small: a standard error is added.
        """
        k = min(self.shape + self.error, LIGHT)
        by_law = 2.0 * (1.0 - k) / (1.0 - 2.0 * k) * self.excess.mean() ** 2
        return abs(by_law - float(np.mean(self.excess**2)))


def _tail(distances: Float[np.ndarray, " draws"]) -> Tail | None:
    """Fitted to the largest distances; None where there are too few or they are all alike.

    Beyond a threshold most densities look like y^(-1 - 1/k), with k = 1 for Cauchy's and 1 / nu for
    Student's. From k = 1/2 on there is no variance, from 1 on no mean, and averages do not settle.

    Reference:
        Vehtari, Simpson, Gelman, Yao and Gabry, Pareto smoothed importance sampling, 2024.
    """
    from scipy.stats import genpareto

    count = min(int(3.0 * np.sqrt(distances.size)), distances.size // 5)
    if count < FEWEST:
        return None
    far = np.sort(np.partition(distances, -count - 1)[-count - 1 :])
    excess = far[1:] - far[0]
    if not np.isfinite(excess).all() or not excess[-1] > 0.0:
        return None
    return Tail(excess, float(genpareto.fit(excess / excess.mean(), floc=0.0)[0]))


def unseen_spread(x: Float[np.ndarray, "chains draws d"]) -> Float[np.ndarray, " d"]:
    """The share of each sd by which draws are off as far as the law of their tails tells.

    The standard error of an sd is that of an average of squares. From a Pareto shape of 1/4 on
    these have no variance, and what they seem to have is too small whenever the largest draws are
    still to come, as does the sd. Half the relative difference between the mean square by the
    fitted tail and that of the draws says so: hardly anything for normal, Laplace's or exponential
    laws.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> draws = np.stack([rng.standard_normal((4, 500)), rng.standard_t(2.2, (4, 500))], -1)
        >>> (unseen_spread(draws) > 0.02).tolist()
        [False, True]
    """
    shares, heaviness = np.zeros(x.shape[-1]), kurtosis(x)
    for k in np.argsort(-heaviness)[:MOST]:
        distances = np.ravel(np.abs(x[..., k] - np.median(x[..., k]))).astype(float)
        tail = _tail(distances) if heaviness[k] > KURTOSIS else None
        if tail is not None:
            share = len(tail.excess) / distances.size
            shares[k] = 0.5 * share * tail.unseen / np.mean(distances**2)
    return shares


def heavy_tail(x: Float[np.ndarray, "chains draws"]) -> float:
    """The Pareto shape of a variable's tails where it tells that there is no variance, else 0.

    It is told where the shape is more than two of its standard errors above 1/2.
    """
    # Repeats are a chain that stands still, which tells nothing of a shape.
    tail = _tail(np.unique(np.abs(x - np.median(x))).astype(float))
    return tail.shape if tail and tail.shape - 2.0 * tail.error > 0.5 else 0.0


def without_variance(name: str, x: Float[np.ndarray, "chains draws"]) -> str:
    """That a component seems to have no variance; "" where it has."""
    shape = heavy_tail(x)
    return HEAVY.format(name=name, shape=shape) if shape else ""


def slow_tails(name: str, x: Float[np.ndarray, "chains draws"], accuracy: float) -> str:
    """That even independent draws, as many as these, would not tell the sd; "" if they would.

    The variance of an sd over its square is (kurtosis - 1) / 4n: 1 / 2n for a normal law, and far
    more where the tails are heavy. Few draws show too small a kurtosis.

    Args:
        name: of the component.
        x: its draws.
        accuracy: the error of the sd that is small enough, in sds.
    """
    heaviness = float(kurtosis(x[..., None])[0])
    if heaviness < KURTOSIS:
        return ""
    needed = (heaviness - 1.0) / (4.0 * accuracy**2)
    unseen = float(unseen_spread(x[..., None])[0])
    if unseen > accuracy:  # it falls as one over the root at most
        needed = max(needed, x.size * (unseen / accuracy) ** 2)
    return SLOW.format(name=name, needed=needed) if needed > x.size else ""
