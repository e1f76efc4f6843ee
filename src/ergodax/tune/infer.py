"""Inference without hyperparameters: choose, check, run until the error is small enough."""

import contextlib
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, PyTree

from ergodax.checks import real_number, whole_number
from ergodax.driver.sample import sample
from ergodax.driver.samples import Samples
from ergodax.gradient.batches import check_resident
from ergodax.kernel import check_key
from ergodax.persist.checkpoint import Checkpoint
from ergodax.target.base import AbstractTarget
from ergodax.target.posterior import Posterior
from ergodax.tune.background import Programs, in_background
from ergodax.tune.decisions import DecisionLog, Inference, Tuned, error_table
from ergodax.tune.host import split_key
from ergodax.tune.kept import Kept
from ergodax.tune.modes import all_modes, check_start, scout, starting_coordinates
from ergodax.tune.nuts import Nuts, tune_nuts
from ergodax.tune.pilot import tune

SMALL = 2_000  # examples whose full gradient costs what a batch's step does
ROUNDS = 6  # of sampling; each may be four times as long as the one before
LARGEST_R_HAT = 1.02
MOST_DIVERGENT = 0.01  # a share of NUTS's trajectories
DRAWS = 1_000  # of the first round, all chains together
LEAST = 0.1  # of the draws so far, that a round has at least
INSTEAD = "ex.find_mode, then ex.sghmc with ex.Minibatch or ex.ControlVariate"
NUMBERS = 2**28  # that the draws may have, all chains together


def infer(
    target: AbstractTarget,
    init: PyTree,
    *,
    key: Any,
    accuracy: float = 0.05,
    num_chains: int = 4,
    max_seconds: float = 600.0,
    progress: bool = True,
    checkpoint: Checkpoint | None = None,
) -> Inference:
    """Sample a posterior with nothing to tune, until every error is below `accuracy`.

    The stages, each usable alone: `ex.find_mode`; whitened coordinates
    (`tune.round_coordinates`); a search for other modes; for data worth more than a batch, the
    cheapest gradient estimator, batch size and step (`tune.choose_estimator`), a pilot run that
    corrects coordinates and measures the bias of the step (`tune.tune`), then NOGIN in these
    coordinates; for small problems and targets without data NUTS (BlackJAX's), which has no bias.
    All rows check what the pilot drew; where they disagree, or every batch is too noisy, HMC on a
    few rows and a polynomial of the others, with a test by all rows (`tune.tune_surrogate`), or
    NUTS on all rows, if there is time for it. Sampling ends when, for the mean and the sd of every
    component of the position, the Monte Carlo standard error plus the measured bias is below
    `accuracy` posterior standard deviations and R-hat below 1.02, or when the time is up.

    An answer is called converged only if besides this the dtype resolves the posterior and less
    than 1 % of NUTS's trajectories diverged. Chains begin at all modes that were found, so that
    modes between which no chain moves show in R-hat; a mode that was not found does not.

    With a checkpoint the decisions of the tuning are kept, and the draws as they come. The same
    call with `resume=True` then goes on where it was: after a kill during the sampling it has the
    same draws and verdict, to the bit; after one during the tuning it begins again; a finished
    inference is returned as it was, or goes on if it ended for want of time and now has more.

    Args:
        target: a Posterior, or a target without data.
        init: where to begin, any tree of floating-point arrays.
        key: a key of `jax.random.key`.
        accuracy: the error that is small enough, in posterior standard deviations.
        num_chains: independent chains, at least 2.
        max_seconds: the time for the whole; what is running is not cut short.
        progress: show bars.
        checkpoint: an `ex.Checkpoint` with a folder, where the inference is kept on disk.

    Returns:
        An Inference: draws, error table, decisions with their reasons. `print` it.

    Raises:
        TypeError: not a target, or data that are a source.
        ValueError: an accuracy that is not positive, fewer than 2 chains, or a density that can't
            be evaluated or is not finite at `init`.
        DivergenceError: chains diverged however short the step.
        CheckpointError: the folder has an inference already and `resume` is False, or it is of
            another model, data, key or other arguments, or damaged; or another process is writing
            to it.
        StorageError: the disk is full or can't be written.
        Interrupted: it was asked to stop while it sampled.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> target = ex.targets.gaussian(jnp.zeros(2), jnp.eye(2))
        >>> result = ex.infer(target, jnp.zeros(2), key=jax.random.key(0), progress=False)
        >>> result.converged
        True
    """
    if not isinstance(target, AbstractTarget):
        raise TypeError(f"target must be an ex.Target or ex.Posterior, not {target!r}.")
    check_resident(target, "ex.infer", INSTEAD)
    real_number("accuracy", accuracy, above=0.0, hint="Try 0.05.")
    whole_number("num_chains", num_chains, at_least=2, hint="Chains are compared with each other.")
    real_number("max_seconds", max_seconds, at_least=0.0)
    key, began = check_key(key), time.perf_counter()
    check_start(target, init)
    with contextlib.closing(
        Kept(checkpoint, target, init, key, max_seconds, accuracy=accuracy, num_chains=num_chains)
    ) as kept:
        log, deadline = kept.log, began + max_seconds - kept.seconds
        *keys, key_run = split_key(key, 4)
        settings = accuracy, num_chains, deadline, progress
        tuned = kept.tuned
        if tuned is None:
            tuned = kept.keep(_choose_sampler(target, init, keys, log, *settings))
        # Draws, until the errors are small enough.
        return _sample_rounds(tuned, key_run, log, *settings, kept)


def _choose_sampler(
    target: AbstractTarget,
    init: PyTree,
    keys: Sequence[Array],
    log: DecisionLog,
    accuracy: float,
    num_chains: int,
    deadline: float,
    progress: bool,
) -> Tuned:
    """The mode, coordinates about it, and a sampler that is tuned there."""
    key_scale, key_modes, key_tune = keys
    # What is compiled and looked for in the background from now on.
    large = target if isinstance(target, Posterior) and target.num_data > SMALL else None
    programs = Programs(num_chains)
    if large is not None:
        programs.guess(large, init, key_tune)
    scouts = in_background(lambda: jax.block_until_ready(scout(target, init, key=key_modes)))
    # The mode, whitened coordinates there, and other modes.
    mode, coordinates = starting_coordinates(target, init, log, key_scale)
    with log.timing("modes"):
        modes = all_modes(target, coordinates, scouts.result(), num_chains, log)
    # The sampler: by pilot runs where a batch is worth it, else NUTS.
    with log.timing("tuning"):
        if large is not None:
            tuned = tune(
                large,
                coordinates,
                log,
                key=key_tune,
                mode=mode,
                modes=modes,
                accuracy=accuracy,
                num_chains=num_chains,
                max_seconds=deadline - time.perf_counter(),
                progress=progress,
                programs=programs,
            )
        else:
            size = target.num_data if isinstance(target, Posterior) else "no"
            log.decide("sampler", "NUTS", f"{size} examples: the full gradient is cheap")
            tuned = tune_nuts(target, coordinates, key_tune, num_chains, modes)
    return tuned


def _sample_rounds(
    tuned: Tuned,
    key: Array,
    log: DecisionLog,
    accuracy: float,
    num_chains: int,
    deadline: float,
    progress: bool,
    kept: Kept,
) -> Inference:
    """Draw, look at the errors, draw more."""
    parts: list[Samples] = []
    count, positions = max(DRAWS // num_chains, 500), tuned.starts
    early = -(-tuned.burn_in // tuned.thin)  # draws that are left out
    keys = iter(split_key(key, ROUNDS))
    while True:
        count, checkpoint = kept.round(len(parts), count)
        begin = time.perf_counter()
        with log.timing("sampling"):
            part = sample(
                tuned.kernel,
                positions=positions,
                num_steps=(early + count) * tuned.thin,
                key=next(keys),
                num_chains=num_chains,
                thin=tuned.thin,
                collect=tuned.coordinates.position,
                progress=progress,
                checkpoint=checkpoint,
            )
        parts.append(part.without(early))
        with log.timing("diagnostics"):
            samples = _joined(parts)
            table = error_table(samples, tuned.bias)
        done = _good(table, accuracy) and not log.faults
        biased = (table[["bias_mean", "bias_sd"]].max(axis=1) > accuracy).any()
        pace = count / (time.perf_counter() - begin)
        room = NUMBERS // (num_chains * tuned.coordinates.dimension) - samples.num_draws
        time_left = int(pace * (deadline - time.perf_counter()))
        count = min(_more(table, accuracy, samples.num_draws), room, time_left)
        # More draws do not take a bias away, and so few would not help.
        enough = done or biased or count < LEAST * samples.num_draws or len(parts) == ROUNDS
        if kept.ends(len(parts), bool(enough)):
            break
        positions, early = part.final_state.position, 0
    draws = f"{samples.num_draws} draws of each of {num_chains} chains"
    log.decide("length", draws, f"{len(parts)} rounds, thinned by {tuned.thin}")
    divergent = np.mean(~samples.info.accepted) if isinstance(tuned.kernel, Nuts) else 0.0
    if divergent > MOST_DIVERGENT:
        log.faults.append(
            f"{divergent:.1%} of the trajectories diverged, so draws are missing where the density "
            "curves most; try other parameters of the model"
        )
    return Inference(samples, table, accuracy, done and not log.faults, log, tuned)


def _good(table: Any, accuracy: float) -> bool:
    return bool((table["error"] < accuracy).all() and (table["r_hat"] < LARGEST_R_HAT).all())


def _more(table: Any, accuracy: float, drawn: int) -> int:
    """How many draws of each chain are missing: the error falls as one over their root."""
    mcse = np.maximum(table["mcse_mean"], table["mcse_sd"]).to_numpy()
    bias = np.maximum(table["bias_mean"], table["bias_sd"]).to_numpy()
    room = np.maximum(accuracy - bias, 0.25 * accuracy)
    missing = np.nan_to_num((mcse / room) ** 2, nan=np.inf) * 1.2
    factor = float(np.clip(missing.max(), 2.0, 5.0))
    return int(np.ceil((factor - 1.0) * drawn))


def _joined(parts: list[Samples]) -> Samples:
    """Rounds of the same chains as one run."""
    if len(parts) == 1:
        return parts[0]
    rows = [(p.position, p.info) for p in parts]
    position, info = jax.tree.map(lambda *x: np.concatenate(x, axis=1), *rows)
    return Samples(position, info, parts[-1].final_state)
