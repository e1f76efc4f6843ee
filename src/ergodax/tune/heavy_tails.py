"""Tails so heavy that draws tell less of a mean and an sd than their standard errors say.

A tail is that of one mode. Where several are known, each draw's distance is from the centre of its
own, or the rare ones among them look like a tail.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ergodax.stats.estimators import kurtosis

FEWEST = 16  # draws of a tail
KURTOSIS = 6.0  # from which a tail is fitted, that of Laplace's law
MOST = 8  # components
HUMP = 8  # draws of each of two chains beyond a gap, in no wider a range: 2^-16 that by chance
HEAVIEST = 0.5  # shape of a law that has a variance
LIGHT = 0.45  # the largest with which one is computed
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


def _centred(
    x: Float[np.ndarray, "chains draws d"], modes: Int[np.ndarray, "chains draws"] | None
) -> Float[np.ndarray, "chains draws d"]:
    """The draws less the medians of those of the same mode."""
    x = x.astype(float)
    if modes is None:
        return x - np.median(x, axis=(0, 1))
    centred = np.empty_like(x)
    for mode in np.unique(modes):
        its = modes == mode
        centred[its] = x[its] - np.median(x[its], axis=0)
    return centred


class Farthest(NamedTuple):
    """The largest distances in order, and the chain of each."""

    distances: Float[np.ndarray, " n"]
    chains: Int[np.ndarray, " n"]

    @property
    def have_hump(self) -> bool:
        """Whether many of them lie beyond a gap, as those of another mode do.

        The density of a tail falls. So of draws in a gap and in a range beyond it that is as wide,
        each is in the gap with a chance of 1/2 or more, and there can't be many with none in the
        gap. A chain that stays out there for long does not tell; that a second one does so at the
        same place is no chance.
        """
        gaps = np.diff(self.distances)
        ends = np.searchsorted(self.distances, self.distances[1:] + gaps, side="right")
        for start in np.flatnonzero(ends - np.arange(1, len(self.distances)) >= 2 * HUMP) + 1:
            counts = np.sort(np.bincount(self.chains[start : ends[start - 1]], minlength=2))
            if counts[-2] >= HUMP:
                return True
        return False


def _farthest(
    distances: Float[np.ndarray, "chains draws"], *, distinct: bool = False
) -> Farthest | None:
    """Of so many distances as a tail is fitted to; None where there are too few."""
    flat = np.ravel(distances)
    chains = np.repeat(np.arange(len(distances)), distances.shape[1])
    if distinct:
        flat, first = np.unique(flat, return_index=True)
        chains = chains[first]
    count = min(int(3.0 * np.sqrt(flat.size)), flat.size // 5)
    if count < FEWEST:
        return None
    which = np.argpartition(flat, -count - 1)[-count - 1 :]
    which = which[np.argsort(flat[which])]
    return Farthest(flat[which], chains[which])


def _tail(distances: Float[np.ndarray, "chains draws"], *, distinct: bool = False) -> Tail | None:
    """Fitted to the largest distances; None where there are too few, or they tell of no tail.

    Beyond a threshold most densities look like y^(-1 - 1/k), with k = 1 for Cauchy's and 1 / nu for
    Student's. From k = 1/2 on there is no variance, from 1 on no mean, and averages do not settle.
    Distances that are all alike tell of no tail, nor do those of another mode.

    Args:
        distances: of the draws.
        distinct: whether each counts once: repeats may be a chain that stands still.

    Reference:
        Vehtari, Simpson, Gelman, Yao and Gabry, Pareto smoothed importance sampling, 2024.
    """
    far = _farthest(distances, distinct=distinct)
    if far is None:
        return None
    excess = far.distances[1:] - far.distances[0]
    if not np.isfinite(excess).all() or not excess[-1] > 0.0 or far.have_hump:
        return None
    return Tail(excess, _shape(excess))


def _shape(excess: Float[np.ndarray, " draws"]) -> float:
    """Of the Pareto law that fits best."""
    from scipy.stats import genpareto

    return float(genpareto.fit(excess / excess.mean(), floc=0.0)[0])


def unseen_spread(
    x: Float[np.ndarray, "chains draws d"], modes: Int[np.ndarray, "chains draws"] | None = None
) -> Float[np.ndarray, " d"]:
    """The share of each sd by which draws are off as far as the law of their tails tells.

    The standard error of an sd is that of an average of squares. From a Pareto shape of 1/4 on
    these have no variance, and what they seem to have is too small whenever the largest draws are
    still to come, as does the sd. Half the relative difference between the mean square by the
    fitted tail and that of the draws says so: hardly anything for normal, Laplace's or exponential
    laws.

    Args:
        x: draws.
        modes: to which each belongs, where there are several.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> draws = np.stack([rng.standard_normal((4, 500)), rng.standard_t(2.2, (4, 500))], -1)
        >>> (unseen_spread(draws) > 0.02).tolist()
        [False, True]
    """
    centred = _centred(x, modes)
    shares, heaviness = np.zeros(x.shape[-1]), kurtosis(centred)
    for k in np.argsort(-heaviness)[:MOST]:
        tail = _tail(np.abs(centred[..., k])) if heaviness[k] > KURTOSIS else None
        if tail is not None:
            share = len(tail.excess) / centred[..., k].size
            square = np.mean((x[..., k] - np.median(x[..., k])).astype(float) ** 2)
            shares[k] = 0.5 * share * tail.unseen / square
    return shares


def heavy_tail(
    x: Float[np.ndarray, "chains draws"], modes: Int[np.ndarray, "chains draws"] | None = None
) -> float:
    """The Pareto shape of a variable's tails where it tells that there is no variance, else 0.

    It is told where the shape is more than two of its standard errors above 1/2, and above it by
    the farther quarter of the tail too. A narrow law within a wide one looks like a tail where one
    goes over into the other, and farther out no longer.
    """
    tail = _tail(np.abs(_centred(x[..., None], modes)[..., 0]), distinct=True)
    if tail is None or tail.shape - 2.0 * tail.error < HEAVIEST:
        return 0.0
    farther = tail.excess[-1 - len(tail.excess) // 4 :]
    return tail.shape if _shape(farther[1:] - farther[0]) > HEAVIEST else 0.0


def without_variance(
    name: str,
    x: Float[np.ndarray, "chains draws"],
    modes: Int[np.ndarray, "chains draws"] | None = None,
) -> str:
    """That a component seems to have no variance; "" where it has."""
    shape = heavy_tail(x, modes)
    return HEAVY.format(name=name, shape=shape) if shape else ""


def slow_tails(
    name: str,
    x: Float[np.ndarray, "chains draws"],
    accuracy: float,
    modes: Int[np.ndarray, "chains draws"] | None = None,
) -> str:
    """That even independent draws, as many as these, would not tell the sd; "" if they would.

    The variance of an sd over its square is (kurtosis - 1) / 4n: 1 / 2n for a normal law, and far
    more where the tails are heavy. Few draws show too small a kurtosis.

    Args:
        name: of the component.
        x: its draws.
        accuracy: the error of the sd that is small enough, in sds.
        modes: to which each belongs, where there are several: a rare one is no tail.
    """
    x = _centred(x[..., None], modes)[..., 0]
    heaviness = float(kurtosis(x[..., None])[0])
    far = _farthest(np.abs(x))
    if heaviness < KURTOSIS or (far is not None and far.have_hump):
        return ""
    needed = (heaviness - 1.0) / (4.0 * accuracy**2)
    unseen = float(unseen_spread(x[..., None])[0])
    if unseen > accuracy:  # it falls as one over the root at most
        needed = max(needed, x.size * (unseen / accuracy) ** 2)
    return SLOW.format(name=name, needed=needed) if needed > x.size else ""
