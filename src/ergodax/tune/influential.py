"""Rows of great influence, which every step sums: a batch that has or lacks one misleads.

A column that is seldom other than 0 is the usual cause. The few rows that tell its coefficient are
in hardly any batch, and in one they count N / n times: the noise of the gradient then comes from
them alone, in rare kicks, which neither a sample of rows shows nor an average describes.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from ergodax.data.arrays import take_at_once
from ergodax.exact.condensed import remainders_of_rows
from ergodax.graph import lowered
from ergodax.target.posterior import Posterior
from ergodax.tune.budget import Deadline
from ergodax.tune.decisions import DecisionLog
from ergodax.tune.descent import seconds_of_gradient
from ergodax.tune.estimator import (
    COSTS,
    INFLATION,
    LARGEST_SECOND_ORDER,
    LONGEST_STEP,
    SMALLEST_BATCH,
)
from ergodax.tune.host import on_device
from ergodax.tune.whitening import Coordinates, posterior_in

BATCHES = 8  # sizes, each twice the one before
SHARE = 1 / 8  # of all rows, that may be set apart
FEWEST, EVALUATIONS = 4, 2**23  # points at which rows are looked at, and rows times points
PASS, OF_TIME = 2.0, 0.1  # gradients that a point takes; the share of the time for all of them
# The gradient's noise, of the square of the remainders: between 1.8, of a cubic in one direction,
# and 3.5, which was measured in 40 dimensions.
GRADIENT = 3.0


class Summed(eqx.Module):
    """A prior and the log-likelihood of some rows."""

    log_prior: Callable[[PyTree], Any]
    few: Posterior  # of these rows alone

    def __call__(self, position: PyTree) -> Float[Array, ""]:
        """Both."""
        values = self.few.log_likelihoods(position, self.few.data)
        return jnp.asarray(self.log_prior(position), values.dtype) + jnp.sum(values)


class Unsummed(eqx.Module):
    """The log-likelihood of a row, or of a batch of them, but 0 of those that are set apart."""

    log_likelihood: Callable[[PyTree, PyTree], Any]

    def __call__(self, position: PyTree, example: PyTree) -> Any:
        """0 of rows whose flag says so."""
        apart, row = example
        value = self.log_likelihood(position, row)
        return jnp.where(apart, jnp.zeros_like(value), value)


def set_apart(posterior: Posterior, rows: Int[np.ndarray, " few"]) -> Posterior:
    """The same posterior, with some rows' log-likelihood in its prior and not in its batches.

    The rows stay in the data, which are not copied; each row is told by a flag.
    """
    flags = np.zeros(posterior.num_data, bool)
    flags[rows] = True
    few = take_at_once(posterior.data, rows)
    prior = Summed(posterior.log_prior, eqx.tree_at(lambda p: p.data, posterior, few))
    parts = prior, Unsummed(posterior.log_likelihood), (jax.device_put(flags), posterior.data)
    return eqx.tree_at(lambda p: (p.log_prior, p.log_likelihood, p.data), posterior, parts)


def squares_of_remainders(
    posterior: Posterior,
    coordinates: Coordinates,
    points: Float[np.ndarray, "points d"],
    deadline: Deadline | None = None,
) -> Float[np.ndarray, " n"] | None:
    """What a row's control variate leaves of it, squared, on average over N(0, I).

    With l_i the log-likelihood of row i, g_i and H_i its gradient and Hessian at the centre u = 0,
        r_i = l_i(u) - l_i(0) - g_i . u - u . H_i u / 2
    without the last term beyond 256 dimensions.

    Args:
        posterior: with data in memory.
        coordinates: whitened.
        points: places u about the centre.
        deadline: of which the pass may take a small share.

    Returns:
        The mean of r_i^2 of each row; None where there is no time, or some are not finite.
    """
    inner, centre, few, order = _looked_at(posterior, coordinates, points)
    gradient = seconds_of_gradient(posterior, coordinates.centre, 1)
    if deadline is not None and PASS * len(few) * gradient > OF_TIME * deadline.left():
        return None
    squares = _mean_squares(remainders_of_rows(inner, centre, few, order), order)
    return squares if np.isfinite(squares).all() else None


def lowered_remainders(
    posterior: Posterior, coordinates: Coordinates, points: Float[np.ndarray, "points d"]
) -> Any:
    """The program of `squares_of_remainders`, to be compiled."""
    return lowered(remainders_of_rows, *_looked_at(posterior, coordinates, points))


def _looked_at(
    posterior: Posterior, coordinates: Coordinates, points: Float[np.ndarray, "points d"]
) -> tuple[Posterior, Array, Array, int]:
    """What `remainders_of_rows` is told."""
    dtype = coordinates.basis.dtype
    few = points[: max(FEWEST, EVALUATIONS // posterior.num_data)]
    centre = on_device(np.zeros(coordinates.dimension), dtype)
    return posterior_in(posterior, coordinates), centre, on_device(few, dtype), _order(coordinates)


def without_influential_rows(
    posterior: Posterior,
    coordinates: Coordinates,
    squares: Float[np.ndarray, " n"] | None,
    log: DecisionLog,
    step: float = LONGEST_STEP,
) -> tuple[Posterior, int]:
    """The posterior for batches and the smallest of them: as it is, or with some rows set apart.

    In a batch of n of N rows the remainder r_i of row i (`squares_of_remainders`) counts N / n
    times, and a step of size h bears noise of variance .3 / h. Rows with N r_i / n beyond the sd of
    that are set apart, with the n at which they and the batch are the fewest rows together, if this
    costs less than the larger batches that the noise of these rows would need.

    Args:
        posterior: with data in memory.
        coordinates: whitened.
        squares: r_i^2; with None all stays as it is.
        log: is told what was set apart.
        step: h.
    """
    if squares is None:
        return posterior, SMALLEST_BATCH
    n, second = posterior.num_data, _order(coordinates) == 2
    cost = COSTS["ControlVariate, order 2" if second else "ControlVariate"]
    batches, kicks = SMALLEST_BATCH * 2 ** np.arange(BATCHES), n * np.sqrt(squares)
    largest = (2.0 * INFLATION / step / GRADIENT) ** 0.5
    numbers = [int(np.sum(kicks > largest * size)) for size in batches]
    counts = [1 << (number - 1).bit_length() if number else 0 for number in numbers]
    count, size = min(zip(counts, batches.tolist(), strict=True), key=lambda c: c[0] + cost * c[1])
    rows = np.sort(np.argpartition(-squares, min(count, n - 1))[:count])
    theirs = float(squares[rows].sum())
    saved = cost * GRADIENT * step / (2.0 * INFLATION) * n * theirs
    if not 0 < count <= min(saved, SHARE * n):
        if step < LONGEST_STEP:  # where some may have been, for longer ones
            log.decide("influential rows", "none", f"steps of {step:.2g} bear their noise")
        return posterior, SMALLEST_BATCH
    why = f"{theirs / squares.sum():.1%} of the noise of batches is theirs"
    log.decide("influential rows", f"{count:,}, summed at every step", why)
    return set_apart(posterior, rows), size


def _order(coordinates: Coordinates) -> int:
    """Of the control variates that there is room for."""
    return 2 if coordinates.dimension <= LARGEST_SECOND_ORDER else 1


def _mean_squares(left: Float[Array, "n points"], order: int) -> Float[np.ndarray, " n"]:
    """The mean square of each row's remainder under the normal law.

    A remainder is about a c s^3 or c s^2 of a normal s. The mean of (s^3)^2 over a few points is
    hardly ever near its expectation 15; that of s^2 is, and tells c.
    """
    moment, power = (15.0, 2.0 / 3.0) if order == 2 else (3.0, 1.0)
    means = np.mean(np.abs(np.asarray(left)) ** power, axis=1, dtype=np.float64)
    return np.asarray(moment * means ** (2.0 / power))
