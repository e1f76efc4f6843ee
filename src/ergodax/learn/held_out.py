"""How well a posterior predicts rows that were held out, and how well it is calibrated."""

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import binomtest, norm

from ergodax.learn.regression import Draws
from ergodax.learn.tables import Table

LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9)  # of a predictive distribution


@dataclasses.dataclass(frozen=True)
class HeldOut:
    """How well the posterior predicts rows that were held out."""

    # by name. `log_predictive_density` and `accuracy` are means over the rows, averaged over
    # draws, and their posterior sd; `averaged_...` is of the predictive distribution, which
    # averages over draws first
    scores: dict[str, int | float]
    # a DataFrame: a row for each bin of probabilities, or level of the predictive distribution,
    # with the columns predicted, observed, count, and low and high of the 95 % Wilson interval of
    # the observed frequency
    calibration: pd.DataFrame


def held_out(draws: Draws, test: Table, *, most_draws: int = 1000) -> HeldOut:
    """Predict the held-out rows with every draw, or with `most_draws` of them, evenly spaced."""
    flat = {name: x.reshape(-1, *x.shape[2:]) for name, x in draws.items()}
    every = -(-len(flat["intercept"]) // most_draws)
    flat = {name: x[::every] for name, x in flat.items()}
    predict = _predict_number if "residual_sd" in draws else _predict_class
    return predict(flat, test)


def _predict_class(draws: Draws, test: Table) -> HeldOut:
    happened = test.target > 0.5
    sign = np.where(happened, 1.0, -1.0)
    right, density, of_truth = [], [], np.zeros(len(sign))
    for slopes, intercept in zip(draws["coefficient"], draws["intercept"], strict=True):
        margin = sign * (test.features @ slopes + intercept)
        # Of the logistic function and its logarithm, both without overflow, by one exponential.
        tail = np.exp(-np.abs(margin))
        right.append((margin > 0).mean())
        density.append((np.minimum(margin, 0.0) - np.log(1.0 + tail)).mean())
        of_truth += np.where(margin > 0, 1.0, tail) / (1.0 + tail)
    of_truth /= len(right)
    probability = np.where(happened, of_truth, 1.0 - of_truth)
    scores = {
        "rows": len(sign),
        **_mean_and_sd("accuracy", right),
        **_mean_and_sd("log_predictive_density", density),
        "averaged_accuracy": float((of_truth > 0.5).mean()),
        "averaged_log_predictive_density": float(np.log(of_truth).mean()),
    }
    return HeldOut(scores, reliability(probability, test.target))


def _predict_number(draws: Draws, test: Table) -> HeldOut:
    density, mean = [], np.zeros(len(test.target))
    of_truth, below = np.full(len(mean), -np.inf), np.zeros(len(mean))
    for slopes, intercept, sd in zip(*draws.values(), strict=True):
        line = test.features @ slopes + intercept
        log_density = norm.logpdf(test.target, line, sd)
        density.append(log_density.mean())
        of_truth = np.logaddexp(of_truth, log_density)
        mean += line / len(draws["intercept"])
        below += norm.cdf(test.target, line, sd) / len(draws["intercept"])
    scores = {
        "rows": len(mean),
        "root_mean_squared_error": float(np.sqrt(np.mean((test.target - mean) ** 2))),
        **_mean_and_sd("log_predictive_density", density),
        "averaged_log_predictive_density": float(of_truth.mean() - np.log(len(density))),
    }
    rows = [_observed(level, below <= level) for level in LEVELS]
    return HeldOut(scores, pd.DataFrame(rows))


def reliability(probabilities: np.ndarray, target: np.ndarray, bins: int = 5) -> pd.DataFrame:
    """Predicted probability against observed frequency in bins of equal width."""
    place = np.clip((probabilities * bins).astype(int), 0, bins - 1)
    parts = [place == k for k in np.unique(place)]
    return pd.DataFrame(
        [_observed(float(probabilities[part].mean()), target[part] > 0.5) for part in parts]
    )


def _observed(predicted: float, happened: np.ndarray) -> dict[str, int | float]:
    count, hits = len(happened), int(happened.sum())
    interval = binomtest(hits, count).proportion_ci(method="wilson")
    return {
        "predicted": predicted, "observed": hits / count, "count": count,
        "low": interval.low, "high": interval.high,
    }  # fmt: skip


def _mean_and_sd(name: str, values: list[Any]) -> dict[str, float]:
    return {name: float(np.mean(values)), f"{name}_sd": float(np.std(values, ddof=1))}
