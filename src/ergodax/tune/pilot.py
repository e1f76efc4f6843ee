"""A pilot run: correct the coordinates, then find the step whose measured bias is small enough."""

import dataclasses
import math
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.diagnostics.bias import BiasReport
from ergodax.errors import DivergenceError
from ergodax.gradient.base import GradientEstimator
from ergodax.sampler.underdamped import nogin
from ergodax.target.posterior import Posterior
from ergodax.tune.background import (
    FRICTION,
    PILOT_DRAWS,
    RELAXATIONS,
    Programs,
    pilot_run,
    relaxation,
)
from ergodax.tune.curvature import draws_coordinates
from ergodax.tune.decisions import DecisionLog, Tuned
from ergodax.tune.estimator import LARGEST_SECOND_ORDER, LONGEST_STEP, Plan, choose_estimator
from ergodax.tune.host import generator, on_device, some_rows, split_key
from ergodax.tune.modes import at_modes, potential_and_gradient
from ergodax.tune.nuts import nuts_in_time
from ergodax.tune.surrogate import tune_surrogate
from ergodax.tune.whitening import Coordinates, flattened, posterior_in

POINTS = 16
WHITENED = 0.75, 1.33  # sds of pilot draws between which coordinates need no correction
ATTEMPTS = 6
SHORTER = 0.25, 0.7  # how much, where the bias of a step is too large
SCORES = 2_000  # rows whose scores stand for all in the measurement of the noise
NOWHERE_FINITE = (
    "the chains diverged at every step size that was tried. Look at the posterior for places where "
    "it is not finite, or give a better start."
)
# Of the check by all rows:
FEWEST = 16  # draws
TOTAL = 200  # draws times dimensions: five standard deviations of a normal law's are 0.5 then
DISAGREES = 0.5


def tune(
    posterior: Posterior,
    coordinates: Coordinates,
    log: DecisionLog,
    *,
    key: PRNGKeyArray,
    mode: PyTree | None = None,
    modes: Sequence[PyTree] = (),
    accuracy: float = 0.05,
    num_chains: int = 4,
    max_seconds: float = math.inf,
    progress: bool = True,
    programs: Programs | None = None,
) -> Tuned:
    """Choose estimator, batch and step by pilot runs, and measure what bias is left.

    Where every batch is too noisy, HMC on a surrogate is tried (`tune_surrogate`), and then NUTS on
    all rows (`nuts.nuts_in_time`) if its warm-up is sure to end in time.

    Args:
        posterior: with data.
        coordinates: whitened, as far as is known.
        log: is told the decisions.
        key: a key of `jax.random.key`.
        mode: of the posterior; by default the centre of the coordinates.
        modes: positions of all of them where there are several: the noise is measured at each,
            since control variates about one are none at another.
        accuracy: the bias of the step shall be below half of it, in posterior sds.
        num_chains: of the pilot runs.
        max_seconds: after the first pilot none is begun that leaves no time for sampling.
        progress: show bars.
        programs: that are being compiled, if a guess has been made.

    Raises:
        DivergenceError: the chains diverge however short the step.
    """
    key_rows, key_points, key_starts, key_surrogate, *keys = split_key(key, 5 + ATTEMPTS)
    rows, dtype = some_rows(posterior, key_rows, SCORES), coordinates.basis.dtype
    points = generator(key_points).standard_normal((POINTS, coordinates.dimension))
    programs, first = programs or Programs(num_chains), coordinates
    search = _Search(coordinates, points, deadline=time.perf_counter() + max_seconds)
    good = late = False
    settings: dict[str, Any] = {"num_chains": num_chains, "progress": progress}

    def surrogate() -> Tuned | None:
        if modes or first.dimension > LARGEST_SECOND_ORDER:
            return None
        place = first.centre if mode is None else mode
        return tune_surrogate(posterior, place, log, key_surrogate, **settings)

    def nuts() -> Tuned | None:
        left = search.deadline - time.perf_counter()
        return nuts_in_time(posterior, first, log, keys[-1], num_chains, modes, left)

    for number, key_run in enumerate(keys[:-1]):
        places = at_modes(on_device(search.points, dtype), search.coordinates, modes)
        moved, plan = _planned(posterior, search.coordinates, rows, places, search.longest)
        if not number and plan.name == "FullGradient" and (found := surrogate()) is not None:
            return found
        search.coordinates = moved
        gradient = plan.build(posterior_in(posterior, moved), dtype)
        programs.begin(plan, gradient, moved, key_run)
        programs.wait_for_pilot(plan)
        report = search.run(plan, gradient, key_run, **settings)
        if report is None:
            continue
        good = search.ends_with(gradient, plan, report, accuracy, log)
        if good or (late := search.is_late(log)):
            break
    if search.best is None:
        raise DivergenceError(NOWHERE_FINITE, step=0, chain=0, state=None, samples=None)
    right = (good or late) and _agree(posterior, search.best[2], log, key_points, modes)
    if not (right or late):
        # Every batch is too noisy, or none has the rows that matter: a few rows decide.
        if (found := surrogate() or nuts()) is not None:
            log.faults.clear()
            return found
    programs.wait_for_sampling(search.best[-1])
    tuned = _tuned(*search.best, log, key_starts, num_chains)
    return dataclasses.replace(tuned, starts=at_modes(tuned.starts, tuned.coordinates, modes))


@dataclasses.dataclass
class _Search:
    """What the pilot runs have led to; `best` is of the last that ended well."""

    coordinates: Coordinates  # of the next run
    points: Float[np.ndarray, "points d"]  # u at which the noise is measured
    deadline: float  # of the sampling
    longest: float = LONGEST_STEP  # that may be tried
    draws: int = PILOT_DRAWS  # of each chain
    pace: float = 0.0  # seconds a draw in the last run
    best: tuple[Any, Coordinates, BiasReport, Plan] | None = None

    def run(
        self, plan: Plan, gradient: GradientEstimator, key: PRNGKeyArray, **settings: Any
    ) -> BiasReport | None:
        """The report of a pilot; where it diverged none, and the next one is more careful."""
        began = time.perf_counter()
        try:
            report = pilot_run(plan, gradient, self.coordinates, key, draws=self.draws, **settings)
        except DivergenceError:  # shorter steps, from nearer places
            self.longest, self.points = 0.25 * plan.step_size, 0.5 * self.points
            return None
        self.pace = (time.perf_counter() - began) / self.draws
        return report

    def is_late(self, log: DecisionLog) -> bool:
        """Whether another run would leave no time for sampling."""
        ahead = self.pace * self.draws
        late = time.perf_counter() + ahead + self.pace * PILOT_DRAWS > self.deadline
        if late:
            log.decide("pilot", "the last one", f"another would take some {ahead:.0f} s")
        return late

    def ends_with(
        self,
        gradient: GradientEstimator,
        plan: Plan,
        report: BiasReport,
        accuracy: float,
        log: DecisionLog,
    ) -> bool:
        """Whether the report is good enough; if not, what the next run should be."""
        draws = _whitened_draws(self.coordinates, report)
        sds, bound = draws.std(axis=0), report.worst(coarse=True)
        figures = f"sds {sds.min():.2f} to {sds.max():.2f}, bias at most {bound:.2g} sd"
        log.decide("pilot", _plan_text(plan), figures)
        self.best = gradient, self.coordinates, report, plan
        if not (WHITENED[0] < sds.min() and sds.max() < WHITENED[1]):
            self.coordinates = draws_coordinates(self.coordinates, draws)
            # Some of the draws: places at which the noise will be measured again.
            every = max(1, len(draws) // POINTS)
            self.points = _whitened_draws(self.coordinates, report)[::every][:POINTS]
        elif bound < 0.5 * accuracy:
            return True
        elif report.worst(coarse=True, errors=-3.0) < 0.25 * accuracy:
            self.draws *= 4
        else:
            # The bias is of second order, so this step's is predicted to be within the limit.
            share = np.sqrt(0.35 * accuracy / bound)
            self.longest = float(np.clip(share, *SHORTER)) * plan.step_size
        return False


def _agree(
    posterior: Posterior,
    report: BiasReport,
    log: DecisionLog,
    key: PRNGKeyArray,
    modes: Sequence[PyTree],
) -> bool:
    """Whether the temperature of the pilot's draws is right by all rows; if not, it is a fault."""
    if modes:  # between which chains may move, and then the temperature varies too much
        return True
    found = whole_temperature(posterior, report.samples.position["coarse"], key=key)
    if abs(found - 1.0) < DISAGREES:
        return True
    log.decide("all rows", "disagree with the pilot's draws", f"temperature {found:.3g}, not 1")
    log.faults.append(
        f"by all rows the temperature of the draws is {found:.3g} and not 1, so a few rows decide "
        "that batches miss; try ex.exact.delayed_acceptance, or other parameters of the model"
    )
    return False


def whole_temperature(posterior: Posterior, draws: PyTree, *, key: PRNGKeyArray) -> float:
    """The mean over some draws of (x - c) . grad U(x) / d, U of all rows: 1 if the draws are right.

    It holds for every density without a boundary; the variance for a normal one is 2 / d. An
    observation of extreme curvature may be in no batch of a short run, with every step size alike:
    a bias measured by comparing steps does not see it. Draws that it forbids make this large.

    Args:
        posterior: with data in memory.
        draws: positions with leading axes chains and draws; c is the mean of the chain.
        key: for which of them.
    """
    leaves, structure = jax.tree.flatten(tree.freeze(draws))
    chains, count = leaves[0].shape[:2]
    d = sum(leaf[0, 0].size for leaf in leaves)
    rng, total = generator(key), 0.0
    some = min(chains * count, max(FEWEST, TOTAL // d))
    leaves = [np.asarray(leaf) for leaf in leaves]
    centres = [leaf.mean(axis=1, dtype=np.float64) for leaf in leaves]
    for number in rng.choice(chains * count, some, replace=False):
        chain, draw = divmod(int(number), count)
        parts = [leaf[chain, draw] for leaf in leaves]
        position = structure.unflatten([on_device(part, part.dtype) for part in parts])
        gradient = flattened(potential_and_gradient(posterior, position)[1])
        offsets = [np.ravel(x - c[chain]) for x, c in zip(parts, centres, strict=True)]
        total += float(np.concatenate(offsets) @ gradient)
    return total / (some * d)


def _planned(
    posterior: Posterior,
    coordinates: Coordinates,
    rows: PyTree,
    points: Float[Array, "points d"],
    longest: float,
) -> tuple[Coordinates, Plan]:
    """A plan, and the coordinates rotated so that the noise of its estimator is diagonal."""
    plan = choose_estimator(
        posterior_in(posterior, coordinates), rows, points, longest_step=longest
    )
    if plan.covariance.ndim == 1:
        return coordinates, plan
    values, vectors = np.linalg.eigh(plan.covariance)
    rotated = coordinates.moved(np.zeros(len(vectors)), vectors)
    return rotated, dataclasses.replace(plan, covariance=np.maximum(values, 0.0))


def _whitened_draws(coordinates: Coordinates, report: BiasReport) -> Float[np.ndarray, "draws d"]:
    """The u of the coarser run's draws, all chains together."""
    chains = report.samples.position["coarse"]
    return coordinates.of_rows(jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), chains))


def _tuned(
    gradient: GradientEstimator,
    coordinates: Coordinates,
    report: BiasReport,
    plan: Plan,
    log: DecisionLog,
    key: PRNGKeyArray,
    num_chains: int,
) -> Tuned:
    """The kernel of the last pilot run that ended well, and dispersed starts."""
    h = float(report.coarse)
    log.decide("estimator", _plan_text(plan), _costs_text(plan))
    bound = f"bias at most {report.worst(coarse=True):.2g} sd, by steps {h:.3g} and {h / 2:.3g}"
    log.decide("sampler", f"NOGIN, step {h:.3g} in whitened coordinates", bound)
    shape, dtype = (num_chains, coordinates.dimension), coordinates.basis.dtype
    starts = on_device(2.0 * generator(key).standard_normal(shape), dtype)
    kernel, thin = nogin(gradient, h, FRICTION), relaxation(h)
    return Tuned(kernel, coordinates, starts, report, thin, RELAXATIONS * thin)


def _plan_text(plan: Plan) -> str:
    batch = "" if plan.name == "FullGradient" else f", batches of {plan.batch_size}"
    return f"{plan.name}{batch}, noise variance {plan.noise:.2g}, step {plan.step_size:.2g}"


def _costs_text(plan: Plan) -> str:
    costs = sorted(plan.costs.items(), key=lambda item: item[1])
    each = ", ".join(f"{name} {cost:,.0f}" for name, cost in costs if np.isfinite(cost))
    return f"evaluations an effective draw: {each}"
