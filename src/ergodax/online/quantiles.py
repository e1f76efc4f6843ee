"""Quantiles by a few markers for each component, in memory that does not grow."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ergodax.online.accumulate import Accumulator

# A marker moves when it is one place off. Shares such as 0.85 make that an equality every so often,
# which rounding must not decide differently upwards and downwards: that would be a bias.
MOVES = 1.0 - 1e-3


class Markers(NamedTuple):
    """Where the markers stand.

    Attributes:
        count: vectors.
        heights: the values at the markers, in ascending order once there are as many vectors.
        places: how many vectors are below each marker.
        behind: by how many places each marker is behind where it should be. Kept for itself, since
            the difference of two large numbers would have no digits left.
    """

    count: Int[Array, ""]
    heights: Float[Array, "markers d"]
    places: Int[Array, "markers d"]
    behind: Float[Array, "markers d"]


class Quantiles(Accumulator):
    """Estimates of quantiles by the P^2 algorithm, extended to several at once.

    Each quantile has a marker, between neighbours there is one halfway, and the extremes have one
    each. A marker is moved by one place when it lags behind where it should be, to a height on the
    parabola through its neighbours. The error is some thousandths of a standard deviation after
    10^5 positions, besides Monte Carlo error; chains are averaged.

    Args:
        probabilities: ascending, each between 0 and 1.

    Raises:
        ValueError: none, not ascending, or out of range.

    Reference:
        Jain and Chlamtac, The P^2 algorithm for dynamic calculation of quantiles, 1985;
        Raatikainen, Simultaneous estimation of several percentiles, 1987.
    """

    probabilities: tuple[float, ...] = eqx.field(static=True)

    def __init__(self, probabilities: tuple[float, ...] = (0.05, 0.25, 0.5, 0.75, 0.95)) -> None:
        ends = np.concatenate([[0.0], probabilities, [1.0]])
        if len(ends) < 3 or not (np.diff(ends) > 0).all():
            raise ValueError(
                f"probabilities must ascend between 0 and 1, not {probabilities!r}. Try "
                "(0.05, 0.5, 0.95)."
            )
        self.probabilities = tuple(float(p) for p in probabilities)

    @property
    def _targets(self) -> np.ndarray:
        """The shares of the vectors that should be below each marker."""
        ends = np.concatenate([[0.0], self.probabilities, [1.0]])
        return np.sort(np.concatenate([ends, (ends[1:] + ends[:-1]) / 2]))

    def init(self, values: Float[Array, " d"]) -> Markers:
        """No vector yet."""
        number, shares = len(self._targets), self._targets
        shape = (number, values.size)
        places = jnp.broadcast_to(jnp.arange(number, dtype=jnp.int32)[:, None], shape)
        behind = jnp.asarray((number - 1) * shares - np.arange(number), values.dtype)
        return Markers(
            jnp.int32(0), jnp.zeros(shape, values.dtype), places,
            jnp.broadcast_to(behind[:, None], shape),
        )  # fmt: skip

    def update(self, summary: Markers, values: Float[Array, " d"]) -> Markers:
        """One vector more."""
        number = len(self._targets)
        filling = summary.heights.at[jnp.minimum(summary.count, number - 1)].set(values)
        filling = jnp.where(summary.count == number - 1, jnp.sort(filling, axis=0), filling)
        heights, places, behind = self._moved(summary, values)
        early = summary.count < number
        return Markers(
            summary.count + 1,
            jnp.where(early, filling, heights),
            jnp.where(early, summary.places, places),
            jnp.where(early, summary.behind, behind),
        )

    def _moved(self, old: Markers, values: Float[Array, " d"]) -> tuple[Array, Array, Array]:
        heights = old.heights.at[0].min(values).at[-1].max(values)
        below = (values[None, :] < heights).at[-1].set(True)
        places = old.places + below.astype(jnp.int32)
        shares = jnp.asarray(self._targets, values.dtype)[:, None]
        behind = old.behind + (shares - below.astype(values.dtype))
        # Neighbours must not move at once, so every other marker does, and then the rest.
        return _every_other(1, *_every_other(0, heights, places, behind))

    def result(self, summary: Markers) -> dict[str, np.ndarray]:
        """`quantiles`, an array of shape (d, probabilities), the mean over the chains."""
        chosen = np.searchsorted(self._targets, self.probabilities)
        heights = np.asarray(summary.heights, np.float64)[:, chosen]
        return {"quantiles": heights.mean(axis=0).T}


def _every_other(first: int, heights: Array, places: Array, behind: Array) -> tuple:
    """Move every other inner marker by at most one place, in each component."""
    gaps = (places[1:] - places[:-1]).astype(heights.dtype)
    slopes = (heights[1:] - heights[:-1]) / gaps
    left, right, fall, rise = gaps[:-1], gaps[1:], slopes[:-1], slopes[1:]
    here, late = heights[1:-1], behind[1:-1]
    turn = (np.arange(here.shape[0]) % 2 == first)[:, None]
    up = turn & (late > MOVES) & (right > 1)
    down = turn & (late < -MOVES) & (left > 1)
    step = jnp.where(up, 1.0, jnp.where(down, -1.0, 0.0)).astype(heights.dtype)
    bend = (left + step) * rise + (right - step) * fall
    parabola = here + step / (left + right) * bend
    line = here + step * jnp.where(step > 0, rise, fall)
    inside = (parabola > heights[:-2]) & (parabola < heights[2:])
    new = jnp.where(step == 0, here, jnp.where(inside, parabola, line))
    return (
        heights.at[1:-1].set(new),
        places.at[1:-1].add(step.astype(jnp.int32)),
        behind.at[1:-1].add(-step),
    )
