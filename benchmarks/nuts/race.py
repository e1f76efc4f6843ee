"""`infer` against NUTS on logistic regressions: the measurements, and what they were to show."""

import dataclasses
import math
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from unittest import mock

import jax

from benchmarks.nuts import contestants as others
from benchmarks.nuts import problem as problems
from benchmarks.nuts.contestants import CHAINS, OURS, Limits, Measured
from benchmarks.nuts.problem import Problem

SIZES = (500, 5_000, 50_000, 500_000, 5_000_000)
QUICK_SIZES = (500, 5_000, 50_000)
PATIENCE = 4.0  # as much time, where the table is large and the posterior had to be sampled
QUICK = Limits(goal=2_000.0, least=0.2, most=10.0)
SAMPLING_GOALS = {500: 0.8, 50_000: 50.0, 500_000: 400.0}
END_TO_END_GOALS = {500: 1.0, 50_000: 8.0, 500_000: 50.0}
MEAN_GOAL, SD_GOAL = 0.1, 0.1
GROWTH_GOAL = 1.5  # a step at the largest N against the smallest that takes batches
Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Options:
    """What is compared.

    Attributes:
        sizes: numbers of rows.
        dimension: coefficients.
        peers: whose NUTS, keys of `contestants.PEERS`.
        quick: smaller sizes unless they are given, a goal of 2,000 effective draws.
        seed: of data and samplers.

    Raises:
        ValueError: an unknown peer, or a number out of range.
    """

    sizes: tuple[int, ...] | None = None
    dimension: int = 10
    peers: tuple[str, ...] = ("blackjax", "numpyro", "nutpie")
    quick: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse before any work what would fail after it."""
        unknown = [name for name in self.peers if name not in others.PEERS]
        if unknown:
            known = ", ".join(others.PEERS)
            raise ValueError(f"peers has {unknown[0]!r}; the known ones are {known}.")
        if self.dimension < 1:
            raise ValueError(f"dimension must be at least 1, not {self.dimension}.")
        too_small = [n for n in self.chosen if n < 10 * self.dimension]
        if too_small:
            raise ValueError(
                f"sizes must be at least 10 rows a coefficient, not {too_small[0]}. Try 500."
            )

    @property
    def chosen(self) -> tuple[int, ...]:
        """The sizes in ascending order."""
        return tuple(sorted(set(self.sizes or (QUICK_SIZES if self.quick else SIZES))))

    @property
    def limits(self) -> Limits:
        """How long each contestant runs."""
        return QUICK if self.quick else Limits()


@dataclasses.dataclass(frozen=True)
class Result:
    """What the comparison found.

    Attributes:
        rows: a Measured for each size and sampler.
        skipped: peers that are not installed, a sentence each.
        facts: everything that is a number, for JSON.
        limits: how long each contestant ran.
    """

    rows: list[Measured]
    skipped: list[str]
    facts: dict[str, Any]
    limits: Limits

    @property
    def figures(self) -> list[dict[str, Any]]:
        """A row for each size and sampler, numbers."""
        return [
            {
                "num_data": row.num_data, "sampler": row.sampler,
                "ess_per_second_sampling": row.rate,
                "ess_per_second_all_in": row.end_to_end(self.limits.goal),
                "seconds_to_goal": row.to_goal, "extrapolated": row.extrapolated,
                "setup_seconds": row.setup_seconds, "microseconds_per_step": row.microseconds,
                "gradients_per_effective_draw": row.gradients_each,
                "error_mean": row.error_mean, "error_sd": row.error_sd, "ess": row.ess,
                "seconds": row.seconds, "note": row.note,
            }
            for row in self.rows
        ]  # fmt: skip

    @property
    def overtakes(self) -> float | None:
        """The number of rows at which infer overtakes the best NUTS end to end."""
        return overtaking(_ratios(self.rows, lambda row: row.end_to_end(self.limits.goal)))

    @property
    def verdicts(self) -> list[str]:
        """The goals, each met or not met."""
        return list(verdicts(self.rows, self.limits.goal))


def run(options: Options, say: Say = lambda text: None) -> Result:
    """Measure every contestant at every size; `say` hears a line before each measurement."""

    def made() -> Iterator[Problem]:
        for num_data in options.chosen:
            say(f"{num_data:,} rows: making the data and the reference")
            yield problems.make(num_data, options.dimension, options.seed)

    return race(made(), "logistic regression by number of rows", options, say)


def race(
    given: Iterable[Problem], what: str, options: Options, say: Say = lambda text: None
) -> Result:
    """Measure every contestant on every problem.

    Args:
        given: problems, each with its reference.
        what: they are, for the title.
        options: whose peers, limits and seed are used.
        say: called with a line after each measurement.
    """
    contestants, skipped = _contestants(options, say)
    rows, references = [], {}
    load, dimension, prior_scale = os.getloadavg()[0], 0, 0.0
    for problem in given:
        known, dimension, prior_scale = problem.reference, problem.dimension, problem.prior_scale
        references[str(problem.num_data)] = {"error": known.error, "told": known.told}
        limits = options.limits
        if problems.is_large(problem) and known.draws is not None:
            limits = dataclasses.replace(limits, most=PATIENCE * limits.most)
        for measure in contestants.values():
            jax.clear_caches()  # everybody compiles for himself, and reads no earlier programs
            with mock.patch.dict(os.environ, ERGODAX_PROGRAMS="0"):
                row = measure(problem, options.seed, limits)
            rows.append(row)
            say(
                f"  {row.sampler}: ESS per second {row.rate:,.3g} while sampling, "
                f"{row.to_goal:,.1f} s end to end, {row.setup_seconds:,.1f} s of them set-up"
            )
    facts = {
        "title": f"infer against NUTS: {what}", "dimension": dimension,
        "prior_scale": prior_scale, "sizes": sorted({row.num_data for row in rows}),
        "seed": options.seed, "goal_ess": options.limits.goal, "chains": CHAINS,
        "cores": len(os.sched_getaffinity(0)), "load_before": load,
        "load_after": os.getloadavg()[0], "device": str(jax.devices()[0]),
        "references": references, "skipped": skipped,
    }  # fmt: skip
    result = Result(rows, skipped, facts, options.limits)
    facts["rows"] = result.figures
    facts["overtakes_at"] = result.overtakes
    facts["verdicts"] = result.verdicts
    return result


def _contestants(
    options: Options, say: Say
) -> tuple[dict[str, Callable[..., Measured]], list[str]]:
    """Those that are installed, and a sentence for each that is not."""
    contestants: dict[str, Callable[..., Measured]] = {OURS: others.run_ours}
    skipped = []
    for peer in options.peers:
        missing = others.missing(peer)
        if missing:
            skipped.append(f"{peer} is skipped: {' and '.join(missing)} not installed")
            say(skipped[-1])
        else:
            contestants[peer] = others.PEERS[peer]
    return contestants, skipped


def verdicts(rows: list[Measured], goal: float) -> Iterator[str]:
    """A sentence for each goal, met or not met; `goal` is the ESS of a finished run."""
    sampling, end_to_end = (
        _ratios(rows, value) for value in (lambda row: row.rate, lambda row: row.end_to_end(goal))
    )
    for num_data in sorted({row.num_data for row in rows}):
        ours = next(row for row in rows if row.num_data == num_data and row.sampler == OURS)
        at = f"N = {num_data:,}"
        if num_data in sampling:
            goals = SAMPLING_GOALS.get(num_data), END_TO_END_GOALS.get(num_data)
            yield f"{at}: {_ratio('while sampling', sampling[num_data], goals[0])}"
            yield f"{at}: {_ratio('end to end', end_to_end[num_data], goals[1])}"
        good = ours.error_mean < MEAN_GOAL and ours.error_sd < SD_GOAL
        yield (
            f"{at}: errors of infer at most {ours.error_mean:.3f} sd (means) and "
            f"{100 * ours.error_sd:.1f} % (sds); goal below {MEAN_GOAL:g} sd and "
            f"{100 * SD_GOAL:g} %: {_met(good)}"
        )
    if len(sampling) > 1:
        both = (("while sampling", sampling), ("end to end", end_to_end))
        yield "; ".join(_overtaking_text(what, ratios) for what, ratios in both)
    yield from _growth(rows)


def _growth(rows: list[Measured]) -> Iterator[str]:
    """A step's time at the largest N against the smallest that takes batches."""
    batches = [r for r in rows if r.sampler == OURS and "batches" in r.note]
    if len({r.num_data for r in batches}) > 1:
        first, last = batches[0], batches[-1]
        growth = last.microseconds / first.microseconds
        yield (
            f"a step of infer's kernel takes {first.microseconds:.1f} us at N = "
            f"{first.num_data:,} and {last.microseconds:.1f} us at N = {last.num_data:,}, "
            f"{growth:.2f} times as long; goal at most {GROWTH_GOAL:g}: "
            f"{_met(growth <= GROWTH_GOAL)}"
        )


def _overtaking_text(what: str, ratios: dict[int, float]) -> str:
    at, sizes = overtaking(ratios), list(ratios)
    if at is not None:
        return f"{what}, infer overtakes the best NUTS at about {float(f'{at:.1g}'):,.0f} rows"
    ahead = ratios[sizes[-1]] > 1
    where = f"from {sizes[0]:,}" if ahead else f"up to {sizes[-1]:,}"
    return f"{what}, {'infer' if ahead else 'NUTS'} is ahead {where} rows"


def _ratio(what: str, ratio: float, goal: float | None) -> str:
    text = f"{what}, infer makes {ratio:.3g} times the best NUTS's ESS per second"
    return text if goal is None else f"{text}; goal at least {goal:g}: {_met(ratio >= goal)}"


def _met(good: bool) -> str:
    return "met" if good else "NOT MET"


def _ratios(rows: list[Measured], value: Callable[[Measured], float]) -> dict[int, float]:
    """By the number of rows, ours over the best peer's; sizes without peers are left out."""
    ratios = {}
    for num_data in sorted({row.num_data for row in rows}):
        here = [row for row in rows if row.num_data == num_data]
        peers = [value(row) for row in here if row.sampler != OURS]
        ours = [value(row) for row in here if row.sampler == OURS]
        if peers and ours:
            ratios[num_data] = ours[0] / max(peers)
    return ratios


def overtaking(ratios: dict[int, float]) -> float | None:
    """The number of rows from which on a ratio is above 1, by straight lines on log scales.

    None where it is always above 1, or below at the end. The ratios are by rows, ascending.
    """
    points = [(math.log(n), math.log(ratio)) for n, ratio in ratios.items()]
    below = [k for k, (_, ratio) in enumerate(points) if ratio < 0]
    if not below or below[-1] == len(points) - 1:
        return None
    (n0, r0), (n1, r1) = points[below[-1] : below[-1] + 2]
    return math.exp(n0 - r0 * (n1 - n0) / (r1 - r0))
