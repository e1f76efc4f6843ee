"""Autocorrelation, effective sample size, standard error and R-hat, all by ArviZ."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, PyTree

from ergodax.checks import choice, instance, real_number, whole_number
from ergodax.stats.draws import Run, columns, positions_of


def effective_size(x: Float[np.ndarray, "chains draws *d"], method: str = "mean") -> Any:
    """The effective sample size of each component of an array; NaN of a constant."""
    more: dict[str, Any] = {"prob": (0.05, 0.95)} if method == "tail" else {}
    return _by_arviz("ess", x, method=method, **more)


def standard_error(x: Float[np.ndarray, "chains draws *d"], method: str = "mean") -> Any:
    """The Monte Carlo standard error of the mean, or by `method="sd"` of the sd."""
    return _by_arviz("mcse", x, method=method)


def scale_reduction(x: Float[np.ndarray, "chains draws *d"], method: str = "rank") -> Any:
    """R-hat of each component of an array; see `r_hat` for the methods."""
    return _by_arviz("rhat", x, method=method)


def _by_arviz(statistic: str, x: np.ndarray, **settings: Any) -> Any:
    """One of ArviZ's estimators, imported when it is first needed."""
    from arviz_stats.base.array import array_stats

    with np.errstate(invalid="ignore", divide="ignore"):  # a constant: NaN
        return getattr(array_stats, statistic)(x, chain_axis=0, draw_axis=1, **settings)


def autocorrelation(draws: PyTree) -> PyTree:
    """The autocorrelation of each component of each chain, at every lag.

    By FFT, with the divisor n. The variance of a later lag does not shrink, so sums over all lags
    mean nothing; see `integrated_autocorrelation_time`.

    Args:
        draws: a Samples, or a tree of arrays (chains, draws, ...).

    Returns:
        A tree like the positions: arrays (chains, lags, ...), 1 at lag 0.
    """
    from arviz_stats.base.array import array_stats

    return _each(draws, lambda x: array_stats.autocorr(x, axis=1))


def ess(draws: PyTree, kind: str = "bulk") -> PyTree:
    """The effective sample size of each component, over all chains.

    Args:
        draws: a Samples, or a tree of arrays (chains, draws, ...).
        kind: "bulk" (of the rank-normalised draws), "tail" (the lesser of those of the 5 % and
            95 % quantiles) or "mean" (of the mean as it is, which its standard error follows).

    Returns:
        A tree like the positions, without the axes chains and draws.

    Raises:
        ValueError: an unknown kind.

    Reference:
        Vehtari, Gelman, Simpson, Carpenter and Buerkner, Rank-normalization, folding, and
        localization: an improved R-hat, 2021.
    """
    choice("kind", kind, ("bulk", "tail", "mean"))
    return _each(draws, lambda x: effective_size(x, kind))


def integrated_autocorrelation_time(draws: PyTree) -> PyTree:
    """1 + 2 (sum of the autocorrelations): how many draws count as one for the mean.

    The draws of all chains over `ess(draws, "mean")`, whose sum is cut off by Geyer's rule.
    In units of draws: with thinning, multiply by the steps between two draws.

    Args:
        draws: a Samples, or a tree of arrays (chains, draws, ...).

    Returns:
        A tree like the positions, without the axes chains and draws.
    """
    return _each(draws, lambda x: x.shape[0] * x.shape[1] / effective_size(x))


def r_hat(draws: PyTree, kind: str = "rank") -> PyTree:
    """How much wider all chains together are than each of them: 1 where they agree.

    It compares chains with each other, so it sees chains that have not mixed and not the bias
    that a finite step size gives all of them.

    Args:
        draws: a Samples, or a tree of arrays (chains, draws, ...), of two chains or more.
        kind: "rank", the larger of the two that follow, to which the threshold 1.01 refers;
            "z_scale" (rank-normalised, split); "folded" (the same of the distance from the
            median, which sees scales that differ); "split"; or "identity" (the classical one).

    Returns:
        A tree like the positions, without the axes chains and draws.

    Raises:
        ValueError: a single chain, or an unknown kind.

    Reference:
        Vehtari et al., 2021, as for `ess`.
    """
    choice("kind", kind, ("rank", "z_scale", "folded", "split", "identity"))
    if columns(draws).values.shape[0] < 2:
        raise ValueError("draws must be of 2 chains at least, not 1: R-hat compares chains.")
    return _each(draws, lambda x: scale_reduction(x, kind))


class Efficiency(NamedTuple):
    """Effective draws of the mean, and what one of them costs.

    Attributes:
        ess: of each component, a tree like the positions without (chains, draws).
        per_evaluation: the same over the gradients of single examples that were computed.
        per_second: the same over the seconds that were given, or None.
        evaluations: gradients of single examples, of all chains, burn-in not counted.
    """

    ess: PyTree
    per_evaluation: PyTree
    per_second: PyTree | None
    evaluations: float


def efficiency(samples: Run, *, thin: int = 1, seconds: float | None = None) -> Efficiency:
    """Effective draws of the mean for a gradient evaluation and a second.

    Args:
        samples: from `sample`, with its info.
        thin: the run's own: `info` has the evaluations of the steps that were kept only.
        seconds: that the run took.

    Raises:
        TypeError: not a Samples.
        ValueError: an info without evaluations, a thin below 1, or seconds that are not positive.
    """
    instance("samples", samples, Run, "what ex.sample returns")
    counted = getattr(samples.info, "evaluations", None)
    if counted is None:
        raise ValueError("samples.info must have `evaluations`; this kernel's Info has none.")
    whole_number("thin", thin)
    if seconds is not None:
        real_number("seconds", seconds, above=0.0)
    evaluations = float(thin * np.sum(counted, dtype=np.float64))
    size = ess(samples, "mean")
    rate = None if seconds is None else jax.tree.map(lambda x: x / seconds, size)
    return Efficiency(size, jax.tree.map(lambda x: x / evaluations, size), rate, evaluations)


def _each(draws: PyTree, function: Callable[[np.ndarray], Any]) -> PyTree:
    """`function` of each array, in double precision; leaves that are no arrays are dropped."""

    def of(leaf: Any) -> Any:
        if not eqx.is_array_like(leaf):
            return None
        with np.errstate(invalid="ignore", divide="ignore"):  # a constant: NaN
            return np.asarray(function(np.asarray(leaf, np.float64)))

    return jax.tree.map(of, positions_of(draws))
