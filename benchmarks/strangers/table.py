"""The table of a run of the bank, and its totals."""

from collections.abc import Callable

import numpy as np

from benchmarks.environment import describe
from benchmarks.report import Table
from benchmarks.strangers import judge
from benchmarks.strangers.judge import Judged

COLUMNS = (
    "case", "precision, key", "outcome", "error of mean, sd", "of sd, %", "reported, sd", "s",
    "verdict",
)  # fmt: skip
WIDTH = 100  # of a verdict in the table


def text(rows: list[Judged]) -> str:
    """Aligned with spaces."""
    return _table(rows, 60).text()


def markdown(rows: list[Judged]) -> str:
    """As a page."""
    return _table(rows, WIDTH).markdown().removeprefix("#") + "\n"


def totals(rows: list[Judged]) -> list[str]:
    """The counts of the outcomes, in sentences."""
    ran = [row for row in rows if row.outcome != judge.SKIPPED]
    count = {word: sum(row.outcome == word for row in ran) for word in (
        judge.RIGHT, judge.LOUD, judge.SILENT, judge.TRACEBACK)}  # fmt: skip
    late = sum(row.late for row in ran)
    loud = [row for row in ran if row.outcome == judge.LOUD]
    named = sum(bool(row.cause_named) for row in loud)
    share = count[judge.RIGHT] / max(len(ran), 1)
    return [
        f"{len(ran)} runs of {len({row.name for row in ran})} posteriors: {count[judge.RIGHT]} "
        f"right ({share:.0%}), {count[judge.LOUD]} loud ({named} of them with the true cause), "
        f"{count[judge.SILENT]} silent wrong, {count[judge.TRACEBACK]} tracebacks, {late} over "
        f"time (more than max_seconds + 10 % + 5 s), {len(rows) - len(ran)} skipped.",
    ]


def leaderboard(rows: list[Judged]) -> Table:
    """Infer and its peers: what became of each posterior, and the seconds.

    Args:
        rows: of all, on the same posteriors.
    """
    who = list(dict.fromkeys(row.by for row in rows))
    found = {(row.by, row.name, row.precision, row.key): row for row in rows}
    questions = list(dict.fromkeys((row.name, row.precision, row.key) for row in rows))
    made = Table("The same posteriors, infer and its peers", ("posterior", *who))
    made.rows += [
        [f"**{title}**", *(count(of) for of in _by(rows, who))] for title, count in COUNTS
    ]
    for name, precision, key in questions:
        cells = [found.get((by, name, precision, key)) for by in who]
        made.rows.append([name, *(_cell(row) for row in cells)])
    given = ", ".join(f"{x:g}" for x in sorted({row.given for row in rows}))
    around = describe()
    made.notes += [
        f"infer and posteriors were given {given} s; who has no answer after a tenth and 20 s more "
        "is over time. Seconds: from import to answer, compilation included.",
        "Peers: 4 chains, 1,000 steps of adaptation and 1,000 draws, starts within 2 of infer's. "
        "They say converged where R-hat is at most 1.01, the effective sample size at least 400, "
        "and at most one draw in 1,000 diverged. posteriors: SGLD on batches of 100 rows, at the "
        "smallest learning rate, from 10 to .01, of which they say so; where there are more rows.",
        "right: converged, and no error is so many of the reported ones as one honest answer in "
        f"{1 / judge.FALSE_ALARM:,.0f} has. loud: said that it has not converged. SILENT WRONG: "
        "converged, and not so. traceback: an exception, no start found among them.",
        *(f"{key}: {around[key]}" for key in ("date", "ergodax", "jax", "cores")),
    ]
    return made


def _by(rows: list[Judged], who: list[str]) -> list[list[Judged]]:
    """The rows of each, without what was skipped."""
    return [[r for r in rows if r.by == by and r.outcome != judge.SKIPPED] for by in who]


def _counting(outcome: str) -> Callable[[list[Judged]], str]:
    return lambda rows: f"{sum(row.outcome == outcome for row in rows)} of {len(rows)}"


def _median(rows: list[Judged]) -> str:
    seconds = [row.seconds for row in rows if row.outcome == judge.RIGHT and row.seconds]
    return f"{np.median(seconds):.1f} s" if seconds else ""


COUNTS: tuple[tuple[str, Callable[[list[Judged]], str]], ...] = (
    *((each, _counting(each)) for each in (
        judge.RIGHT, judge.LOUD, judge.SILENT, judge.TRACEBACK, judge.OVER)),
    ("median of the right ones", _median),
)  # fmt: skip


def _cell(row: Judged | None) -> str:
    if row is None or row.outcome == judge.SKIPPED:
        return ""
    took = "" if row.seconds is None or row.outcome == judge.OVER else f", {row.seconds:.1f} s"
    return row.outcome + took


def _table(rows: list[Judged], width: int) -> Table:
    made = Table("Strangers' posteriors", COLUMNS, notes=[*totals(rows), *_reading(rows)])
    for row in rows:
        outcome = row.outcome
        if outcome == judge.LOUD:
            outcome += ", true cause" if row.cause_named else ", no cause"
        if row.late and row.outcome != judge.OVER:
            outcome += ", late"
        verdict = " ".join(row.verdict.split()).replace("|", "/")
        made.rows.append([
            row.name, f"{row.precision}, {row.key}", outcome, _number(row.error_mean),
            _number(None if row.error_sd is None else 100.0 * row.error_sd),
            _number(row.reported), _number(row.seconds),
            verdict if len(verdict) <= width else verdict[: width - 3] + "...",
        ])  # fmt: skip
    return made


def _reading(rows: list[Judged]) -> list[str]:
    given = ", ".join(f"{x:g}" for x in sorted({row.given for row in rows}))
    return [
        f"infer was given {given} s. s: from import to verdict, without the making of the data.",
        "error: the largest of any component against the reference, in posterior sd. reported: the "
        "largest that infer told, one standard error plus bias.",
        "right: converged, and no error is so many of the reported ones as one honest answer in "
        f"{1 / judge.FALSE_ALARM:,.0f} has; where means or sds don't exist, not converged and the "
        "cause is named. SILENT WRONG: converged, and not so.",
    ]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"
