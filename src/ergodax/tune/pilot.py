"""A pilot run: correct the coordinates, then find the step whose measured bias is small enough."""

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax.diagnostics.bias import BiasReport
from ergodax.errors import DivergenceError
from ergodax.gradient.base import GradientEstimator
from ergodax.sampler.underdamped import nogin
from ergodax.target.posterior import Posterior
from ergodax.tune.background import (
    AS_LONG,
    FRICTION,
    PILOT_DRAWS,
    POINTS,
    RELAXATIONS,
    SCORES,
    Programs,
    pilot_run,
    relaxation,
    work,
)
from ergodax.tune.budget import Deadline
from ergodax.tune.curvature import draws_coordinates
from ergodax.tune.decisions import DecisionLog, Tuned
from ergodax.tune.doubts import doubt_of_draws
from ergodax.tune.estimator import LONGEST_STEP, Plan, choose_estimator
from ergodax.tune.host import generator, on_device, some_rows, split_key
from ergodax.tune.influential import squares_of_remainders, without_influential_rows
from ergodax.tune.modes import at_modes
from ergodax.tune.whitening import Coordinates, are_white, posterior_in

WILD = 10.0  # sd of the first pilot's draws, that no correction of coordinates leads back from
HOPELESS = 1.0  # bias in sds, of chains that have little of the posterior's law
ATTEMPTS = 6
RUN = 0.6  # of the time for all pilots, that one may take
LEAPFROGS = 8.0  # on all rows, that an effective draw by NUTS takes in whitened coordinates
LONGER = 2.0, 16.0  # times as many draws, where it may be the noise of the measurement
MARGIN = 1.2  # of draws over those that the last ones tell to be needed
LARGE = 0.75  # of the accuracy, below which a bias does no harm
SLOWLY = 1.3  # times the error of a draw before: more than the noise of an estimated error
SHORTER = 0.25, 0.7  # how much, where the bias of a step is too large


def tune(
    posterior: Posterior,
    coordinates: Coordinates,
    log: DecisionLog,
    *,
    key: PRNGKeyArray,
    modes: Sequence[PyTree] = (),
    accuracy: float = 0.05,
    num_chains: int = 4,
    deadline: Deadline | None = None,
    progress: bool = True,
    programs: Programs | None = None,
    alternative: float = np.inf,
) -> Tuned | None:
    """Choose estimator, batch and step by pilot runs, and measure what bias is left.

    Args:
        posterior: with data.
        coordinates: whitened, as far as is known.
        log: is told the decisions.
        key: a key of `jax.random.key`.
        modes: positions of all of them where there are several: the noise is measured at each,
            since control variates about one are none at another.
        accuracy: the bias of the step shall be below half of it, in posterior sds.
        num_chains: of the pilot runs.
        deadline: at which a pilot is cut; after the first none is begun that would not end.
        progress: show bars.
        programs: that are being compiled, if a guess has been made.
        alternative: seconds that an exact sampler takes, if there is time for one; then doubt is
            enough to end, and so is the prospect of longer pilots.

    Returns:
        None where no batch serves: every one is too noisy, the chains diverge, leave the support or
        miss what a few rows say. The log says which.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> x, log = jnp.linspace(-1.0, 3.0, 1000), ex.tune.DecisionLog()
        >>> model = ex.Posterior(lambda m: -0.5 * m**2, lambda m, x: -0.5 * (x - m) ** 2, x)
        >>> white = ex.tune.Coordinates(jnp.float32(1.0), jnp.full(1, 0.0316))  # mode and sd
        >>> tuned = ex.tune.tune(model, white, log, key=jax.random.key(0), progress=False)
        >>> bool(tuned.bias.worst(coarse=True) < 0.05)  # in posterior sds
        True
    """
    key_rows, key_points, key_starts, *keys = split_key(key, 3 + ATTEMPTS)
    points = generator(key_points).standard_normal((POINTS, coordinates.dimension))
    whole, dtype = posterior, coordinates.basis.dtype
    squares = None if modes else squares_of_remainders(whole, coordinates, points, deadline)
    posterior, smallest = without_influential_rows(whole, coordinates, squares, log)
    if programs is None or posterior is not whole:  # those that were begun are of another law
        programs = Programs(num_chains)
    rows = some_rows(posterior, key_rows, SCORES)
    normals = 2.0 * generator(key_starts).standard_normal((num_chains, coordinates.dimension))
    starts = on_device(normals, dtype)
    search = _Search(coordinates, points, deadline or Deadline.never())
    good = late = False
    for key_run in keys:
        if squares is not None and search.has_turned_short():
            step = search.longest
            posterior, smallest = without_influential_rows(whole, coordinates, squares, log, step)
            rows, programs = some_rows(posterior, key_rows, SCORES), Programs(num_chains)
        places = at_modes(on_device(search.points, dtype), search.coordinates, modes)
        limits = {"longest_step": search.longest, "smallest_batch": smallest}
        moved, plan = _planned(posterior, search.coordinates, rows, places, **limits)
        if plan.name == "FullGradient" or plan.costs[plan.name] > LEAPFROGS * posterior.num_data:
            log.decide("batches", "none", f"each is too noisy: {_costs_text(plan)}")
            return None
        search.coordinates = moved
        gradient = plan.build(posterior_in(posterior, moved), dtype)
        programs.begin(plan, gradient, moved, key_run)
        programs.wait_for_pilot(plan)
        report = search.run(plan, gradient, key_run, starts, progress=progress)
        if report is not None and (good := search.ends_with(gradient, plan, report, accuracy, log)):
            each = work(plan, *starts.shape)
            if modes or not search.is_worth_more(report, accuracy, each):  # they count about one
                break
        if late := search.is_late(log):
            break
        if doubt := search.doubt(alternative):
            log.decide("batches", "none", doubt)
            return None
    if search.best is None:
        why = "there was no time for a pilot" if late else "their chains diverged"
        log.decide("batches", "none", why)
        return None
    biased = not good and search.best[2].worst(coarse=True) > accuracy
    if doubt := _doubt(whole, search.best[2], key_points, modes, biased=biased):
        log.decide("batches", "none", doubt)
        return None
    return _tuned(*search.best, starts, modes, log)


@dataclasses.dataclass
class _Search:
    """What the pilot runs have led to; `best` is of the last that ended well."""

    coordinates: Coordinates  # of the next run
    points: Float[np.ndarray, "points d"]  # u at which the noise is measured
    deadline: Deadline
    longest: float = LONGEST_STEP  # that may be tried
    near: float = 1.0  # how far from the centre the chains begin, in units of the starts
    draws: int = PILOT_DRAWS  # of each chain
    needed: float = PILOT_DRAWS  # draws that would bring the bound down if it is noise
    pace: float = 0.0  # seconds a draw in the last run
    spent: float = 0.0  # seconds of all runs
    widest: float = 1.0  # sd of its draws
    bound: float = 0.0  # of its bias
    error: float = np.inf  # of the bias measured by one draw, if it was noise
    slow: int = 0  # runs after which it was more than that in the run before
    short: bool = False  # whether several steps make a draw
    best: tuple[Any, Coordinates, BiasReport, Plan] | None = None

    def run(
        self,
        plan: Plan,
        gradient: GradientEstimator,
        key: PRNGKeyArray,
        starts: Float[Array, "chains d"],
        **settings: Any,
    ) -> BiasReport | None:
        """The report of a pilot; where it diverged none, and the next one is more careful."""
        began = time.perf_counter()
        try:
            report = pilot_run(
                plan,
                gradient,
                self.coordinates,
                key,
                self.near * starts,
                draws=self.draws,
                max_seconds=RUN * self.deadline.left(),
                **settings,
            )
        except DivergenceError:  # shorter steps, from nearer places
            self.longest, self.points = 0.25 * plan.step_size, 0.5 * self.points
            self.near *= 0.5
            return None
        except TimeoutError:
            return None
        seconds = time.perf_counter() - began
        self.pace, self.spent = seconds / report.samples.num_draws, self.spent + seconds
        return report

    def has_turned_short(self) -> bool:
        """Whether the next run is the first with several steps to a draw.

        Its programs are new in any case, and so short steps bear more noise. It is none of those
        that a divergence has led to, of which noise may be the cause.
        """
        before, self.short = self.short, relaxation(self.longest) > 1
        return self.short and not before and self.near == 1.0

    def doubt(self, alternative: float) -> str:
        """Why another run would be as bad as the last, or take too long; "" where it may do."""
        if self.best is not None and self.widest > WILD:
            return "their draws have nothing of the normal law at the mode"
        if self.best is None or np.isinf(alternative):
            return ""
        if self.bound > HOPELESS:
            return f"the bias of the step may be {self.bound:.2g} sd"
        if self.slow > 1:
            return "the error of the bias falls more slowly than noise does: a few rows decide"
        # With what was spent: then the whole never takes twice the time of an exact sampler.
        if (whole := self.spent + self.pace * self.needed) > alternative:
            exact = f"an exact sampler no more than {alternative:.0f}"
            return f"to measure the bias takes some {whole:.0f} s in all, {exact}"
        return ""

    def is_late(self, log: DecisionLog) -> bool:
        """Whether there is no time for another run."""
        ahead = self.pace * self.draws
        late = ahead >= self.deadline.left()
        if late and self.best:
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
        draws, made = _whitened_draws(self.coordinates, report), report.samples.num_draws
        sds, bound = draws.std(axis=0), report.worst(coarse=True)
        self.widest, self.bound, self.needed = float(sds.max()), bound, self.draws
        figures = f"sds {sds.min():.2f} to {sds.max():.2f}, bias at most {bound:.2g} sd"
        log.decide("pilot", _plan_text(plan), figures)
        self.best = gradient, self.coordinates, report, plan
        if not are_white(draws):
            self.coordinates, self.error = draws_coordinates(self.coordinates, draws), np.inf
            # Some of the draws: places at which the noise will be measured again.
            every = max(1, len(draws) // POINTS)
            self.points = _whitened_draws(self.coordinates, report)[::every][:POINTS]
        elif bound < 0.5 * accuracy:
            return True
        elif self.may_be_noise(report.worst(coarse=True, errors=-3.0), made, accuracy):
            self.take_more(made, bound, accuracy)
        else:
            # The bias is of second order, so this step's is predicted to be within the limit.
            share = np.sqrt(0.35 * accuracy / bound)
            self.longest = float(np.clip(share, *SHORTER)) * plan.step_size
        return False

    def is_worth_more(self, report: BiasReport, accuracy: float, each: int) -> bool:
        """Whether a longer pilot has all draws that are needed before another program is compiled.

        `each` is the work of a draw. No clock decides, so that a key leads to the same draws.
        """
        table, made = report.table, report.samples.num_draws
        sds = table["estimate"].xs("sd", level=1)
        mcse = table["mcse"] / table.index.get_level_values(0).map(sds)
        needed = MARGIN * made * float(mcse.max() / (accuracy - self.bound)) ** 2
        if not made < needed < AS_LONG / each:
            return False
        self.draws = int(needed)
        return True

    def may_be_noise(self, least: float, made: int, accuracy: float) -> bool:
        """Whether the bias may be none, and its error has fallen with the draws as that of noise.

        Where it has not, the bias is there and small, or outliers have come in. A shorter step
        helps against the first; where it does not, a few rows decide.
        """
        if least >= 0.25 * accuracy:
            return False
        error = self.bound * made**0.5
        slowly = error > SLOWLY * self.error and self.bound > LARGE * accuracy
        self.slow += slowly
        self.error = np.inf if slowly else error
        return not slowly

    def take_more(self, made: int, bound: float, accuracy: float) -> None:
        """As many draws as bring the bound down if it is the noise of so many."""
        times = MARGIN * (2.0 * bound / accuracy) ** 2
        self.needed, self.draws = made * times, int(made * np.clip(times, *LONGER))


def _planned(
    posterior: Posterior,
    coordinates: Coordinates,
    rows: PyTree,
    points: Float[Array, "points d"],
    **limits: Any,
) -> tuple[Coordinates, Plan]:
    """A plan, and the coordinates rotated so that the noise of its estimator is diagonal."""
    plan = choose_estimator(posterior_in(posterior, coordinates), rows, points, **limits)
    if plan.covariance.ndim == 1:
        return coordinates, plan
    values, vectors = np.linalg.eigh(plan.covariance)
    rotated = coordinates.moved(np.zeros(len(vectors)), vectors)
    return rotated, dataclasses.replace(plan, covariance=np.maximum(values, 0.0))


def _doubt(
    posterior: Posterior,
    report: BiasReport,
    key: PRNGKeyArray,
    modes: Sequence[PyTree],
    *,
    biased: bool,
) -> str:
    """Why the draws of the coarser run may be wrong; "" where nothing says so."""
    drawn = report.samples
    doubt = doubt_of_draws(
        posterior, drawn.position["coarse"], drawn.info.potential, key=key, modes=modes
    )
    return doubt or ("the bias of every step that was tried is too large" if biased else "")


def _whitened_draws(coordinates: Coordinates, report: BiasReport) -> Float[np.ndarray, "draws d"]:
    """The u of the coarser run's draws, all chains together."""
    chains = coordinates.of_chains(report.samples.position["coarse"])
    return chains.reshape(-1, coordinates.dimension)


def _tuned(
    gradient: GradientEstimator,
    coordinates: Coordinates,
    report: BiasReport,
    plan: Plan,
    starts: Float[Array, "chains d"],
    modes: Sequence[PyTree],
    log: DecisionLog,
) -> Tuned:
    """The kernel of the last pilot run that ended well; its draws count if there is one mode."""
    h = float(report.coarse)
    log.decide("estimator", _plan_text(plan), _costs_text(plan))
    bound = f"bias at most {report.worst(coarse=True):.2g} sd, by steps {h:.3g} and {h / 2:.3g}"
    log.decide("sampler", f"NOGIN, step {h:.3g} in whitened coordinates", bound)
    kernel, thin = nogin(gradient, h, FRICTION), relaxation(h)
    begin, early = at_modes(starts, coordinates, modes), RELAXATIONS * thin
    return Tuned(kernel, coordinates, begin, report, thin, early, piloted=not modes)


def _plan_text(plan: Plan) -> str:
    batch = "" if plan.name == "FullGradient" else f", batches of {plan.batch_size}"
    return f"{plan.name}{batch}, noise variance {plan.noise:.2g}, step {plan.step_size:.2g}"


def _costs_text(plan: Plan) -> str:
    costs = sorted(plan.costs.items(), key=lambda item: item[1])
    each = ", ".join(f"{name} {cost:,.0f}" for name, cost in costs if np.isfinite(cost))
    return f"evaluations an effective draw: {each}"
