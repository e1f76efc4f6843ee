"""The methods: a mode, an ensemble and three samplers, all of the same gradient evaluations."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import ergodax as ex
from experiments.networks.problem import FRICTION, HEATING, Optimised, Problem

MOST_RATE = 3e-3  # of RMSprop, in pSGLD
REFERENCE_STEP, REFERENCE_LEAPS = 0.02, 50  # of HMC, in units of the average weight's frequency
CYCLES, EXPLORATION = 4, 0.25  # of SGHMC; the share of a cycle that explores


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a method predicts, and what it took."""

    method: str  # its name
    prediction: ex.network.Prediction  # for the rows asked for
    evaluations: int  # gradients of single examples
    seconds: float  # compilation included
    # kinetic, mean over the counted steps; 1 if the law is right; NaN without
    temperature: float = float("nan")


def mode(problem: Problem) -> Outcome:
    """The maximum a posteriori network, which takes the steps of all members."""
    began, budget = time.perf_counter(), problem.budget
    steps = budget.members * budget.steps
    first = jax.tree.map(lambda x: x[:1], problem.starts)
    found = problem.optimised(first, steps, "MAP")
    return _optimised("MAP", problem, found, steps, began)


def ensemble(problem: Problem) -> Outcome:
    """A deep ensemble: as many networks from starts of their own, averaged."""
    began, budget = time.perf_counter(), problem.budget
    found = problem.optimised(problem.starts, budget.steps, "ensemble")
    return _optimised("ensemble", problem, found, budget.members * budget.steps, began)


def _optimised(name: str, problem: Problem, found: Optimised, steps: int, began: float) -> Outcome:
    args = (problem.posterior, found.positions, problem.rows, problem.targets)
    prediction = ex.network.predict(*args)
    seconds = time.perf_counter() - began
    return Outcome(name, prediction, steps * problem.batch_size, seconds)


def cyclical_sghmc(problem: Problem, temperature: float = 1.0) -> Outcome:
    """SGHMC in cycles; see `ex.cyclical`."""
    steps = problem.budget.chain_steps
    period = max(2, steps // CYCLES)
    kernel = ex.cyclical(
        ex.sghmc, problem.gradient, 2.0 * problem.step_size(), period=period,
        exploration=EXPLORATION, temperature=temperature, friction=FRICTION,
        mass=ex.Diagonal(problem.mass()),
    )  # fmt: skip
    total = period * CYCLES
    return _sampled("SGHMC", problem, kernel, total, after=0, exploration=EXPLORATION)


def preconditioned(problem: Problem) -> Outcome:
    """pSGLD; its correction costs a gradient more in each step that adapts."""
    steps, num_data = problem.budget.chain_steps, problem.posterior.num_data
    adapting = max(1, round(problem.budget.burn_in * steps))
    # Noise heats an array in proportion to the root: the noisiest sets the step.
    root = max(float(jnp.mean(jnp.sqrt(m))) for m in jax.tree.leaves(problem.warm().moment))
    rate = min(MOST_RATE, 2.0 * HEATING / (num_data * root))
    kernel = ex.psgld(
        problem.gradient, rate / num_data, damping=0.1 * root, adaptation_steps=adapting
    )
    total = steps - adapting  # of which those that adapt cost double
    return _sampled("pSGLD", problem, kernel, total, after=adapting, doubled=adapting)


def thermostat(problem: Problem) -> Outcome:
    """SGNHT, whose friction adapts to the gradient noise that SGHMC bears."""
    size = ex.tree.size(problem.posterior.start["network"])
    kernel = ex.sgnht(
        problem.gradient, problem.step_size(), FRICTION, mass=problem.mass(),
        thermal_mass=0.1 * size,
    )  # fmt: skip
    steps = problem.budget.chain_steps
    after = round(problem.budget.burn_in * steps)
    return _sampled("SGNHT", problem, kernel, steps, after=after)


def reference(problem: Problem) -> Outcome:
    """HMC with full gradients, the reference: no gradient noise, and far more gradients.

    Trajectories of one unit of time at the mass above, each with a Metropolis test.
    """
    gradient = ex.FullGradient(problem.posterior)
    mass = ex.Diagonal(problem.mass())
    kernel = ex.hmc(gradient, REFERENCE_STEP, num_leapfrog_steps=REFERENCE_LEAPS, mass=mass)
    steps = max(40, problem.budget.steps // 16)
    return _sampled("HMC", problem, kernel, steps, after=steps // 2)


METHODS: dict[str, Callable[[Problem], Outcome]] = {
    "MAP": mode,
    "ensemble": ensemble,
    "SGHMC": cyclical_sghmc,
    "pSGLD": preconditioned,
    "SGNHT": thermostat,
}
# Not of the same gradient evaluations; for those who ask for it.
REFERENCE = {"HMC": reference}


def _sampled(
    name: str,
    problem: Problem,
    kernel: Any,
    steps: int,
    *,
    after: int,
    exploration: float = 0.0,
    doubled: int = 0,
) -> Outcome:
    """Run a kernel from the warm start; `doubled` of its steps cost two gradients."""
    warm, budget = problem.warm(), problem.budget
    began = time.perf_counter()
    counted = (steps - after) * (1.0 - exploration)
    every = max(1, round(counted / budget.draws))
    around = ex.network.predictive(
        kernel, problem.posterior, problem.rows, problem.targets, after=after, every=every
    )
    key = jax.random.fold_in(problem.key, sum(name.encode()))
    thin = max(1, steps // 200)
    samples = ex.sample(
        around, num_steps=steps, positions=ex.tree.thaw(warm.positions), num_chains=budget.members,
        thin=thin, collect=lambda position: jnp.zeros(()), key=key, progress=False,
    )  # fmt: skip
    prediction = around.results(samples)
    spent = budget.warm_steps + steps + doubled
    evaluations = budget.members * spent * problem.batch_size
    if name in REFERENCE:
        each = budget.warm_steps * problem.batch_size
        each += steps * REFERENCE_LEAPS * problem.posterior.num_data
        evaluations = budget.members * each
    seconds = time.perf_counter() - began
    temperature = _temperature(samples.info, after // thin)
    return Outcome(name, prediction, evaluations, seconds, temperature)


def _temperature(info: Any, after: int) -> float:
    """The mean kinetic temperature of the draws that count; NaN without a momentum."""
    if info.kinetic_temperature is None:
        return float("nan")
    values = np.asarray(info.kinetic_temperature)[:, after:]
    if info.sampling is None:
        return float(values.mean())
    return float(values[np.asarray(info.sampling)[:, after:]].mean())
