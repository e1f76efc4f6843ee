"""A pilot run: correct the coordinates, then find the step whose measured bias is small enough."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.diagnostics.bias import BiasReport, bias
from ergodax.errors import DivergenceError
from ergodax.sampler.nogin import nogin
from ergodax.target.posterior import Posterior
from ergodax.tune.account import Account
from ergodax.tune.coordinates import Coordinates, in_coordinates
from ergodax.tune.estimator import LONGEST_STEP, Plan, choose_estimator
from ergodax.tune.scale import draws_coordinates, some_rows

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
        accuracy: the bias of the step shall be below half of it, in posterior sds.
        num_chains: of the pilot runs.
        progress: show bars.

    Raises:
        DivergenceError: the chains leave the finite numbers however short the step.
    """
    keys = iter(jax.random.split(key, 3 + ATTEMPTS))
    rows = some_rows(posterior, next(keys), SCORES)
    shape = POINTS, coordinates.dimension
    points = jax.random.normal(next(keys), shape, coordinates.basis.dtype)
    pilot = _Pilot(num_chains, progress)
    longest, best = LONGEST_STEP, None
    for _ in range(ATTEMPTS):
        coordinates, plan = _planned(posterior, coordinates, rows, points, longest)
        gradient = plan.build(in_round(posterior, coordinates), coordinates.basis.dtype)
        try:
            report = pilot.run(gradient, plan.step_size, coordinates, next(keys))
        except DivergenceError:
            longest, points = 0.25 * plan.step_size, 0.5 * points
            continue
        draws = _round_draws(coordinates, report)
        sds, bound = draws.std(axis=0), report.worst(coarse=True)
        figures = f"sds {sds.min():.2f} to {sds.max():.2f}, bias at most {bound:.2g} sd"
        account.decide("pilot", _plan_text(plan), figures)
        best = gradient, coordinates, report, plan
        if not (ROUND[0] < sds.min() and sds.max() < ROUND[1]):
            changed = draws_coordinates(coordinates, draws)
            points = _places(changed, coordinates, draws)
            coordinates = changed
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
    return _tuned(*best, account, next(keys), num_chains)


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
    zero = jnp.zeros(coordinates.dimension, coordinates.basis.dtype)
    rotated = coordinates.moved(zero, jnp.asarray(vectors, coordinates.basis.dtype))
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
        relaxation = max(1, round(1.0 / step_size))
        return bias(
            lambda h: nogin(gradient, h, FRICTION),
            jnp.zeros(coordinates.dimension, coordinates.basis.dtype),
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


def _round_draws(coordinates: Coordinates, report: BiasReport) -> Float[np.ndarray, "draws d"]:
    """The u of the coarser run's draws, all chains together."""
    positions = tree.freeze(report.samples.position["coarse"])
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), positions)
    return np.asarray(jax.jit(jax.vmap(coordinates.of))(flat), np.float64)


def _places(
    new: Coordinates, old: Coordinates, draws: Float[np.ndarray, "draws d"]
) -> Float[Array, "points d"]:
    """Some of the draws in the new coordinates, where the noise will be measured again."""
    few = draws[:: max(1, len(draws) // POINTS)][:POINTS]
    return jax.vmap(lambda u: new.of(old.position(u)))(jnp.asarray(few, old.basis.dtype))


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
    starts = 2.0 * jax.random.normal(key, shape, dtype)
    relaxation = max(1, round(1.0 / h))
    kernel = nogin(gradient, h, FRICTION)
    return Tuned(kernel, coordinates, starts, report, relaxation, RELAXATIONS * relaxation)


def _plan_text(plan: Plan) -> str:
    batch = "" if plan.name == "FullGradient" else f", batches of {plan.batch_size}"
    return f"{plan.name}{batch}, noise variance {plan.noise:.2g}, step {plan.step_size:.2g}"


def _costs_text(plan: Plan) -> str:
    costs = sorted(plan.costs.items(), key=lambda item: item[1])
    each = ", ".join(f"{name} {cost:,.0f}" for name, cost in costs if np.isfinite(cost))
    return f"evaluations an effective draw: {each}"
