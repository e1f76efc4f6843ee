"""Averages weighted by the step sizes, which decreasing steps require."""

from typing import Any

import numpy as np

from ergodax.driver.draws import columns
from ergodax.driver.samples import Samples


def weighted(samples: Samples, weights: Any = None) -> Any:
    """Weighted mean, sd, mcse, ess and r_hat for each component.

    With decreasing steps h_t a draw stands for the time h_t, and the averages that converge are
        mean = sum h_t x_t / sum h_t
    over all chains. With W = sum h_t, the other columns are
        sd     the square root of (sum h_t (x_t - mean)^2 / W) / (1 - sum h_t^2 / W^2)
        mcse   ArviZ's standard error of the mean of a series of successive sums of
               h_t (x_t - mean) over spans of equal weight, as many as there are times the
               largest weight in W; it allows for the correlation of the spans. A span is a unit
               of time, in which the chain is as correlated late in the run as early.
        ess    (sd / mcse)^2
        r_hat  sqrt(1 - sum h_t^2 / W^2 + B / V) of the halves by weight of each chain: B the
               variance of their means, V the mean of their variances
    With equal weights, mean, sd and mcse are those of `Samples.summary`, and ess and r_hat the
    ones of the mean, without ranks.

    Args:
        samples: of `sample`. Draws of an exploring stage are not left out: see
            `Samples.sampling_stage`.
        weights: one for each draw, shape (draws,) or (chains, draws), not negative; by default
            info.step_size.

    Returns:
        A pandas DataFrame with the rows and columns of `Samples.summary`.

    Raises:
        TypeError: not a Samples, or one without info.step_size and no weights.
        ValueError: weights of another shape, negative, not finite or zero in a whole chain, or
            fewer than 4 draws a chain.

    Reference:
        Welling and Teh, Bayesian learning via stochastic gradient Langevin dynamics, 2011;
        Teh, Thiery and Vollmer, Consistency and fluctuations for stochastic gradient Langevin
        dynamics, 2016.
    """
    import pandas as pd

    if not isinstance(samples, Samples):
        raise TypeError(f"samples must be what ex.sample returns, not {type(samples).__name__}.")
    draws = columns(samples, "samples")
    if draws.values.shape[1] < 4:
        raise ValueError(f"a summary needs 4 draws a chain, not {draws.values.shape[1]}.")
    w = _checked(weights, samples, draws.values.shape[:2])
    with np.errstate(invalid="ignore", divide="ignore"):  # a constant has no ess and no R-hat
        mean, variance = _moments(draws.values, w)
        sd, mcse = np.sqrt(variance), _mcse(draws.values - mean, w)
        table = np.stack([mean, sd, mcse, (sd / mcse) ** 2, _split_r_hat(draws.values, w)], axis=1)
    names = pd.Index(["mean", "sd", "mcse", "ess", "r_hat"])
    return pd.DataFrame(table, index=pd.Index(draws.names), columns=names)


def _checked(weights: Any, samples: Samples, shape: tuple[int, ...]) -> np.ndarray:
    """The weights in float64, shape (chains, draws)."""
    if weights is None:
        weights = getattr(samples.info, "step_size", None)
        if weights is None:
            raise TypeError("these draws have no info.step_size; pass weights=, one for each draw.")
    w = np.asarray(weights, np.float64)
    if w.shape not in (shape, shape[1:]):
        raise ValueError(
            f"weights must have the shape (chains, draws) = {shape}, or (draws,), not {w.shape}."
        )
    w = np.broadcast_to(w, shape)
    if not np.isfinite(w).all() or (w < 0.0).any() or (w.sum(axis=1) == 0.0).any():
        raise ValueError("weights must be finite and not negative, and not all zero in a chain.")
    return w


def _moments(x: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance, shapes (d,), of values (chains, draws, d)."""
    share = w / w.sum()
    mean = np.einsum("ct,ctd->d", share, x)
    second = np.einsum("ct,ctd->d", share, (x - mean) ** 2)
    return mean, second / (1.0 - np.sum(share**2))


def _mcse(centred: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The standard error of the weighted mean."""
    from arviz_stats.base.array import array_stats

    spans = int(np.min(w.sum(axis=1) / w.max(axis=1)) * (1.0 + 1e-9))  # each has a draw
    sums = np.zeros((len(w), spans, centred.shape[-1]))
    for chain, (values, own) in enumerate(zip(centred, w, strict=True)):
        np.add.at(sums[chain], _parts(own, spans), own[:, None] * values)
    axes: dict[str, Any] = {"chain_axis": 0, "draw_axis": 1}
    error = array_stats.mcse(sums * (spans * len(w) / w.sum()), method="mean", **axes)
    return np.asarray(error)


def _split_r_hat(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    halves = []
    for values, own in zip(x, w, strict=True):
        late = _parts(own, 2) == 1
        halves += [(values[half], own[half]) for half in (~late, late)]
    moments = [_moments(values[None], own[None]) for values, own in halves]
    means, variances = (np.stack(each) for each in zip(*moments, strict=True))
    lost = np.mean([np.sum(own**2) / np.sum(own) ** 2 for _, own in halves])
    return np.sqrt(1.0 - lost + means.var(axis=0, ddof=1) / variances.mean(axis=0))


def _parts(w: np.ndarray, number: int) -> np.ndarray:
    """Which of `number` successive parts of equal weight each draw is in."""
    middle = np.cumsum(w) - 0.5 * w
    return np.minimum((middle / w.sum() * number).astype(int), number - 1)
