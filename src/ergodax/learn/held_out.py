"""How well a posterior predicts rows that were held out, and how well it is calibrated."""

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import softmax
from scipy.stats import binomtest

from ergodax.learn import families
from ergodax.learn.families import Family
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


def held_out(draws: Draws, test: Table, family: Family, *, most_draws: int = 1000) -> HeldOut:
    """Predict the held-out rows with every draw, or with `most_draws` of them, evenly spaced.

    Args:
        draws: in the table's units, leaves (chains, draws, ...).
        test: the rows.
        family: the law of the target.
        most_draws: that are used.
    """
    flat = {name: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]) for name, x in draws.items()}
    every = -(-len(flat["intercept"]) // most_draws)
    flat = {name: x[::every] for name, x in flat.items()}
    if family is families.LOGISTIC:
        return _predict_class(flat, test)
    several = family is families.MULTINOMIAL
    return (_predict_classes if several else _predict_number)(flat, test, family)


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


def _predict_classes(draws: Draws, test: Table, family: Family) -> HeldOut:
    right, density = [], []
    probability = np.zeros((len(test.target), len(test.classes)))
    for slopes, intercept in zip(draws["coefficient"], draws["intercept"], strict=True):
        eta = test.features @ slopes.T + intercept
        right.append((eta.argmax(axis=1) == test.target).mean())
        density.append(family.log_density(test.target, eta, {}).mean())
        probability += softmax(eta, axis=1) / len(draws["intercept"])
    happened = test.target[:, None] == np.arange(len(test.classes))
    scores = {
        "rows": len(test.target),
        **_mean_and_sd("accuracy", right),
        **_mean_and_sd("log_predictive_density", density),
        "averaged_accuracy": float((probability.argmax(axis=1) == test.target).mean()),
        "averaged_log_predictive_density": float(np.log(probability[happened]).mean()),
    }
    # Of each class of each row: every forecast counts.
    return HeldOut(scores, reliability(probability.ravel(), happened.ravel().astype(float)))


def _predict_number(draws: Draws, test: Table, family: Family) -> HeldOut:
    density, mean, y = [], np.zeros(len(test.target)), test.target
    of_truth, below = np.full(len(mean), -np.inf), np.zeros(len(mean))
    # A count is at a random place between the probabilities of less and of no more than it, so
    # that of a right model all levels are as likely.
    place = np.random.default_rng(0).random(len(mean))
    for k, intercept in enumerate(draws["intercept"]):
        line = test.features @ draws["coefficient"][k] + intercept
        shapes = {name: np.asarray(draws[name][k]) for name in family.shapes}
        law = family.law(line, shapes)
        log_density = family.log_density(y, line, shapes)
        density.append(log_density.mean())
        of_truth = np.logaddexp(of_truth, log_density)
        mean += (np.exp(line) if family.link else line) / len(draws["intercept"])
        at = law.cdf(y)
        if family.link:
            at = at - place * np.exp(log_density)
        below += at / len(draws["intercept"])
    scores = {
        "rows": len(mean),
        "root_mean_squared_error": float(np.sqrt(np.mean((y - mean) ** 2))),
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
