"""The summary table of a run: mean, sd, mcse, ess, r_hat of each component, plain or weighted."""

from typing import Any

import numpy as np

from ergodax.checks import numbers
from ergodax.stats.draws import Run, columns, component_names, flat_components
from ergodax.stats.estimators import effective_size, halves, scale_reduction, standard_error

COLUMNS = ["mean", "sd", "mcse", "ess", "r_hat"]


def summarise(draws: dict[str, np.ndarray]) -> Any:
    """Summarise draws by name.

    Args:
        draws: arrays of shape (chains, draws, ...).

    Returns:
        A pandas DataFrame with a row for each component, such as "w[3]", and the columns
        mean, sd, mcse (of the mean), ess (bulk) and r_hat (rank-normalised, split; of a single
        chain its halves are compared).

    Raises:
        ValueError: fewer than 4 draws a chain.
    """
    import pandas as pd

    rows = {}
    for name, array in draws.items():
        if array.shape[1] < 4:
            raise ValueError(f"a summary needs at least 4 draws a chain, not {array.shape[1]}.")
        flat = flat_components(array)
        statistics = [
            flat.mean(axis=(0, 1)),
            flat.std(axis=(0, 1), ddof=1),
            standard_error(flat),
            effective_size(flat, "bulk"),
            # Of a single chain of 8 draws or more the halves are compared.
            scale_reduction(flat if flat.shape[0] > 1 or flat.shape[1] < 8 else halves(flat)),
        ]
        rows |= dict(zip(component_names(name, array), np.stack(statistics, axis=1), strict=True))
    return pd.DataFrame.from_dict(rows, orient="index", columns=pd.Index(COLUMNS))


def weighted(samples: Run, weights: Any = None) -> Any:
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
            info.weight, or where the sampler gives none info.step_size.

    Returns:
        A pandas DataFrame with the rows and columns of `Samples.summary`.

    Raises:
        TypeError: not a Samples, or one without info.step_size and no weights.
        ValueError: weights of another shape, negative, not finite or zero in a whole chain, or
            fewer than 4 draws a chain.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> x = jnp.linspace(-1.0, 3.0, 100)
        >>> model = ex.Posterior(lambda m: -0.5 * m**2, lambda m, x: -0.5 * (x - m) ** 2, x)
        >>> h = ex.schedule.Polynomial(2e-3, offset=100.0)  # falls to 0
        >>> kernel = ex.sgld(ex.Minibatch(model, 10), h)
        >>> samples = ex.sample(kernel, jnp.float32(1), 2000, key=jax.random.key(0), progress=False)
        >>> table = ex.postprocess.weighted(samples)  # each draw by its step
        >>> bool(abs(table["mean"].iloc[0] - 100 / 101) < 0.1)
        True

    Reference:
        Welling and Teh, Bayesian learning via stochastic gradient Langevin dynamics, 2011;
        Teh, Thiery and Vollmer, Consistency and fluctuations for stochastic gradient Langevin
        dynamics, 2016.
    """
    import pandas as pd

    if not isinstance(samples, Run):
        raise TypeError(f"samples must be what ex.sample returns, not {type(samples).__name__}.")
    draws = columns(samples.position, "samples.position")
    if draws.values.shape[1] < 4:
        raise ValueError(f"a summary needs 4 draws a chain, not {draws.values.shape[1]}.")
    w = _checked(weights, samples, draws.values.shape[:2])
    with np.errstate(invalid="ignore", divide="ignore"):  # a constant has no ess and no R-hat
        mean, variance = _moments(draws.values, w)
        sd, mcse = np.sqrt(variance), _mcse(draws.values - mean, w)
        table = np.stack([mean, sd, mcse, (sd / mcse) ** 2, _split_r_hat(draws.values, w)], axis=1)
    return pd.DataFrame(table, index=pd.Index(draws.names), columns=pd.Index(COLUMNS))


def _checked(weights: Any, samples: Run, shape: tuple[int, ...]) -> np.ndarray:
    """The weights in float64, shape (chains, draws)."""
    if weights is None:
        weights = getattr(samples.info, "weight", None)
        weights = getattr(samples.info, "step_size", None) if weights is None else weights
        if weights is None:
            raise TypeError("these draws have no info.step_size; pass weights=, one for each draw.")
    w = np.asarray(numbers("weights", weights), np.float64)
    if w.shape not in (shape, shape[1:]):
        raise ValueError(
            f"weights must have the shape (chains, draws) = {shape}, or (draws,), not {w.shape}."
        )
    w = np.broadcast_to(w, shape)
    if not np.isfinite(w).all() or (w < 0.0).any() or (w.sum(axis=1) == 0.0).any():
        raise ValueError("weights must be finite and not negative, and not all zero in a chain.")
    return w


def equal_weights(weights: np.ndarray) -> np.ndarray:
    """Which draws of each chain, repeated as their weights say, all count alike.

    Systematic resampling, the same number of draws as there are: a draw is taken as often as its
    share of the chain's weight is of 1 / draws, up to less than one time.
    """
    count = weights.shape[1]
    shares = weights.astype(np.float64) / weights.sum(axis=1, keepdims=True)
    ends, places = np.cumsum(shares, axis=1), (np.arange(count) + 0.5) / count
    return np.stack([np.minimum(np.searchsorted(end, places), count - 1) for end in ends])


def _moments(x: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance, shapes (d,), of values (chains, draws, d)."""
    share = w / w.sum()
    mean = np.einsum("ct,ctd->d", share, x)
    second = np.einsum("ct,ctd->d", share, (x - mean) ** 2)
    return mean, second / (1.0 - np.sum(share**2))


def _mcse(centred: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The standard error of the weighted mean."""
    spans = int(np.min(w.sum(axis=1) / w.max(axis=1)) * (1.0 + 1e-9))  # each has a draw
    sums = np.zeros((len(w), spans, centred.shape[-1]))
    for chain, (values, own) in enumerate(zip(centred, w, strict=True)):
        np.add.at(sums[chain], _parts(own, spans), own[:, None] * values)
    return np.asarray(standard_error(sums * (spans * len(w) / w.sum())))


def _split_r_hat(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """R-hat of the halves by weight of each chain."""
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
