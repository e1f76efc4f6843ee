"""From what infer said and what is true: right, loud, silently wrong, a traceback, over time."""

import dataclasses
from typing import Any

import numpy as np
from scipy.stats import norm

from benchmarks.strangers.bank import Case
from benchmarks.strangers.reference import Reference

FALSE_ALARM = 1e-4  # that an honest answer is called silently wrong
USED = 0.8  # of the time given, from which on "too little time" is a true cause
RIGHT, LOUD, SILENT = "right", "loud", "SILENT WRONG"
INFER = "infer"
TRACEBACK, OVER, SKIPPED = "traceback", "over time", "skipped"


@dataclasses.dataclass
class Judged:
    """One run of one case.

    Attributes:
        name: of the case.
        family: of the case.
        precision: float32 or float64.
        key: number of the key.
        given: seconds that infer was given.
        outcome: one of the words above.
        verdict: what infer said, or the error, or why there is no verdict.
        cause_named: whether a verdict of "not converged" names the true cause.
        error_mean: the largest error of a mean, in posterior sd; None where there is no answer.
        error_sd: of a standard deviation, relative to it.
        reported: the largest error that infer told.
        seconds: from import to verdict, without the making of the data.
        late: whether infer took more than its seconds + 10 % + 5 s.
        account: infer's own decision log, and the table's extremes.
        by: who answered, infer or one of its peers.
    """

    name: str
    family: str
    precision: str
    key: int
    given: float
    outcome: str
    verdict: str
    cause_named: bool | None = None
    error_mean: float | None = None
    error_sd: float | None = None
    reported: float | None = None
    seconds: float | None = None
    late: bool = False
    account: str = ""
    by: str = INFER


def limit(seconds: float) -> float:
    """How long infer may take when it was given so many seconds."""
    return 1.1 * seconds + 5.0


def judge(case: Case, reference: Reference | None, found: dict[str, Any], run: Judged) -> Judged:
    """Fill in what is known of a run that came to a verdict.

    An answer is silently wrong if it says "converged" and there is no answer, or an error is so
    many of the standard errors it reported (its own and the reference's together) as one honest
    answer in 10,000 has in any component.

    Args:
        case: what was run.
        reference: None where there is no answer.
        found: what the process wrote: `converged`, `verdict`, `mean`, `sd`, `error`, seconds of
            `infer` and `total`, `account`.
        run: with name, precision, key and given time.
    """
    converged, total = bool(found["converged"]), float(found["infer"])
    run.verdict, run.account = found["verdict"], found["account"]
    run.seconds, run.late = float(found["total"]), total > limit(run.given)
    reported = np.asarray(found["error"], np.float64)
    run.reported = float(np.max(reported)) if np.isfinite(reported).all() else float("nan")
    honest = case.proper
    if reference is not None:
        mean, sd = (np.asarray(found[name], np.float64) for name in ("mean", "sd"))
        off = np.abs(mean - reference.mean) / reference.sd, np.abs(sd / reference.sd - 1.0)
        run.error_mean, run.error_sd = float(off[0].max()), float(off[1].max())
        many = norm.isf(FALSE_ALARM / (4 * mean.size))
        known = reference.error_mean, reference.error_sd
        honest = all(
            bool((one <= many * np.hypot(reported, own)).all())
            for one, own in zip(off, known, strict=True)
        )
    if converged:
        run.outcome = RIGHT if honest else SILENT
        return run
    run.cause_named = case.names_cause(run.verdict, total > USED * run.given)
    right = not case.proper and run.cause_named
    run.outcome = RIGHT if right else LOUD
    return run
