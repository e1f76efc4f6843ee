"""Which right and which wrong recipes, equations and kernels does `verify` accept, and how fast?"""

import argparse
import time
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import ergodax as ex
from benchmarks.confusion import equations, kernels, recipes
from benchmarks.report import Table

SECONDS = 20.0  # the goal for each case


def said(report: ex.verify.Report | kernels.Judged) -> str:
    """What the report gives as the fault, in short."""
    if isinstance(report, kernels.Judged):
        return report.fault
    if report.ok:
        return ""
    if report.hidden:
        one = report.hidden[0]
        return f"{one.part} {'jumps' if one.jumps else 'is not differentiated'}"
    if report.corrected_by is not None:
        return report.corrected_by.fault
    if not report.auxiliary_right:
        return (report.auxiliary or "").partition(":")[0]
    return "no single term" if not report.invariant else "D or Q"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table of all cases and the confusion."""
    parser = argparse.ArgumentParser("python -m benchmarks confusion", description=__doc__)
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables there")
    given = parser.parse_args(arguments)
    columns = ("case", "verdict", "seconds", "CPU seconds", "fault that is named")
    table = Table("Every case", columns)
    counts = {(right, ok): 0 for right in (True, False) for ok in (True, False)}
    slowest, most, named = 0.0, 0.0, 0
    for case in chain(equations.cases(), recipes.cases(), kernels.cases()):
        if given.only not in case.name:
            continue
        begin, spent = time.perf_counter(), time.process_time()
        report = case.verify()
        seconds, spent = time.perf_counter() - begin, time.process_time() - spent
        slowest, most = max(slowest, seconds), max(most, spent)
        counts[case.right, report.ok] += 1
        fault = said(report)
        named += not case.right and fault not in ("", "no single term")
        verdict = "proved" if report.ok else "refuted"
        mark = "" if report.ok == case.right else " WRONGLY"
        table.rows.append([case.name, verdict + mark, f"{seconds:.1f}", f"{spent:.1f}", fault])
        took = f"{seconds:5.1f} s {spent:5.1f} s CPU"
        print(f"{verdict + mark:16} {took}  {case.name}  {fault}", flush=True)
    found = Table("Confusion", ("cases", "proved", "refuted"))
    for right, name in ((True, "right"), (False, "wrong")):
        found.rows.append([name, str(counts[right, True]), str(counts[right, False])])
    wrong = counts[False, False]
    found.notes = [
        f"The slowest case took {slowest:.1f} s (goal: under {SECONDS:.0f}), compilation included; "
        f"the most CPU time of one is {most:.1f} s.",
        f"Of {wrong} that were refuted rightly, {named} with the fault named.",
    ]
    print(f"\n{found.text()}")
    if given.markdown:
        text = "\n\n".join(part.markdown() for part in (found, table))
        title = "# Right and wrong recipes, equations and kernels, as `verify` judges them"
        given.markdown.write_text(f"{title}\n\n{text}\n", encoding="utf-8")
