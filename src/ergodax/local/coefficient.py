"""The local learning coefficient of trained weights, with an error bar."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.checks import callable_function, real_number, whole_number
from ergodax.data.arrays import num_rows
from ergodax.kernel import check_key
from ergodax.local import in_place
from ergodax.local.chains import LARGE
from ergodax.local.law import LocalLaw, local_law
from ergodax.local.result import LearningCoefficient
from ergodax.local.rounds import Sampled, sampled, slope, unmoved
from ergodax.target.mode import TOLERANCE, enough, find_mode
from ergodax.tune.budget import Deadline
from ergodax.tune.descent import seconds_of_gradient

CHAINS = 4
SHARE_OF_SEARCH = 0.05  # of the time, for the minimum near w*
MOST_ITERATIONS = 500
COST_OF_ITERATION = 2.0  # gradients
FEWEST_DATA = 3  # rows, of which log n is above 1


def learning_coefficient(
    loss_of_one_example: Callable[[PyTree, PyTree], Any],
    weights: PyTree,
    data: PyTree,
    *,
    key: Any,
    temperature: float | str = "log n",
    localization: float = 1.0,
    accuracy: float = 0.05,
    trainable: Any = None,
    by_n: Sequence[int] = (),
    max_seconds: float = 600.0,
    batch_size: int | None = None,
    num_chains: int | None = None,
) -> LearningCoefficient:
    """Estimate the local learning coefficient at trained weights; there is nothing to tune.

    With L_n(w) = (1/n) sum_i loss(w, example_i), t = n / temperature, and E the mean over the law
        p(w) proportional to exp(-t L_n(w) - gamma |w - w*|^2 / 2)
    the estimand is
        lambda-hat = t (E[L_n(w)] - L_n(w*)).
    For a regular model with Hessian eigenvalues k_i at its minimum it is
    (1/2) sum_i t k_i / (t k_i + gamma), about d / 2; the flatter the minimum, the smaller it is. As
    n grows it tends to the learning coefficient lambda of the singular model, by terms of order
    1 / log t. How it changes with t, and what is due to weights that are not the minimum of L_n,
    are reported apart.

    Half of the chains begin at w*, half at a higher temperature. Each step is a trajectory of
    Hamiltonian Monte Carlo on all rows with a Metropolis test, so that neither step nor batch
    biases the answer. Batches would not be cheaper: their noise inflates the variance in the stiff
    directions, and to keep that below a share e of lambda takes about t / (2 e) rows in a
    relaxation time of these, a pass or more. The step follows the acceptance, everywhere and not on
    average alone. The length grows while that moves the weights further a gradient, at most to a
    quarter of the period that the localization leaves the flattest direction. The latter half of
    the draws counts.

    Args:
        loss_of_one_example: (weights, example) -> scalar; `example` has the structure of `data`
            without the leading axis. A negative log-likelihood, if lambda shall be Watanabe's.
        weights: w*, any tree of arrays: a dict, Flax's parameters, an Equinox module.
        data: arrays, or any tree of them, with one leading axis of length n in common.
        key: a key of `jax.random.key`.
        temperature: 1 / beta, a positive number, or "log n".
        localization: gamma > 0, in units of the weights^-2. Part of the estimand; the result says
            how far from w* the draws lie.
        accuracy: the wanted error, relative to lambda-hat.
        trainable: which leaves move: a name such as "layers.0" or a pattern such as "*bias", a list
            of them, a function of a leaf's name, or a tree of the weights' structure with True and
            False, or an array of them, at each leaf. By default all.
        by_n: numbers of rows m, at whose t = m / log m it is estimated too, on all rows.
        max_seconds: after which it returns what it has, compilation included.
        batch_size: rows that are worked on at a time, which bounds the memory and does not change
            the result; by default 1,024.
        num_chains: by default 4, and 1 from 5,000,000 parameters on.

    Returns:
        A LearningCoefficient; look at its verdict, since nothing is raised where it is not good.

    Raises:
        TypeError: a loss that is not a function or returns no scalar, weights without
            floating-point arrays or with some of half precision, an argument of the wrong type.
        ValueError: a number out of range, data that do not fit, names that choose nothing.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> y = jax.random.normal(jax.random.key(0), (1000, 2))
        >>> loss = lambda w, y: 0.5 * jnp.sum((y - w["mean"]) ** 2)     # regular: lambda is 2 / 2
        >>> found = ex.local.learning_coefficient(
        ...     loss, {"mean": y.mean(axis=0)}, y, key=jax.random.key(1)
        ... )
        >>> found.ok and abs(found.estimate - 1.0) < 0.1
        True

    Reference:
        Lau, Furman, Wang, Murfet and Wei, The local learning coefficient: a singularity-aware
        complexity measure, 2023; Watanabe, A widely applicable Bayesian information criterion,
        2013.
    """
    began = time.perf_counter()
    law = checked_law(
        loss_of_one_example, weights, data, temperature, localization, trainable, batch_size
    )
    key = check_key(key)
    accuracy = real_number("accuracy", accuracy, above=0.0)
    max_seconds = real_number("max_seconds", max_seconds, above=0.0)
    chains = chains_of(law, num_chains)
    sizes = [whole_number("by_n", m, at_least=FEWEST_DATA) for m in by_n]
    deadline = Deadline.after(max_seconds)
    others = {}
    for number, m in enumerate(sizes):
        of_m = law.at_temperature(law.num_data * np.log(m) / m)
        share = deadline.share(1.0 / (len(sizes) + 1.0 - number))
        of_key = jax.random.fold_in(key, number)
        others[m] = estimated(of_m, of_key, chains, accuracy, share)[0]
    return estimated(law, key, chains, accuracy, deadline, began, others)[0]


def checked_law(
    loss: Any,
    weights: PyTree,
    data: PyTree,
    temperature: Any,
    localization: Any,
    trainable: Any,
    batch_size: Any,
    name: str = "data",
) -> LocalLaw:
    """The law of arguments that are right; `name` is what the user calls the data.

    Raises:
        TypeError: as `learning_coefficient`.
        ValueError: likewise.
    """
    callable_function("loss_of_one_example", loss)
    if temperature == "log n":
        rows = num_rows(data) if jax.tree.leaves(data) else 0
        if rows < FEWEST_DATA:
            raise ValueError(f"temperature='log n' needs {FEWEST_DATA} rows of data, not {rows}.")
        temperature = np.log(rows)
    hint = "Try temperature='log n'."
    if isinstance(temperature, str):
        raise ValueError(f"temperature must be 'log n' or a number, not {temperature!r}.")
    temperature = real_number("temperature", temperature, above=0.0, hint=hint)
    localization = real_number(
        "localization", localization, above=0.0, hint="Without it the law has no finite mass."
    )
    if batch_size is not None:
        batch_size = whole_number("batch_size", batch_size)
    return local_law(loss, weights, data, temperature, localization, trainable, batch_size, name)


def chains_of(law: LocalLaw, num_chains: Any) -> int:
    """How many chains run."""
    if num_chains is None:
        return CHAINS if tree.size(law.centre) < LARGE else 1
    return whole_number("num_chains", num_chains)


def estimated(
    law: LocalLaw,
    key: PRNGKeyArray,
    num_chains: int,
    accuracy: float,
    deadline: Deadline,
    began: float | None = None,
    by_n: dict[int, LearningCoefficient] | None = None,
) -> tuple[LearningCoefficient, Sampled]:
    """The coefficient of a law, and its chains."""
    began = time.perf_counter() if began is None else began
    initial = float(eqx.filter_jit(initial_loss)(law))
    shortfall, searched = _shortfall(law, initial, accuracy, deadline)
    if np.isnan(shortfall):
        run = unmoved(law, key, num_chains, deadline)
    else:
        run = sampled(law, key, num_chains, accuracy, deadline)
    found, counted, chains = run.told, run.counted, run.chains
    known = counted.energy.shape[1] >= 4
    rise, rise_error = slope(counted.energy) if known else (np.nan, np.nan)
    scale = law.num_data / law.temperature
    took = time.perf_counter() - began
    how = (
        f"Chains: {num_chains} of HMC, trajectories of {chains.length} steps of {chains.step:.2g}, "
        f"acceptance {run.acceptance:.2f}, {chains.evaluations:.2g} gradients of examples, "
        f"{took:.1f} s."
    )
    coefficient = LearningCoefficient(
        estimate=found.mean,
        mc_error=found.mcse,
        error=found.error,
        accuracy=accuracy,
        converged=found.converged(accuracy),
        r_hat=found.r_hat,
        r_hat_distance=found.r_hat_distance,
        ess=found.ess,
        slope=rise,
        slope_error=rise_error,
        shortfall=shortfall,
        distance=float(np.sqrt(counted.distance.mean())) if known else np.nan,
        norm=float(tree.norm(law.centre)),
        temperature=law.temperature,
        localization=float(law.localization),
        num_data=law.num_data,
        num_parameters=law.num_moving,
        initial_loss=initial,
        loss_trace=initial + run.trace.energy / scale,
        burn_in=run.burn_in,
        acceptance=run.acceptance,
        evaluations=chains.evaluations,
        seconds=took,
        seconds_wanted=run.seconds_wanted(accuracy, took),
        by_n=by_n or {},
        decisions=tuple(filter(None, (searched, how))),
    )
    return coefficient, run


def initial_loss(law: LocalLaw) -> Any:
    """L_n(w*)."""
    return jnp.mean(law.posterior.data[1])


def _shortfall(
    law: LocalLaw, initial: float, accuracy: float, deadline: Deadline
) -> tuple[float, str]:
    """t (L_n(w*) - L_n) at the minimum of U nearby, and a doubt about it.

    NaN where the loss at w*, `initial`, or its gradient is not finite: no way leads from there.
    No search is needed where even the localization alone, whose curvature is the least there is,
    would let the potential fall by less than a small part of the accuracy.
    """
    slope = eqx.filter_jit(law.gradient)(law.centre)
    if not (np.isfinite(initial) and bool(tree.all_finite(slope))):
        return np.nan, ""
    fall = float(tree.dot(slope, slope)) / (2.0 * float(law.localization))
    if not np.isfinite(fall) or fall < 0.1 * accuracy:
        return 0.0, ""
    deadline = deadline.share(SHARE_OF_SEARCH)
    if tree.size(law.centre) >= LARGE:
        small = enough(TOLERANCE, law.centre)
        fallen, found = in_place.fall_of_loss(law, small, MOST_ITERATIONS, deadline)
        return max(0.0, fallen), "" if found else "The minimum nearby was not found in its time."
    seconds = COST_OF_ITERATION * seconds_of_gradient(law, law.centre)
    most = int(np.clip(deadline.left() / seconds, 1, MOST_ITERATIONS))
    mode = find_mode(law, law.centre, max_iterations=most)
    distance = float(tree.dot(*[tree.subtract(law.freeze(mode.position), law.centre)] * 2))
    fallen = 0.5 * float(law.localization) * distance - float(mode.potential)
    doubt = (
        ""
        if bool(mode.converged)
        else (f"The minimum nearby was not found in {most} iterations of L-BFGS.")
    )
    return max(0.0, fallen), doubt
