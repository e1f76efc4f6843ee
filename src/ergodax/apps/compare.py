"""`infer` against NUTS on logistic regressions: the race and its verdicts."""

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import pandas as pd

from ergodax.apps import compare_ours, compare_peers, compare_problem, compare_verdicts
from ergodax.apps.compare_measure import CHAINS, OURS, Limits, Measured
from ergodax.apps.compare_problem import Problem

SIZES = (500, 5_000, 50_000, 500_000, 5_000_000)
QUICK_SIZES = (500, 5_000, 50_000)
PATIENCE = 4.0  # as much time, where the table is large and the posterior had to be sampled
QUICK = Limits(goal=2_000.0, least=0.2, most=10.0)


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
                "gradients_per_effective_draw": row.gradients_each,
                "error_mean": row.error_mean,
                "error_sd": row.error_sd,
                "ess": row.ess,
                "seconds": row.seconds,
                "note": row.note,
            }
            for row in self.rows
        )

    @property
    def overtakes(self) -> float | None:
        """The number of rows at which infer overtakes the best NUTS all in."""
        return compare_verdicts.overtaking_all_in(self.rows, self.limits.goal)

    @property
    def verdicts(self) -> list[str]:
        """The goals, each met or not met."""
        return list(compare_verdicts.verdicts(self.rows, self.limits.goal))


def run(options: Options, say: Callable[[str], None] = lambda text: None) -> Result:
    """Measure every contestant at every size.

    Args:
        options: see Options.
        say: called with a line before each measurement.
    """

    def problems() -> Iterator[Problem]:
        for num_data in options.chosen:
            say(f"{num_data:,} rows: making the data and the reference")
            yield compare_problem.make(num_data, options.dimension, options.seed)

    return race(problems(), "logistic regression by number of rows", options, say)


def race(
    problems: Iterable[Problem],
    what: str,
    options: Options,
    say: Callable[[str], None] = lambda text: None,
) -> Result:
    """Measure every contestant on every problem.

    Args:
        problems: each with its reference.
        what: they are, for the title.
        options: whose peers, limits and seed are used.
        say: called with a line after each measurement.
    """
    contestants, skipped = _contestants(options, say)
    rows, references = [], {}
    load, dimension, prior_scale = os.getloadavg()[0], 0, 0.0
    for problem in problems:
        known, dimension, prior_scale = problem.reference, problem.dimension, problem.prior_scale
        references[str(problem.num_data)] = {"error": known.error, "told": known.told}
        limits = options.limits
        if compare_problem.is_large(problem) and known.draws is not None:
            limits = dataclasses.replace(limits, most=PATIENCE * limits.most)
        for measure in contestants.values():
            jax.clear_caches()  # everybody compiles for himself
            row = measure(problem, options.seed, limits)
            rows.append(row)
            say(
                f"  {row.sampler}: {row.rate:,.3g} effective draws a second while sampling, "
                f"{row.to_goal:,.1f} s all in, {row.setup_seconds:,.1f} s of them set-up"
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
    facts["rows"] = result.table.to_dict("records")
    facts["overtakes_at"] = result.overtakes
    facts["verdicts"] = result.verdicts
    return result


def _contestants(
    options: Options, say: Callable[[str], None]
) -> tuple[dict[str, Callable[..., Measured]], list[str]]:
    """Those that are installed, and a sentence for each that is not."""
    contestants: dict[str, Callable[..., Measured]] = {OURS: compare_ours.run_ours}
    skipped = []
    for peer in options.peers:
        missing = compare_peers.missing(peer)
        if missing:
            skipped.append(f"{peer} is skipped: {' and '.join(missing)} not installed")
            say(skipped[-1])
        else:
            contestants[peer] = compare_peers.PEERS[peer]
    return contestants, skipped
