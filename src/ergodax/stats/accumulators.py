"""Summaries that are updated one vector at a time, in memory that does not grow."""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PyTree

from ergodax.checks import numbers, whole_number

# A marker moves when it is one place off. Shares such as 0.85 make that an equality every so often,
# which rounding must not decide differently upwards and downwards: that would be a bias.
MOVES = 1.0 - 1e-3


class Accumulator(eqx.Module):
    """A summary of a sequence of vectors that is updated one by one."""

    @abc.abstractmethod
    def init(self, values: Float[Array, " d"]) -> Any:
        """The summary of no vector yet.

        Args:
            values: a vector like those to come.
        """

    @abc.abstractmethod
    def update(self, summary: PyTree, values: Float[Array, " d"]) -> Any:
        """The summary with one vector more."""

    @abc.abstractmethod
    def result(self, summary: PyTree) -> dict[str, np.ndarray]:
        """What is reported: arrays of shape (d, ...) by name.

        Args:
            summary: of all chains, with a leading chain axis.
        """


class Sums(NamedTuple):
    """The sums so far: of values and of squares with what rounding left of them, and of batches."""

    seen: Int[Array, ""]  # how many vectors
    shift: Float[Array, " d"]  # the first vector, taken from all, so that squares lose no digits
    first: tuple[Float[Array, " d"], Float[Array, " d"]]
    second: tuple[Float[Array, " d"], Float[Array, " d"]]
    batches: Float[Array, "batches d"]
    length: Int[Array, ""]  # of a batch


class Moments(Accumulator):
    """Mean and variance, and the standard error of the mean by batch means.

    The sums carry what rounding left of them (Kahan), so single precision serves for 10^9 steps.
    For the error there are up to `batches` sums over consecutive batches; when all are full,
    neighbours are merged and batches are twice as long. With b full batches in all chains
        mcse^2 = variance of the batch means / b.

    Args:
        batches: an even number; more of them make mcse less noisy and need longer runs.

    Raises:
        ValueError: an odd number, or fewer than 8.

    Reference:
        Flegal and Jones, Batch means and spectral variance estimators in MCMC, 2010.
    """

    batches: int = eqx.field(static=True)

    def __init__(self, batches: int = 64) -> None:
        batches = whole_number("batches", batches, hint="Try 64.")
        if batches < 8 or batches % 2:
            raise ValueError(f"batches must be even and at least 8, not {batches}. Try 64.")
        self.batches = batches

    def init(self, values: Float[Array, " d"]) -> Sums:
        """Zeros."""
        zero = jnp.zeros_like(values)
        table = jnp.zeros((self.batches, values.size), values.dtype)
        return Sums(jnp.int32(0), zero, (zero, zero), (zero, zero), table, jnp.int32(1))

    def update(self, summary: Sums, values: Float[Array, " d"]) -> Sums:
        """One vector more."""
        shift = jnp.where(summary.seen == 0, values, summary.shift)
        apart = values - shift
        full = summary.seen == self.batches * summary.length
        length = jnp.where(full, 2 * summary.length, summary.length)
        table = lax.cond(full, self._merged, lambda t: t, summary.batches)
        table = table.at[summary.seen // length].add(apart)
        return Sums(
            summary.seen + 1, shift, _plus(summary.first, apart),
            _plus(summary.second, apart * apart), table, length,
        )  # fmt: skip

    def _merged(self, table: Float[Array, "batches d"]) -> Float[Array, "batches d"]:
        pairs = table.reshape(self.batches // 2, 2, -1)
        return jnp.concatenate([jnp.sum(pairs, axis=1), jnp.zeros_like(pairs[:, 0])])

    def result(self, summary: Sums) -> dict[str, np.ndarray]:
        """`mean`, `variance`, `mcse` of the mean and the effective sample size `ess`."""
        count = np.asarray(summary.seen, np.float64)[:, None]
        shift = np.asarray(summary.shift, np.float64)
        first, second = (_whole(s) for s in (summary.first, summary.second))
        total = count.sum()
        mean = ((shift * count + first).sum(0)) / max(total, 1.0)
        apart = shift - mean[None, :]  # squares about the common mean
        squares = (second + 2 * apart * first + count * apart**2).sum(0)
        variance = squares / max(total - 1.0, 1.0)
        means = self._batch_means(summary)
        with np.errstate(invalid="ignore", divide="ignore"):
            mcse = (
                np.sqrt(means.var(axis=0, ddof=1) / len(means)) if len(means) > 1 else mean * np.nan
            )
            return {"mean": mean, "variance": variance, "mcse": mcse, "ess": variance / mcse**2}

    def _batch_means(self, summary: Sums) -> np.ndarray:
        """The means of the full batches of all chains."""
        means = []
        for c in range(len(summary.seen)):
            length = int(summary.length[c])
            full = int(summary.seen[c]) // length
            table = np.asarray(summary.batches[c], np.float64)[:full]
            means.append(np.asarray(summary.shift[c], np.float64)[None, :] + table / length)
        return np.concatenate(means)


def _plus(pair: tuple[Array, Array], x: Array) -> tuple[Array, Array]:
    """A sum and what rounding left of it, with one term more."""
    total, rest = pair
    y = x + rest
    new = total + y
    return new, y - (new - total)


def _whole(pair: tuple[Any, Any]) -> np.ndarray:
    return np.asarray(pair[0], np.float64) + np.asarray(pair[1], np.float64)


class Markers(NamedTuple):
    """Where the markers stand."""

    seen: Int[Array, ""]  # how many vectors
    heights: Float[Array, "markers d"]  # ascending once there are as many vectors
    places: Int[Array, "markers d"]  # how many vectors are below each marker
    behind: Float[Array, "markers d"]  # places that each marker lags: a difference of large numbers


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
        hint = "Try (0.05, 0.5, 0.95)."
        inside = np.asarray(numbers("probabilities", probabilities), float)
        ends = np.concatenate([[0.0], inside.ravel(), [1.0]])
        if inside.ndim != 1 or not inside.size or not (np.diff(ends) > 0).all():
            raise ValueError(
                f"probabilities must ascend between 0 and 1, not {probabilities!r}. {hint}"
            )
        self.probabilities = tuple(inside.tolist())

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
        filling = summary.heights.at[jnp.minimum(summary.seen, number - 1)].set(values)
        filling = jnp.where(summary.seen == number - 1, jnp.sort(filling, axis=0), filling)
        heights, places, behind = self._moved(summary, values)
        early = summary.seen < number
        return Markers(
            summary.seen + 1,
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


def _every_other(first: int, heights: Array, places: Array, behind: Array) -> tuple[Any, ...]:
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
