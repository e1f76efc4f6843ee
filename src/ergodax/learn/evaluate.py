"""How good a fit is: on held-out rows, and beside the reference."""

import dataclasses

import numpy as np
import pandas as pd
from scipy.special import expit, log_expit
from scipy.stats import binomtest

from ergodax.apps.regression import Fit, draws_of
from ergodax.driver.summary import summarise
from ergodax.learn.tables import Table


@dataclasses.dataclass(frozen=True)
class HeldOut:
    """Performance on held-out rows.

    Attributes:
        accuracy: fraction right, averaged over draws, and its posterior standard deviation.
        log_density: mean log predictive density of a row under one draw, likewise.
        averaged_accuracy: of the predictive probabilities averaged over draws.
        averaged_log_density: likewise; what the posterior itself predicts.
        probabilities: of class 1 for each row, averaged over draws.
    """

    accuracy: tuple[float, float]
    log_density: tuple[float, float]
    averaged_accuracy: float
    averaged_log_density: float
    probabilities: np.ndarray

    def as_dict(self) -> dict[str, float]:
        """The numbers, for a table or JSON."""
        return {
            "accuracy": self.accuracy[0],
            "accuracy_sd": self.accuracy[1],
            "log_predictive_density": self.log_density[0],
            "log_predictive_density_sd": self.log_density[1],
            "averaged_accuracy": self.averaged_accuracy,
            "averaged_log_predictive_density": self.averaged_log_density,
        }


def held_out(fit: Fit, test: Table, *, most_draws: int = 2000) -> HeldOut:
    """Predict the held-out rows with every draw (at most `most_draws`, evenly spaced)."""
    draws = draws_of(fit)
    flat = draws.reshape(-1, draws.shape[-1])
    flat = flat[:: max(1, len(flat) // most_draws)]
    logits = flat @ test.features.T
    signed = np.where(test.target > 0.5, logits, -logits)
    right = (signed > 0).mean(axis=1)
    density = log_expit(signed).mean(axis=1)
    probability = expit(logits).mean(axis=0)
    of_truth = np.where(test.target > 0.5, probability, 1.0 - probability)
    return HeldOut(
        (float(right.mean()), float(right.std(ddof=1))),
        (float(density.mean()), float(density.std(ddof=1))),
        float((of_truth > 0.5).mean()),
        float(np.log(of_truth).mean()),
        probability,
    )


def reliability(probabilities: np.ndarray, target: np.ndarray, bins: int = 5) -> pd.DataFrame:
    """Predicted probability against observed frequency in bins of equal width.

    Returns:
        A row for each bin that is not empty: predicted, observed, count, and the limits low and
        high of the 95% Wilson interval of the observed frequency.
    """
    place = np.clip((probabilities * bins).astype(int), 0, bins - 1)
    rows = []
    for k in np.unique(place):
        inside = place == k
        count, hits = int(inside.sum()), int(target[inside].sum())
        interval = binomtest(hits, count).proportion_ci(method="wilson")
        predicted = float(probabilities[inside].mean())
        rows.append((predicted, hits / count, count, interval.low, interval.high))
    return pd.DataFrame(rows, columns=pd.Index(["predicted", "observed", "count", "low", "high"]))


def summary_of(fit: Fit, names: list[str]) -> pd.DataFrame:
    """The summary table with the columns' names."""
    table = summarise({"w": draws_of(fit)})
    table.index = pd.Index(names)
    return table


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A fit beside a reference, in units of the reference's posterior standard deviation.

    Attributes:
        table: a row for each coefficient: difference of means, its Monte Carlo standard error
            (both chains'), and the ratio of standard deviations.
    """

    table: pd.DataFrame

    def as_dict(self) -> dict[str, float]:
        """The figures that matter, for a table or JSON."""
        columns = ("difference", "mcse", "sd_ratio")
        difference, error, ratio = (self.table[c].to_numpy() for c in columns)
        return {
            "mean_difference_rms": float(np.sqrt((difference**2).mean())),
            "mean_difference_max": float(np.abs(difference).max()),
            "expected_from_monte_carlo_rms": float(np.sqrt((error**2).mean())),
            "sd_ratio_mean": float(ratio.mean()),
            "sd_ratio_min": float(ratio.min()),
            "sd_ratio_max": float(ratio.max()),
        }


def compare(summary: pd.DataFrame, reference: pd.DataFrame) -> Comparison:
    """Compare two summaries with the same rows."""
    scale = reference["sd"]
    table = pd.DataFrame(
        {
            "difference": (summary["mean"] - reference["mean"]) / scale,
            "mcse": np.sqrt(summary["mcse"] ** 2 + reference["mcse"] ** 2) / scale,
            "sd_ratio": summary["sd"] / scale,
        }
    )
    return Comparison(table)
