"""What `ergodax infer` asks of an estimator: held-out rows and a reference besides."""

import dataclasses
import time
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import PRNGKeyArray
from scipy.stats import binomtest, norm

import ergodax as ex
from ergodax import tune
from ergodax.checks import legible
from ergodax.driver import Samples
from ergodax.learn.base import NotConvergedWarning
from ergodax.learn.estimators import LinearRegressor, LogisticClassifier
from ergodax.learn.regression import Draws, Model, distinct, title
from ergodax.learn.tables import Table
from ergodax.tune import Inference

ESTIMATORS = {"linear": LinearRegressor, "logistic": LogisticClassifier}
STEP, LEAPFROGS = 0.3, 6  # of the reference, where the posterior has scale 1
DRAWS, BURN_IN = 2000, 100  # of each of its chains
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


@dataclasses.dataclass(frozen=True)
class Reference:
    """The same posterior by HMC with full gradients and a Metropolis test, which has no bias."""

    samples: Samples  # draws in the table's units
    summary: Any  # of them, with the components' names
    held_out: HeldOut | None  # how well they predict, if rows were held out
    comparison: pd.DataFrame  # of the answer with them, see `compare`
    seconds: float  # wall time, compilation included
    passes: int  # through the data, of each chain


@dataclasses.dataclass(frozen=True)
class Fit:
    """What was found."""

    model: Model  # what was sampled
    result: Inference  # draws and table in the table's units
    held_out: HeldOut | None  # how well they predict, if rows were held out
    reference: Reference | None  # if it was asked for


def fit(
    kind: str,
    train: Table,
    test: Table | None = None,
    *,
    prior_scale: float = 1.0,
    seed: int = 0,
    accuracy: float = 0.05,
    num_chains: int = 4,
    max_seconds: float = 600.0,
    progress: bool = True,
    reference: bool = False,
    checkpoint: ex.Checkpoint | None = None,
) -> Fit:
    """Fit the estimator of a kind to a table, predict the rows held out, compare with HMC.

    `kind` is "linear" or "logistic", `reference` asks for HMC with full gradients; the rest is as
    of the estimators. Raises: ValueError for an accuracy out of range, and what `fit` of an
    estimator does.
    """
    estimator = ESTIMATORS[kind](
        prior_scale=prior_scale,
        accuracy=accuracy,
        num_chains=num_chains,
        max_seconds=max_seconds,
        random_state=seed,
        checkpoint=checkpoint,
        verbose=progress,
    )
    frame = pd.DataFrame(train.features, columns=pd.Index(list(distinct(train.names))))
    with warnings.catch_warnings():  # the verdict is told in any case
        warnings.simplefilter("ignore", NotConvergedWarning)
        estimator.fit(frame, train.target)
    model, result = estimator.model_.with_classes(train.classes), estimator.inference_
    scores = None if test is None else held_out(result.samples.position, test)
    checked = None
    if reference:
        begin = time.perf_counter()
        key = jax.random.fold_in(jax.random.key(seed), 1)
        samples = run_reference(model, result.tuned.coordinates, key, num_chains, progress)
        seconds = time.perf_counter() - begin
        summary = samples.summary().set_axis(model.names)
        other = None if test is None else held_out(samples.position, test)
        comparison = compare(result.table, summary)
        passes = LEAPFROGS * (DRAWS + BURN_IN)
        checked = Reference(samples, summary, other, comparison, seconds, passes)
    return Fit(model, result, scores, checked)


def header(kind: str, train: Table, test: Table | None) -> tuple[str, str]:
    """What is regressed on what, and how much of it, before any work begins."""
    family = ESTIMATORS[kind].family
    held = f", {len(test.target):,} held out" if test else ""
    components = len(train.names) + 1 + len(family.shapes)
    what = title(family, tuple(legible(name) for name in train.classes))
    return what, f"{len(train.target):,} rows{held}, {components} components"


def run_reference(
    model: Model,
    coordinates: tune.Coordinates,
    key: PRNGKeyArray,
    num_chains: int = 4,
    progress: bool = True,
) -> Samples:
    """HMC with full gradients, in whitened coordinates."""
    key_start, key_run = jax.random.split(key)
    target = tune.in_coordinates(model.posterior, coordinates)
    shape = num_chains, coordinates.dimension
    samples = ex.sample(
        ex.hmc(ex.FullGradient(target), STEP, num_leapfrog_steps=LEAPFROGS),
        positions=1.5 * jax.random.normal(key_start, shape, jnp.float32),
        num_steps=DRAWS,
        burn_in=BURN_IN,
        key=key_run,
        num_chains=num_chains,
        collect=coordinates.position,
        progress=progress,
    )
    return Samples(model.units(samples.position), samples.info, None)


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


def compare(table: pd.DataFrame, reference: pd.DataFrame) -> pd.DataFrame:
    """The table of an Inference compared with the summary of reference draws, by component.

    In units of the reference's posterior sd: the difference of means, its Monte Carlo standard
    error (of both), and the ratio of standard deviations.
    """
    scale = reference["sd"]
    error = np.hypot(table["mcse_mean"] * table["sd"], reference["mcse"])
    return pd.DataFrame(
        {
            "difference": (table["mean"] - reference["mean"]) / scale,
            "mcse": error / scale,
            "sd_ratio": table["sd"] / scale,
        }
    )


def in_figures(comparison: pd.DataFrame) -> dict[str, float]:
    """The figures of a comparison that matter, for a text or JSON."""
    difference, error, ratio = (comparison[c].to_numpy() for c in comparison)
    return {
        "mean_difference_rms": float(np.sqrt((difference**2).mean())),
        "mean_difference_max": float(np.abs(difference).max()),
        "expected_from_monte_carlo_rms": float(np.sqrt((error**2).mean())),
        "sd_ratio_mean": float(ratio.mean()),
        "sd_ratio_min": float(ratio.min()),
        "sd_ratio_max": float(ratio.max()),
    }
