"""Running averages of what draws predict, in memory that does not grow."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import entr, ndtr
from jaxtyping import Array, Float, Int, PyTree

from ergodax.network.posterior import NetworkPosterior
from ergodax.network.prediction import Prediction


class Averages(NamedTuple):
    """What is averaged; a field is None where it means nothing.

    Attributes:
        mean: of the outlook.
        noise: the variance of a target.
        log_density: of each target.
        entropy: of the probabilities.
        below: the probability of a smaller target.
    """

    mean: Float[Array, "n ..."]
    noise: Float[Array, ""] | None
    log_density: Float[Array, " n"] | None
    entropy: Float[Array, " n"] | None
    below: Float[Array, " n"] | None


class Sums(NamedTuple):
    """The averages so far.

    Attributes:
        count: draws.
        average: of each quantity.
        squares: sum of squared deviations of the outlook's mean.
        log_density: log of the average density of each target.
    """

    count: Int[Array, ""]
    average: Averages
    squares: Float[Array, "n ..."]
    log_density: Float[Array, " n"] | None


def evaluate(
    posterior: NetworkPosterior, position: PyTree, rows: PyTree, targets: Array | None
) -> Averages:
    """What one draw predicts.

    Args:
        posterior: of the network.
        position: the draw, thawed.
        rows: inputs, leading axis n.
        targets: of these rows, or None.
    """
    program = posterior.program
    outputs = program.network(position["network"], rows)
    mean, noise = program.likelihood.outlook(position, outputs)
    density = below = entropy = None
    if targets is not None:
        density = program.likelihood.log_density(position, outputs, targets)
        if noise is not None and mean.ndim == 1:
            apart = targets.reshape(mean.shape).astype(mean.dtype) - mean
            below = ndtr(apart / jnp.sqrt(noise))
    if noise is None:
        entropy = jnp.sum(entr(mean), axis=1) if mean.ndim == 2 else entr(mean) + entr(1.0 - mean)
    return Averages(mean, noise, density, entropy, below)


def no_draw(shapes: Averages) -> Sums:
    """The sums of no draw yet.

    Args:
        shapes: of what a draw predicts.
    """
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    density = None if zeros.log_density is None else jnp.full_like(zeros.log_density, -jnp.inf)
    return Sums(jnp.int32(0), zeros, jnp.zeros_like(zeros.mean), density)


def with_draw(sums: Sums, new: Averages) -> Sums:
    """The sums with one draw more (Welford; log-sum-exp for the density)."""
    count = sums.count + 1
    share = 1.0 / count.astype(new.mean.dtype)
    average = jax.tree.map(lambda a, x: a + share.astype(x.dtype) * (x - a), sums.average, new)
    squares = sums.squares + (new.mean - sums.average.mean) * (new.mean - average.mean)
    density = sums.log_density
    if density is not None and new.log_density is not None:
        # log of ((c - 1) old + new) / c
        kept = density + jnp.log1p(-share)
        density = jnp.logaddexp(kept, new.log_density + jnp.log(share))
    return Sums(count, average, squares, density)


def together(sums: Sums) -> Prediction:
    """The prediction of all chains, each counted by its draws.

    Args:
        sums: with a leading chain axis.

    Raises:
        ValueError: no draw was counted.
    """
    count = np.asarray(sums.count, np.float64)
    total = count.sum()
    if total == 0:
        raise ValueError(
            "no draw was counted. Try more steps, a smaller `after` or `every`; of a cyclical "
            "sampler only the sampling stage counts."
        )

    def pooled(values: Any) -> np.ndarray:
        values = np.asarray(values, np.float64)
        return np.tensordot(count / total, values, 1)

    average = jax.tree.map(pooled, sums.average)
    apart = np.asarray(sums.average.mean, np.float64) - average.mean[None]
    between = np.tensordot(count, apart**2, 1)
    squares = np.asarray(sums.squares, np.float64).sum(axis=0)
    density = None
    if sums.log_density is not None:
        chains = np.asarray(sums.log_density, np.float64)
        with np.errstate(divide="ignore"):
            density = np.logaddexp.reduce(chains + np.log(count / total)[:, None], axis=0)
    return Prediction(
        count=int(total),
        mean=average.mean,
        spread=(squares + between) / max(total - 1.0, 1.0),
        noise=None if average.noise is None else float(average.noise),
        log_density=density,
        draw_log_density=average.log_density,
        draw_entropy=average.entropy,
        below=average.below,
    )
