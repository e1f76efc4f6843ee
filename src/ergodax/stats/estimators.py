"""Autocorrelation, effective sample size, standard error and R-hat.

These are ArviZ's estimators to the last digits, which the tests see to. They are written here since
to import ArviZ takes as long as a whole inference on a small table.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, PyTree

from ergodax.checks import choice, instance, real_number, whole_number
from ergodax.stats.draws import Run, columns, positions_of

Draws = Float[np.ndarray, "chains draws *d"]
FEWEST = 4  # draws of a chain of which anything is told
TAILS = 0.05, 0.95
BLOM = 0.375  # the offset of ranks that are turned into normal scores
NUMBERS = 2**22  # that are transformed at a time
LAGS, PIECES = 1024, 16  # that are looked at first, where a chain is so many times as long


def _in_parts(estimator: Callable[..., Any]) -> Callable[..., Any]:
    """The estimator of a few components at a time, since transforms take many times their room."""

    @functools.wraps(estimator)
    def of(x: np.ndarray, *settings: str, **more: str) -> Any:
        chains, draws, *shape = x.shape
        flat = x.reshape(chains, draws, math.prod(shape))
        width = max(1, NUMBERS // max(1, chains * draws))
        starts = range(0, flat.shape[-1], width)
        found = [estimator(flat[..., k : k + width], *settings, **more) for k in starts]
        return np.concatenate(found or [np.empty(0)]).reshape(shape)

    return of


@_in_parts
def effective_size(x: Draws, method: str = "mean") -> Any:
    """The effective sample size of each component of an array; NaN of too few draws.

    The draws of all chains over tau = 1 + 2 (the sum of the autocorrelations), which are those of
    all chains about their common mean. By Geyer's rule the sum is cut off where that of a pair of
    neighbours is negative, and is of pairs that do not grow. Chains are split in halves.
    """
    if x.shape[1] < FEWEST:
        return np.full(x.shape[2:], np.nan)
    if method == "tail":
        low, high = (x <= np.quantile(x, p, axis=(0, 1)) for p in TAILS)
        return np.minimum(*(_size(halves(side.astype(float))) for side in (low, high)))
    split = halves(x)
    return _size(_normal_scores(split) if method == "bulk" else split)


@_in_parts
def standard_error(x: Draws, method: str = "mean") -> Any:
    """The Monte Carlo standard error of the mean, or by `method="sd"` of the sd."""
    if x.shape[1] < FEWEST:
        return np.full(x.shape[2:], np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):  # a constant: NaN
        if method == "mean":
            return x.std(axis=(0, 1), ddof=1) / np.sqrt(effective_size(x))
        squares = (x - x.mean(axis=(0, 1))) ** 2
        variance = squares.var(axis=(0, 1)) / effective_size(squares)
        return np.sqrt(variance / squares.mean(axis=(0, 1)) / 4.0)


@_in_parts
def kurtosis(x: Draws) -> Any:
    """The mean fourth power of the deviations over the square of their variance; 0 of a constant.

    That of a normal law is 3.
    """
    square = (x - x.mean(axis=(0, 1), dtype=np.float64)) ** 2
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        found = np.mean(square**2, axis=(0, 1)) / np.mean(square, axis=(0, 1)) ** 2
    return np.nan_to_num(found, posinf=0.0)


Z95 = 1.96  # standard errors, within which the truth is in 95 of 100


def widening(
    x: Draws, error: Float[np.ndarray, " *d"], method: str = "mean"
) -> Float[np.ndarray, " *d"]:
    """By how much a standard error is to grow so that 1.96 of it hold the truth in 95 of 100.

    That of the sd grows first to that of no more effective draws than the mean has: where a chain
    is slow to come to its tails, what their squares say of their own autocorrelation is too good.

    Skewed draws that miss their long tail have too small a mean and too small a standard error at
    once. To the first order in 1 / n, with skewness s and excess kurtosis k, bounds of z standard
    errors of the mean are right if these grow by

        1 + ((z^4 + 2 z^2 - 3) s^2 / 18 - (z^2 - 3) k / 12) / n + (z^2 + 1) / (4 f),

    whose last term is Student's. n is the effective sample size, f the degrees of freedom of the
    variance that it was estimated by: the draws over 2 m + 1 where autocorrelations up to lag m
    were added up. 1 is the least factor. That of the sd is that of the mean of the squared
    deviations.

    Args:
        x: the draws.
        error: by `standard_error` of the same method.
        method: "mean" or "sd".

    Reference:
        Hall, The bootstrap and Edgeworth expansion, 1992, section 2.6; Sokal, Monte Carlo methods
        in statistical mechanics, 1997, for the variance of a sum of autocorrelations.
    """
    if x.shape[1] < FEWEST:
        return np.ones(x.shape[2:])
    fewer = 1.0
    if method == "sd":
        squares = (x - x.mean(axis=(0, 1))) ** 2
        with np.errstate(invalid="ignore", divide="ignore"):  # a constant: NaN
            fewer = np.sqrt(np.fmax(effective_size(squares) / effective_size(x), 1.0))
    of_shape = np.maximum(_second_order(x, method) * error**2, 0.0)
    return fewer * (1.0 + of_shape + (Z95**2 + 1.0) / (4.0 * _degrees_of_freedom(x, method)))


@_in_parts
def _degrees_of_freedom(x: Draws, method: str) -> Any:
    """Of the variance of the mean, or of the mean of the squared deviations."""
    averaged = x if method == "mean" else (x - x.mean(axis=(0, 1))) ** 2
    _, lags = _correlation_time(halves(averaged))
    return averaged.shape[0] * averaged.shape[1] / (2.0 * lags + 1.0)


@_in_parts
def _second_order(x: Draws, method: str) -> Any:
    """The bracket above over the variance of what is averaged, for the squared standard error."""
    off = x - x.mean(axis=(0, 1))
    with np.errstate(invalid="ignore", divide="ignore"):  # a constant: NaN
        per_square = 1.0
        if method == "sd":
            squares = off * off
            variance = squares.mean(axis=(0, 1))
            # The error of the variance is 2 sd times that of the sd.
            off, per_square = squares - variance, 4.0 * variance
        sd = off.std(axis=(0, 1))
        scores = off / sd
        second = scores * scores
        skewness, fourth = (second * scores).mean(axis=(0, 1)), (second * second).mean(axis=(0, 1))
        skew, tails = (Z95**4 + 2 * Z95**2 - 3) / 18, (Z95**2 - 3) / 12
        bracket = skew * skewness**2 - tails * (fourth - 3.0)
        return bracket * per_square / sd**2


@_in_parts
def scale_reduction(x: Draws, method: str = "rank") -> Any:
    """R-hat of each component of an array; see `r_hat` for the methods."""
    if x.shape[1] < FEWEST or x.shape[0] < 2:
        return np.full(x.shape[2:], np.nan)
    match method:
        case "rank":
            return np.fmax(*(scale_reduction(x, kind) for kind in ("z_scale", "folded")))
        case "folded":
            split = halves(x)
            return _ratio(_normal_scores(abs(split - np.median(split, axis=(0, 1)))))
        case "z_scale":
            return _ratio(_normal_scores(halves(x)))
        case "split":
            return _ratio(halves(x))
        case _:
            return _ratio(x)


def halves(x: Draws) -> Float[np.ndarray, "halves half *d"]:
    """Each chain as two; the draw in the middle of an odd number is left out."""
    half = x.shape[1] // 2
    return np.concatenate([x[:, :half], x[:, -half:]])


def _normal_scores(x: Draws) -> Draws:
    """Each component's ranks among all its draws, ties averaged, as quantiles of N(0, 1)."""
    from scipy.special import ndtri

    rows = x.reshape(x.shape[0] * x.shape[1], -1).T
    scores = np.empty_like(rows, dtype=float)
    for row, score in zip(rows, scores, strict=True):
        _, where, counts = np.unique(row, return_inverse=True, return_counts=True)
        ranks = np.cumsum(counts) - 0.5 * (counts - 1)
        score[:] = ranks[where]
    scores = ndtri((scores - BLOM) / (rows.shape[1] - 2.0 * BLOM + 1.0))
    return scores.T.reshape(x.shape)


def _ratio(x: Draws) -> Any:
    """The sd of all draws, as the means of the chains differ, over that within the chains."""
    draws = x.shape[1]
    between, within = x.mean(axis=1).var(axis=0, ddof=1), x.var(axis=1, ddof=1).mean(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):  # a constant: NaN
        return np.sqrt(between / within + (draws - 1.0) / draws)


def _autocovariance(x: Draws) -> Draws:
    """Of each chain at every lag, with the divisor n, by a transform padded with zeros."""
    draws = x.shape[1]
    centred = np.fft.rfft(x - x.mean(axis=1, keepdims=True), n=2 * draws, axis=1)
    return np.fft.irfft(abs(centred) ** 2, n=2 * draws, axis=1)[:, :draws] / draws


def _size(x: Draws) -> Any:
    """The effective sample size of each component, of chains as they are."""
    chains, draws = x.shape[:2]
    tau, _ = _correlation_time(x)
    size = chains * draws / np.maximum(tau, 1.0 / np.log10(chains * draws))
    constant = x.max(axis=(0, 1)) - x.min(axis=(0, 1)) < np.finfo(float).resolution
    return np.where(constant, float(chains * draws), size)


def _first_lags(x: Draws, lags: int) -> Float[np.ndarray, "chains lags *d"]:
    """The same at the first lags alone: the sum over pieces of each with itself and what follows.

    A piece's transform stays in the processor's cache, which that of a long chain does not.
    """
    draws, piece = x.shape[1], 7 * lags
    centred = np.moveaxis(x - x.mean(axis=1, keepdims=True), 1, -1)
    number = -(-draws // piece)
    padded = np.zeros((*centred.shape[:-1], number * piece + lags), centred.dtype)
    padded[..., :draws] = centred
    windows = np.lib.stride_tricks.sliding_window_view(padded, piece + lags, axis=-1)
    windows = windows[..., ::piece, :]
    pieces = np.fft.rfft(windows[..., :piece], n=piece + lags)
    products = np.sum(pieces.conj() * np.fft.rfft(windows), axis=-2)
    sums = np.fft.irfft(products, n=piece + lags)[..., :lags]
    return np.moveaxis(sums, -1, 1) / draws


def _correlation_time(x: Draws) -> tuple[Any, Any]:
    """1 + 2 (the sum of the autocorrelations), and the last lag that is added up."""
    lags, draws = LAGS, x.shape[1]
    while PIECES * lags <= draws:
        *found, is_whole = _cut_sum(x, _first_lags(x, lags))
        if is_whole:
            return found[0], found[1]
        lags *= PIECES
    tau, last, _ = _cut_sum(x, _autocovariance(x))
    return tau, last


def _cut_sum(x: Draws, covariances: Float[np.ndarray, "chains lags *d"]) -> tuple[Any, Any, bool]:
    """What `_correlation_time` returns, and whether the lags that are known have the cut."""
    chains, draws = x.shape[:2]
    lags = covariances.mean(axis=0)
    within = lags[0] * draws / (draws - 1.0)
    total = lags[0] + (x.mean(axis=1).var(axis=0, ddof=1) if chains > 1 else 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        correlations = 1.0 - (within - lags) / total
    correlations[0] = 1.0
    last = max((len(lags) - 1) // 2, 1)  # pairs that are looked at
    pairs = correlations[: 2 * last].reshape(last, 2, *lags.shape[1:])
    sums = pairs.sum(axis=1)
    # How many pairs count: those before the first that is not positive, or of a constant NaN.
    ends = ~(sums > 0.0)
    is_whole = bool(ends.any(axis=0).all())
    ends[-1] = True
    counted = np.argmax(ends, axis=0)
    number = np.arange(last).reshape(-1, *(1,) * counted.ndim)
    kept = np.where(number < counted, np.minimum.accumulate(sums, axis=0), 0.0).sum(axis=0)
    first, both = (np.take_along_axis(y, counted[None], axis=0)[0] for y in (pairs[:, 0], sums))
    tau = -1.0 + 2.0 * kept + np.where(both < 0.0, np.maximum(first, 0.0), first)
    return tau, 2 * counted, is_whole


def autocorrelation(draws: PyTree) -> PyTree:
    """The autocorrelation of each component of each chain, at every lag.

    By FFT, with the divisor n. The variance of a later lag does not shrink, so sums over all lags
    mean nothing; see `integrated_autocorrelation_time`.

    Args:
        draws: a Samples, or a tree of arrays (chains, draws, ...).

    Returns:
        A tree like the positions: arrays (chains, lags, ...), 1 at lag 0.

    Example:
        >>> import ergodax as ex, jax
        >>> draws = jax.random.normal(jax.random.key(0), (4, 1_000))  # chains, draws
        >>> found = ex.diagnostics.autocorrelation(draws)
        >>> bool(abs(found[:, 0] - 1.0).max() < 1e-5)  # of lag 0
        True
        >>> bool(abs(found[:, 1]).max() < 0.15)  # of lag 1
        True
    """
    return _each(draws, lambda x: (covariance := _autocovariance(x)) / covariance[:, :1])


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

    Example:
        >>> import ergodax as ex, jax
        >>> draws = jax.random.normal(jax.random.key(0), (4, 1_000))  # chains, draws
        >>> bool(3_000 < ex.diagnostics.ess(draws) < 5_500)
        True

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

    Example:
        >>> import ergodax as ex, jax
        >>> draws = jax.random.normal(jax.random.key(0), (4, 1_000))  # chains, draws
        >>> bool(abs(ex.diagnostics.integrated_autocorrelation_time(draws) - 1.0) < 0.3)
        True
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

    Example:
        >>> import ergodax as ex, jax
        >>> draws = jax.random.normal(jax.random.key(0), (4, 1_000))  # chains, draws
        >>> bool(ex.diagnostics.r_hat(draws) < 1.01)
        True
        >>> bool(ex.diagnostics.r_hat(draws.at[0].add(3.0)) > 1.1)  # a chain elsewhere
        True

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

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> x = jnp.linspace(-1.0, 3.0, 100)
        >>> model = ex.Posterior(lambda m: -0.5 * m**2, lambda m, x: -0.5 * (x - m) ** 2, x)
        >>> kernel = ex.sgld(ex.Minibatch(model, 10), 1e-3)
        >>> samples = ex.sample(kernel, jnp.float32(1), 2000, key=jax.random.key(0), progress=False)
        >>> bool(0.0 < ex.diagnostics.efficiency(samples).ess < 2_000)
        True
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
