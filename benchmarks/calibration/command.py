"""Are the errors that infer reports the errors that it makes?

Parameters are drawn from the prior, data from the model; `infer` sees the data. Over many data
sets the ranks of the parameters among the draws are uniform, and the errors of means and sds, in
units of those reported, have the spread 1. The references are exact, or by importance sampling.
"""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.calibration import measure
from benchmarks.calibration.families import FAMILIES
from benchmarks.environment import describe
from benchmarks.report import Table

COLUMNS = (
    *("family", "data sets", "converged", "chi2 of ranks", "p", "sd of z, means", "sd of z, sds"),
    *("95 % bounds hold", "seconds"),
)
P, SPREAD, COVERAGE = 0.01, (0.8, 1.1), 0.95  # the goals
ERRORS = 2.0  # standard errors: a bound of 95 % exactly is found below 95 % half of the time


def main(arguments: Sequence[str] | None = None) -> None:
    """Infer what is missing of each family, and print the table."""
    listed = "\n".join(f"  {name:<12}{family.what}" for name, family in FAMILIES.items())
    parser = argparse.ArgumentParser(
        "python -m benchmarks calibration",
        description=f"{__doc__}\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("families", nargs="*", choices=[[], *FAMILIES], help="by default all")
    parser.add_argument("--datasets", type=int, default=300, help="of each family")
    parser.add_argument("--rows", type=int, default=48, help="of each data set")
    parser.add_argument("--max-seconds", type=float, default=60.0, help="of each inference")
    parser.add_argument("--for", dest="limit", type=float, help="stop after so many seconds")
    parser.add_argument("--resume", action="store_true", help="keep what the file has")
    parser.add_argument("--json", type=Path, default=Path("runs/calibration.jsonl"))
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there")
    given = parser.parse_args(arguments)
    given.json.parent.mkdir(parents=True, exist_ok=True)
    if not given.resume:
        given.json.write_text("", encoding="utf-8")
    begin = time.perf_counter()
    for name in given.families or FAMILIES:
        done = {each["number"] for each in _known(given.json, name, given.rows)}
        for number in range(given.datasets):
            late = given.limit is not None and time.perf_counter() - begin > given.limit
            if number in done or late:
                continue
            found = measure.one(FAMILIES[name], number, given.rows, given.max_seconds)
            with given.json.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"family": name, **found}) + "\n")
            print(f"{name} {number}: {found['seconds']:.2f} s", flush=True)
    table = _table(given.json, given.rows)
    print(f"\n{table.text()}")
    if given.markdown:
        around = describe()
        table.notes += [f"{key}: {around[key]}" for key in ("date", "ergodax", "jax", "cores")]
        text = f"# Are infer's errors calibrated?\n\n{table.markdown()}\n"
        given.markdown.write_text(text, encoding="utf-8")


def _known(path: Path, name: str, rows: int) -> list[dict[str, Any]]:
    """What the file has of this family."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    entries = [json.loads(line) for line in lines]
    return [each for each in entries if (each["family"], each["rows"]) == (name, rows)]


def _table(path: Path, rows: int) -> Table:
    """A row for each family that the file has."""
    made = Table(f"Data sets of {rows} rows", COLUMNS)
    for name in FAMILIES:
        found = _known(path, name, rows)
        if not found:
            continue
        f = measure.figures(found)
        made.rows.append(
            [name, f"{f['datasets']:.0f}", f"{f['converged']:.1%}", f"{f['chi2']:.1f}"]
            + [f"{f['p']:.3f}", f"{f['sd_mean']:.3f}", f"{f['sd_sd']:.3f}"]
            + [f"{f['coverage']:.1%} +- {f['coverage_error']:.1%}", f"{f['seconds']:.1f}"]
        )
        low, high = SPREAD
        spread = all(low <= f[key] <= high for key in ("sd_mean", "sd_sd"))
        covered = f["coverage"] + ERRORS * f["coverage_error"] >= COVERAGE
        if f["p"] < P or not spread or not covered:
            made.notes.append(f"{name} misses a goal.")
    made.notes += [
        f"Goals: p at least {P:g}, sds of z in {SPREAD[0]:g} to {SPREAD[1]:g}; at least "
        f"{COVERAGE:.0%} of the bounds hold, to {ERRORS:g} of the standard errors shown.",
        f"Ranks among {measure.DRAWS} draws, in {measure.BINS} bins; of the components the least "
        "uniform, its p times their number. Seeds are the numbers of the data sets, from 0.",
        "Seconds: the median of one inference.",
    ]
    return made
