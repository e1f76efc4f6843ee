"""A regression's posterior by `ex.infer`, in the table's units; held-out rows; a reference."""

import dataclasses
import time
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

import ergodax as ex
from ergodax import tune
from ergodax.driver import Samples
from ergodax.learn import evaluate
from ergodax.learn.evaluate import Comparison, HeldOut
from ergodax.learn.regression import Model
from ergodax.learn.tables import Table
from ergodax.tune import Inference
from ergodax.tune.decisions import is_accurate

MARGIN = 0.9  # of the accuracy is asked of w: the intercept at 0 is a sum of several of them
STEP, LEAPFROGS = 0.3, 6  # of the reference, where the posterior has scale 1
DRAWS, BURN_IN = 2000, 100  # of each of its chains


@dataclasses.dataclass(frozen=True)
class Reference:
    """The same posterior by HMC with full gradients and a Metropolis test, which has no bias."""

    samples: Samples  # draws in the table's units
    summary: Any  # of them, with the components' names
    held_out: HeldOut | None  # how well they predict, if rows were held out
    comparison: Comparison  # of the answer with them
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
    model: Model,
    test: Table | None = None,
    *,
    seed: int = 0,
    accuracy: float = 0.05,
    num_chains: int = 4,
    max_seconds: float = 600.0,
    progress: bool = True,
    reference: bool = False,
    checkpoint: ex.Checkpoint | None = None,
) -> Fit:
    """Infer, tell it in the table's units, predict the rows held out, compare with HMC.

    Args:
        model: of `regression`.
        test: rows held out.
        seed: of everything random.
        accuracy: the error that is small enough, in posterior sd.
        num_chains: independent chains, of the reference too.
        max_seconds: for `infer`; see there.
        progress: show bars.
        reference: sample it by HMC with full gradients too.
        checkpoint: where `infer` is kept on disk.

    Raises:
        ValueError: an option out of range.
        CheckpointError: from `infer`, as are StorageError and Interrupted.
    """
    if not accuracy > 0:
        raise ValueError(f"accuracy must be positive, not {accuracy!r}. Try 0.05.")
    key_infer, key_reference = jax.random.split(jax.random.key(seed))
    found = ex.infer(
        model.posterior,
        model.init,
        key=key_infer,
        accuracy=MARGIN * accuracy,
        num_chains=num_chains,
        max_seconds=max_seconds,
        progress=progress,
        checkpoint=checkpoint,
    )
    result = in_units(found, model, accuracy)
    scores = None if test is None else evaluate.held_out(result.samples.position, test)
    checked = None
    if reference:
        coordinates = found.tuned.coordinates
        begin = time.perf_counter()
        samples = run_reference(model, coordinates, key_reference, num_chains, progress)
        seconds = time.perf_counter() - begin
        summary = samples.summary().set_axis(model.names)
        other = None if test is None else evaluate.held_out(samples.position, test)
        comparison = evaluate.compare(result.table, summary)
        passes = LEAPFROGS * (DRAWS + BURN_IN)
        checked = Reference(samples, summary, other, comparison, seconds, passes)
    return Fit(model, result, scores, checked)


def in_units(found: Inference, model: Model, accuracy: float) -> Inference:
    """An answer about standardised columns as one about the table."""
    samples = Samples(model.units(found.samples.position), found.samples.info, None)
    bias = None if found.tuned.bias is None else found.tuned.bias.of(model.units)
    table = tune.error_table(samples, bias).set_axis(model.names)
    converged = is_accurate(table, accuracy) and not found.account.faults
    return dataclasses.replace(
        found, samples=samples, table=table, accuracy=accuracy, converged=converged
    )


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
