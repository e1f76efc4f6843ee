"""Mean, variance and their Monte Carlo error, in memory that does not grow."""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from ergodax.online.accumulate import Accumulator


class Sums(NamedTuple):
    """The sums so far.

    Attributes:
        count: vectors.
        shift: the first vector, which is subtracted from all, so that squares lose no digits.
        first, second: sums of the values and of their squares, and what rounding left of them.
        batches: sums over consecutive batches, all of one length.
        length: of a batch.
    """

    count: Int[Array, ""]
    shift: Float[Array, " d"]
    first: tuple[Float[Array, " d"], Float[Array, " d"]]
    second: tuple[Float[Array, " d"], Float[Array, " d"]]
    batches: Float[Array, "batches d"]
    length: Int[Array, ""]


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
        shift = jnp.where(summary.count == 0, values, summary.shift)
        apart = values - shift
        full = summary.count == self.batches * summary.length
        length = jnp.where(full, 2 * summary.length, summary.length)
        table = lax.cond(full, self._merged, lambda t: t, summary.batches)
        table = table.at[summary.count // length].add(apart)
        return Sums(
            summary.count + 1, shift, _plus(summary.first, apart),
            _plus(summary.second, apart * apart), table, length,
        )  # fmt: skip

    def _merged(self, table: Float[Array, "batches d"]) -> Float[Array, "batches d"]:
        pairs = table.reshape(self.batches // 2, 2, -1)
        return jnp.concatenate([jnp.sum(pairs, axis=1), jnp.zeros_like(pairs[:, 0])])

    def result(self, summary: Sums) -> dict[str, np.ndarray]:
        """`mean`, `variance`, `mcse` of the mean and the effective sample size `ess`."""
        count = np.asarray(summary.count, np.float64)[:, None]
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
        for c in range(len(summary.count)):
            length = int(summary.length[c])
            full = int(summary.count[c]) // length
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
