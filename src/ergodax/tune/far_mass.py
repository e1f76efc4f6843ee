"""Mass far from the mode that no draw has come to: a wide law around a narrow one.

A descent from anywhere leads to the narrow mode, so the search for modes sees nothing, and chains
that begin there hardly ever leave it. But the places at which that search looks, 2 to 8 posterior
sds around the mode in each direction, tell what mass there is by importance sampling.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import expit, logsumexp

SCALES = 1.0, 3.0  # log2 of posterior sds: of the places that are looked at, least and most
NODES = 64  # scales, over which the density of the places is summed
SURE = 4.0  # standard errors of what the places tell
BEYOND = 4.0  # sds of the square of a normal law's radius, at which "far" begins
FEWER = 0.25  # of the share that is expected, of draws that lie there
TWO_LAWS = "a narrow law within a wide one. Try ex.replica_exchange, or sample the two apart"


class FarMass(NamedTuple):
    """The posterior's mass beyond a radius.

    Attributes:
        radius: in posterior sds by the curvature at the mode.
        share: of all mass, if the rest is that of the normal law at the mode.
    """

    radius: float
    share: float


def scales_of_places(random: np.random.Generator, number: int) -> Float[np.ndarray, "number 1"]:
    """Scales s of places u ~ N(0, s^2 I), uniform in their logarithm."""
    return 2.0 ** random.uniform(*SCALES, (number, 1))


def far_mass(u: Float[np.ndarray, "n d"], rises: Float[np.ndarray, " n"]) -> FarMass | None:
    """The mass far from 0, if there surely is some, by the places that were looked at.

    With q the density of the places and w = exp(-rise) / q over the normal law's own constant, the
    mean of w beyond the radius is the mass there over that of the normal law at the mode.

    Args:
        u: places drawn with `scales_of_places`, in whitened coordinates.
        rises: of the potential, from 0 to each.

    Example:
        >>> random = np.random.default_rng(0)
        >>> u = scales_of_places(random, 2**14) * random.standard_normal((2**14, 3))
        >>> square = np.sum(u**2, axis=1)
        >>> far_mass(u, 0.5 * square).share < 0.01  # a normal law
        True
        >>> wide = 1.0 / (1.0 + 8.0**3) * np.exp(-0.5 * square / 64.0)  # half the mass, 8 sds wide
        >>> narrow = 8.0**3 / (1.0 + 8.0**3) * np.exp(-0.5 * square)
        >>> round(far_mass(u, -np.log(narrow + wide)).share, 1)
        0.5
    """
    count, d = u.shape
    square = np.sum(np.asarray(u, np.float64) ** 2, axis=1)
    radius = float(d + BEYOND * np.sqrt(2.0 * d)) ** 0.5
    scales = np.linspace(*SCALES, NODES) * np.log(2.0)
    terms = -d * scales - 0.5 * square[:, None] * np.exp(-2.0 * scales)
    density = np.asarray(logsumexp(terms, axis=1)) - np.log(NODES)
    logs = -np.asarray(rises, np.float64) - density
    logs = np.where((square > radius**2) & np.isfinite(logs), logs, -np.inf)
    if not (largest := logs.max()) > -np.inf:
        return None
    weights = np.exp(logs - largest)  # a place below the mode may weigh more than numbers hold
    mass, error = float(weights.mean()), float(weights.std()) / count**0.5
    share = float(expit(np.log(mass) + largest))
    return FarMass(radius, share) if mass > SURE * error else None


def missing(far: FarMass, draws: Float[np.ndarray, "n d"], accuracy: float) -> str:
    """That draws have only one of the laws near the mode and far from it; "" else.

    A share p at a radius r adds p r^2 / d to the variance, and half of that to the sd; without the
    narrow law's share the sd is too large by half of that share.

    Args:
        far: what the places told.
        draws: in the same coordinates.
        accuracy: of means and sds, in posterior sds; what matters less is not told.
    """
    there = float(np.mean(np.sum(draws**2, axis=1) > far.radius**2))
    around = f"{far.radius:.2g} posterior sds of the mode, as places around it tell"
    if there < FEWER * far.share and far.share * far.radius**2 / draws.shape[1] > 2.0 * accuracy:
        return (
            f"{far.share:.0%} of the mass or so is not within {around}, where all but "
            f"{there:.1%} of the draws are: {TWO_LAWS}"
        )
    near = 1.0 - far.share
    if 1.0 - there < FEWER * near and near > 2.0 * accuracy:
        return (
            f"{near:.0%} of the mass or so is within {around}, where {1.0 - there:.1%} of the "
            f"draws are: {TWO_LAWS}"
        )
    return ""
