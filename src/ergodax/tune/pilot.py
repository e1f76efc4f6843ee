"""A pilot run: correct the coordinates, then find the step whose measured bias is small enough."""

import dataclasses
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax.diagnostics.bias import BiasReport, bias
from ergodax.errors import DivergenceError
from ergodax.sampler.nogin import nogin
from ergodax.target.posterior import Posterior
from ergodax.tune.account import Account
from ergodax.tune.beside import compile_beside
from ergodax.tune.coordinates import Coordinates, in_coordinates
from ergodax.tune.estimator import LONGEST_STEP, Plan, choose_estimator
from ergodax.tune.host import generator, on_device, split_key
from ergodax.tune.rows import some_rows
from ergodax.tune.scale import draws_coordinates
from ergodax.tune.start import at_modes

FRICTION = 1.0  # which makes a round posterior's draws least correlated, whatever the step
PILOT_DRAWS = 500  # of each chain
RELAXATIONS = 20  # burn-in, in units of the time 1 / h
POINTS = 16
ROUND = 0.75, 1.33  # sds of pilot draws between which coordinates are round enough
ATTEMPTS = 6
SCORES = 2_000  # rows whose scores stand for all in the measurement of the noise


@dataclasses.dataclass(frozen=True)
class Tuned:
    """A kernel that is ready to sample.

    Attributes:
        kernel: in the coordinates u.
        coordinates: the map to positions.
        starts: u of each chain, leading axis chains.
        bias: of the kernel's step, or None where it has none.
        thin: steps to a draw.
        burn_in: steps before the first draw.
    """

    kernel: Any
    coordinates: Coordinates
    starts: Float[Array, "chains d"]
    bias: BiasReport | None
    thin: int
    burn_in: int


def tune(
    posterior: Posterior,
    coordinates: Coordinates,
    account: Account,
    *,
    key: PRNGKeyArray,
    modes: Sequence[PyTree] = (),
    accuracy: float = 0.05,
    num_chains: int = 4,
    progress: bool = True,
) -> Tuned:
    """Choose estimator, batch and step by pilot runs, and measure what bias is left.

    Args:
        posterior: with data.
        coordinates: round ones, as far as is known.
        account: is told the decisions.
        key: a key of `jax.random.key`.
        modes: positions of all of them where there are several: the noise is measured at each,
            since control variates about one are none at another.
        accuracy: the bias of the step shall be below half of it, in posterior sds.
        num_chains: of the pilot runs.
        progress: show bars.

    Raises:
        DivergenceError: the chains leave the finite numbers however short the step.
    """
    key_rows, key_points, key_starts, *keys = split_key(key, 3 + ATTEMPTS)
    rows, dtype = some_rows(posterior, key_rows, SCORES), coordinates.basis.dtype
    points = generator(key_points).standard_normal((POINTS, coordinates.dimension))
    pilot, compiling = _Pilot(num_chains, progress), _Compiling(num_chains)
    longest, best = LONGEST_STEP, None
    for key_run in keys:
        places = at_modes(on_device(points, dtype), coordinates, modes)
        coordinates, plan = _planned(posterior, coordinates, rows, places, longest)
        gradient = plan.build(in_round(posterior, coordinates), dtype)
        compiling.begin(plan, gradient, coordinates, key_run)
        try:
            report = pilot.run(gradient, plan.step_size, coordinates, key_run)
        except DivergenceError:
            longest, points = 0.25 * plan.step_size, 0.5 * points
            continue
        draws = _round_draws(coordinates, report)
        sds, bound = draws.std(axis=0), report.worst(coarse=True)
        figures = f"sds {sds.min():.2f} to {sds.max():.2f}, bias at most {bound:.2g} sd"
        account.decide("pilot", _plan_text(plan), figures)
        best = gradient, coordinates, report, plan
        if not (ROUND[0] < sds.min() and sds.max() < ROUND[1]):
            coordinates = draws_coordinates(coordinates, draws)
            # Some of the draws: places at which the noise will be measured again.
            points = _round_draws(coordinates, report)[:: max(1, len(draws) // POINTS)][:POINTS]
        elif bound < 0.5 * accuracy:
            break
        elif report.worst(coarse=True, errors=-3.0) < 0.25 * accuracy:
            pilot = dataclasses.replace(pilot, draws=4 * pilot.draws)
        else:
            longest = 0.5 * plan.step_size
    if best is None:
        raise DivergenceError(
            "the chains left the finite numbers at every step size that was tried. Look at the "
            "posterior for places where it is not finite, or give a better start.",
            step=0,
            chain=0,
            state=None,
            samples=None,
        )
    compiling.wait(best[-1])
    tuned = _tuned(*best, account, key_starts, num_chains)
    return dataclasses.replace(tuned, starts=at_modes(tuned.starts, tuned.coordinates, modes))


def _planned(
    posterior: Posterior,
    coordinates: Coordinates,
    rows: PyTree,
    points: Float[Array, "points d"],
    longest: float,
) -> tuple[Coordinates, Plan]:
    """A plan, and the coordinates rotated so that the noise of its estimator is diagonal."""
    plan = choose_estimator(in_round(posterior, coordinates), rows, points, longest_step=longest)
    if plan.covariance.ndim == 1:
        return coordinates, plan
    values, vectors = np.linalg.eigh(plan.covariance)
    rotated = coordinates.moved(np.zeros(len(vectors)), vectors)
    return rotated, dataclasses.replace(plan, covariance=np.maximum(values, 0.0))


def in_round(posterior: Posterior, coordinates: Coordinates) -> Posterior:
    """The posterior as a function of u."""
    inner = in_coordinates(posterior, coordinates)
    assert isinstance(inner, Posterior)
    return inner


@dataclasses.dataclass(frozen=True)
class _Pilot:
    """Coupled runs at a step and half of it.

    Attributes:
        num_chains: pairs of chains.
        progress: show bars.
        draws: of each chain.
    """

    num_chains: int
    progress: bool
    draws: int = PILOT_DRAWS

    def run(
        self, gradient: Any, step_size: float, coordinates: Coordinates, key: PRNGKeyArray
    ) -> BiasReport:
        relaxation = _relaxation(step_size)
        return bias(
            lambda h: nogin(gradient, h, FRICTION),
            on_device(np.zeros(coordinates.dimension), coordinates.basis.dtype),
            step_size,
            self.draws * relaxation,
            key=key,
            order=2,
            function=coordinates.position,
            num_chains=self.num_chains,
            burn_in=RELAXATIONS * relaxation,
            thin=relaxation,
            progress=self.progress,
        )


class _Compiling:
    """Compiles the sampling program while the pilot runs, which uses another.

    Args:
        num_chains: of the program.
    """

    def __init__(self, num_chains: int) -> None:
        self.num_chains = num_chains
        self.begun: dict[tuple, Future] = {}

    def begin(self, plan: Plan, gradient: Any, coordinates: Coordinates, key: PRNGKeyArray) -> None:
        """Start, unless a plan that differs in numbers alone has been seen.

        Args:
            plan: the kernel's.
            gradient: built by it.
            coordinates: of the kernel.
            key: any.
        """
        if _structure(plan) in self.begun:
            return
        shape = self.num_chains, coordinates.dimension
        starts = on_device(np.zeros(shape), coordinates.basis.dtype)
        kernel = nogin(gradient, plan.step_size, FRICTION)
        relaxation = _relaxation(plan.step_size)
        self.begun[_structure(plan)] = compile_beside(kernel, coordinates, starts, relaxation, key)

    def wait(self, plan: Plan) -> None:
        """Until the plan's program is there; what failed will fail again where it is needed."""
        self.begun[_structure(plan)].exception()


def _structure(plan: Plan) -> tuple:
    """What of a plan decides which program samples."""
    return plan.name, plan.batch_size, _relaxation(plan.step_size) > 1


def _relaxation(step_size: float) -> int:
    """Steps to a draw."""
    return max(1, round(1.0 / step_size))


def _round_draws(coordinates: Coordinates, report: BiasReport) -> Float[np.ndarray, "draws d"]:
    """The u of the coarser run's draws, all chains together."""
    chains = report.samples.position["coarse"]
    return coordinates.of_rows(jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), chains))


def _tuned(
    gradient: Any,
    coordinates: Coordinates,
    report: BiasReport,
    plan: Plan,
    account: Account,
    key: PRNGKeyArray,
    num_chains: int,
) -> Tuned:
    """The kernel of the last pilot run that ended well, and dispersed starts."""
    h = float(report.coarse)
    account.decide("estimator", _plan_text(plan), _costs_text(plan))
    bound = f"bias at most {report.worst(coarse=True):.2g} sd, by steps {h:.3g} and {h / 2:.3g}"
    account.decide("sampler", f"NOGIN, step {h:.3g} in round coordinates", bound)
    shape, dtype = (num_chains, coordinates.dimension), coordinates.basis.dtype
    starts = on_device(2.0 * generator(key).standard_normal(shape), dtype)
    relaxation = _relaxation(h)
    kernel = nogin(gradient, h, FRICTION)
    return Tuned(kernel, coordinates, starts, report, relaxation, RELAXATIONS * relaxation)


def _plan_text(plan: Plan) -> str:
    batch = "" if plan.name == "FullGradient" else f", batches of {plan.batch_size}"
    return f"{plan.name}{batch}, noise variance {plan.noise:.2g}, step {plan.step_size:.2g}"


def _costs_text(plan: Plan) -> str:
    costs = sorted(plan.costs.items(), key=lambda item: item[1])
    each = ", ".join(f"{name} {cost:,.0f}" for name, cost in costs if np.isfinite(cost))
    return f"evaluations an effective draw: {each}"
