"""Other samplers beside an answer: HMC, long enough to be a reference, and NUTS, for as long."""

import dataclasses
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import PRNGKeyArray

import ergodax as ex
from ergodax import tune
from ergodax.driver import Samples
from ergodax.learn.held_out import HeldOut, held_out
from ergodax.learn.regression import Model
from ergodax.learn.tables import Table
from ergodax.tune.budget import Deadline
from ergodax.tune.nuts import doublings_within

STEP, LEAPFROGS = 0.3, 6  # of the reference, where the posterior has scale 1
DRAWS, BURN_IN = 2000, 100  # of each of its chains
MOST = 10_000  # draws of each chain of NUTS


@dataclasses.dataclass(frozen=True)
class Reference:
    """The same posterior by HMC with full gradients and a Metropolis test, which has no bias."""

    samples: Samples  # draws in the table's units
    summary: Any  # of them, with the components' names
    held_out: HeldOut | None  # how well they predict, if rows were held out
    comparison: pd.DataFrame  # of the answer with them, see `compare`
    seconds: float  # wall time, compilation included
    passes: int  # through the data, of each chain


def run_reference(
    model: Model,
    result: tune.Inference,
    test: Table | None,
    key: PRNGKeyArray,
    num_chains: int = 4,
    progress: bool = True,
) -> Reference:
    """HMC with full gradients, in the whitened coordinates of an answer, compared with it."""
    began, coordinates = time.perf_counter(), result.tuned.coordinates
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
    samples = Samples(model.units(samples.position), samples.info, None)
    seconds, summary = time.perf_counter() - began, samples.summary().set_axis(model.names)
    scores = None if test is None else held_out(samples.position, test, model.units.family)
    comparison, passes = compare(result.table, summary), LEAPFROGS * (DRAWS + BURN_IN)
    return Reference(samples, summary, scores, comparison, seconds, passes)


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


@dataclasses.dataclass(frozen=True)
class Nuts:
    """How far the no-U-turn sampler comes in as many seconds as an answer took."""

    seconds: float  # that it had
    warm: float  # the share of its warm-up that there was time for
    draws: int  # of each chain, after the warm-up
    error: float  # the largest of a mean or an sd, in posterior sds; NaN of too few draws
    needed: float  # seconds to the accuracy of the answer, extrapolated; NaN if unknown


def run_nuts(
    model: Model, seconds: float, accuracy: float, key: PRNGKeyArray, num_chains: int = 4
) -> Nuts:
    """BlackJAX's NUTS on all rows, from standardised columns, as it is used without `infer`.

    A dense mass is adapted in windows. What is extrapolated is the warm-up by its pace so far, and
    the draws as the share of the time that they mostly take; after the warm-up the error, by the
    square root of the draws.
    """
    deadline, d = Deadline.after(seconds), len(model.init)
    key_start, key_warm, key_run = jax.random.split(key, 3)
    target, dtype = model.posterior, model.init.dtype
    warm = tune.warm_up(
        target,
        tune.Coordinates(model.init, jnp.ones(d, dtype)),
        jax.random.normal(key_start, (num_chains, d), dtype),
        key=key_warm,
        deadline=deadline,
        doublings=doublings_within(seconds, target, model.init, num_chains),
    )
    began = time.perf_counter()
    if deadline.over:
        return Nuts(seconds, warm.done, 0, np.nan, warm.whole)
    samples = ex.sample(
        warm.kernel,
        positions=warm.ends,
        num_steps=MOST,
        key=key_run,
        num_chains=num_chains,
        collect=warm.coordinates.position,
        progress=False,
        max_seconds=deadline.left(),
    )
    error = float(tune.error_table(samples)["error"].max())
    took = time.perf_counter() - began
    needed = seconds - took + took * max(1.0, (error / accuracy) ** 2)
    return Nuts(seconds, 1.0, samples.num_draws, error, needed)
