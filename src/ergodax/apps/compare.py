"""`infer` against NUTS on logistic regressions of growing size: the run and its verdicts."""

import dataclasses
import os
from collections.abc import Callable, Iterator
from typing import Any

import jax
import pandas as pd

from ergodax.apps import compare_peers, compare_problem
from ergodax.apps.compare_measure import Limits, Measured

OURS = "ergodax infer"
SIZES = (500, 5_000, 50_000, 500_000, 5_000_000)
QUICK_SIZES = (500, 5_000, 50_000)
QUICK = Limits(goal=2_000.0, least=0.2, most=10.0)
SAMPLING_GOALS = {500: 0.8, 50_000: 50.0, 500_000: 400.0}
ALL_IN_GOALS = {50_000: 5.0, 500_000: 30.0}
MEAN_GOAL, SD_GOAL = 0.1, 0.1
GROWTH_GOAL = 1.5  # a step at the largest N against the smallest that takes batches


@dataclasses.dataclass(frozen=True)
class Options:
    """What is compared.

    Attributes:
        sizes: numbers of rows.
        dimension: coefficients.
        peers: whose NUTS, keys of `compare_peers.PEERS`.
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
        unknown = [name for name in self.peers if name not in compare_peers.PEERS]
        if unknown:
            known = ", ".join(compare_peers.PEERS)
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
    def table(self) -> pd.DataFrame:
        """A row for each size and sampler, numbers."""
        return pd.DataFrame(
            {
                "num_data": row.num_data,
                "sampler": row.sampler,
                "ess_per_second_sampling": row.rate,
                "ess_per_second_all_in": row.all_in(self.limits.goal),
                "seconds_to_goal": row.to_goal,
                "extrapolated": row.extrapolated,
                "setup_seconds": row.setup_seconds,
                "microseconds_per_step": row.microseconds,
                "error_mean": row.error_mean,
                "error_sd": row.error_sd,
                "ess": row.ess,
                "seconds": row.seconds,
                "note": row.note,
            }
            for row in self.rows
        )

    @property
    def verdicts(self) -> list[str]:
        """The goals, each met or not met."""
        return list(_verdicts(self.rows, self.limits.goal))


def run(options: Options, say: Callable[[str], None] = lambda text: None) -> Result:
    """Measure every contestant at every size.

    Args:
        options: see Options.
        say: called with a line before each measurement.
    """
    contestants: dict[str, Callable] = {OURS: compare_peers.run_ours}
    skipped = []
    for peer in options.peers:
        missing = compare_peers.missing(peer)
        if missing:
            skipped.append(f"{peer} is skipped: {' and '.join(missing)} not installed")
            say(skipped[-1])
        else:
            contestants[peer] = compare_peers.PEERS[peer]
    rows, errors = [], {}
    load = os.getloadavg()[0]
    for num_data in options.chosen:
        say(f"{num_data:,} rows: making the data and the reference")
        problem = compare_problem.make(num_data, options.dimension, options.seed)
        errors[str(num_data)] = problem.reference.error
        for measure in contestants.values():
            jax.clear_caches()  # everybody compiles for himself
            row = measure(problem, options.seed, options.limits)
            rows.append(row)
            say(
                f"  {row.sampler}: {row.rate:,.0f} effective draws a second while sampling, "
                f"{row.to_goal:.1f} s all in, {row.setup_seconds:.1f} s of them set-up"
            )
    facts = {
        "dimension": options.dimension, "sizes": list(options.chosen), "seed": options.seed,
        "goal_ess": options.limits.goal, "chains": compare_peers.CHAINS,
        "cores": len(os.sched_getaffinity(0)), "load_before": load,
        "load_after": os.getloadavg()[0], "device": str(jax.devices()[0]),
        "reference_errors": errors, "skipped": skipped,
    }  # fmt: skip
    result = Result(rows, skipped, facts, options.limits)
    facts["rows"] = result.table.to_dict("records")
    facts["verdicts"] = result.verdicts
    return result


def _verdicts(rows: list[Measured], goal: float) -> Iterator[str]:
    for num_data in sorted({row.num_data for row in rows}):
        ours = next(row for row in rows if row.num_data == num_data and row.sampler == OURS)
        peers = [row for row in rows if row.num_data == num_data and row.sampler != OURS]
        at = f"N = {num_data:,}"
        if peers:
            ratio = ours.rate / max(row.rate for row in peers)
            yield f"{at}: {_ratio('while sampling', ratio, SAMPLING_GOALS.get(num_data))}"
            ratio = ours.all_in(goal) / max(row.all_in(goal) for row in peers)
            yield f"{at}: {_ratio('all in', ratio, ALL_IN_GOALS.get(num_data))}"
        good = ours.error_mean < MEAN_GOAL and ours.error_sd < SD_GOAL
        yield (
            f"{at}: errors of infer at most {ours.error_mean:.3f} sd (means) and "
            f"{100 * ours.error_sd:.1f} % (sds); goal below {MEAN_GOAL:g} sd and "
            f"{100 * SD_GOAL:g} %: {_met(good)}"
        )
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


def _ratio(what: str, ratio: float, goal: float | None) -> str:
    text = f"{what}, infer makes {ratio:.3g} times the best NUTS's effective draws a second"
    return text if goal is None else f"{text}; goal at least {goal:g}: {_met(ratio >= goal)}"


def _met(good: bool) -> str:
    return "met" if good else "NOT MET"
