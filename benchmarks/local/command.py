"""Local learning coefficients with nothing set, beside what they are.

    python -m benchmarks local rank-6-4-6 --keys 3

A line for each case and key: the estimate with its error, the reference (exact, by quadrature, or
by long exact runs, with their standard error), the coefficient as n grows, whether the error covers
the reference (two standard errors of it allowed), the verdict, the seconds. Where --devinterp names
an interpreter that has devinterp, its estimates of the linear networks stand below, at its defaults
and several learning rates. With --large: what 5 to 40 million parameters cost. At the end there is
a line for each case; --store FILE keeps the figures of each key, so that keys may come in several
runs, and --markdown FILE writes the table of all that were kept.
"""

import argparse
import json
import math
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import ergodax as ex
from benchmarks.local import large
from benchmarks.local.cases import CASES, Case
from benchmarks.report import Table

COLUMNS = "{:<22}{:>10}{:>10}{:>9}{:>18}{:>8}{:>9}{:>9} {}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the lines, and how many errors covered."""
    parser = argparse.ArgumentParser(
        "python -m benchmarks local",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("cases", nargs="*", help=f"by default all: {', '.join(CASES)}")
    parser.add_argument("--keys", type=int, default=1, help="of each case")
    parser.add_argument("--seconds", type=float, default=600.0, help="max_seconds of each")
    parser.add_argument("--verbose", action="store_true", help="print the results whole")
    parser.add_argument("--devinterp", metavar="PYTHON", help="an interpreter that has devinterp")
    parser.add_argument("--large", action="store_true", help="memory and step of large networks")
    parser.add_argument("--store", type=Path, metavar="FILE", help="of JSON lines, added to")
    parser.add_argument("--first-key", type=int, default=0, help="the number of the first key")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table")
    given = parser.parse_args(arguments)
    unknown = [name for name in given.cases if name not in CASES]
    if unknown:
        parser.error(f"no case {unknown[0]!r}; there are {', '.join(CASES)}")
    if given.large:
        print(large.step(rounds=7).text(), flush=True)
        print(large.memory(given.seconds).text())
        return
    table = summary(_records(given))
    print(f"\n{table.text()}")
    if given.markdown is not None:
        given.markdown.write_text(table.markdown() + "\n", encoding="utf-8")


def _records(given: argparse.Namespace) -> list[dict[str, Any]]:
    """What the keys came to, as it is printed; before them those that were kept."""
    head = ("case", "parameters", "estimate", "error", "reference", "off", "n -> oo", "covered")
    print(COLUMNS.format(*head, "verdict, seconds"))
    records = []
    if given.store is not None and given.store.exists():
        records = [json.loads(line) for line in given.store.read_text().splitlines()]
    for name in given.cases or CASES:
        case = CASES[name]()
        reference = case.reference()
        for number in range(given.first_key, given.first_key + given.keys):
            record, found = estimated(name, case, number, given.seconds, *reference)
            records.append(record)
            print(line(record), flush=True)
            if given.store is not None:
                with given.store.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(record) + "\n")
            if given.verbose:
                print(found, flush=True)
        if given.devinterp and isinstance(case.data, tuple):
            print(by_devinterp(given.devinterp, case, reference[0]), flush=True)
    return records


def estimated(
    name: str, case: Case, number: int, max_seconds: float, reference: float, error: float
) -> tuple[dict[str, Any], ex.local.LearningCoefficient]:
    """The figures of a key, and what was found."""
    began = time.perf_counter()
    found = ex.local.learning_coefficient(
        case.loss,
        case.weights,
        case.data,
        key=jax.random.key(number),
        temperature=case.temperature,
        localization=case.localization,
        max_seconds=max_seconds,
    )
    covers = abs(found.estimate - reference) <= found.error + 2.0 * error
    record = {
        "case": name, "parameters": found.num_parameters, "estimate": found.estimate,
        "error": found.error, "reference": reference, "reference error": error,
        "limit": case.asymptotic, "covered": bool(covers), "verdict": found.verdict,
        "seconds": time.perf_counter() - began,
    }  # fmt: skip
    return record, found


def line(record: dict[str, Any]) -> str:
    """A line of the terminal."""
    cells = (
        record["case"], f"{record['parameters']:,}", f"{record['estimate']:.4g}",
        f"{record['error']:.2g}", _known(record), f"{_off(record):+.1%}", f"{record['limit']:g}",
        "yes" if record["covered"] else "NO", f"{record['verdict']}, {record['seconds']:.1f}",
    )  # fmt: skip
    return COLUMNS.format(*cells)


def _known(record: dict[str, Any]) -> str:
    error = record["reference error"]
    return f"{record['reference']:.4g}" + (f" +- {error:.2g}" if error else "")


def _off(record: dict[str, Any]) -> float:
    return record["estimate"] / record["reference"] - 1.0


def summary(records: Iterable[dict[str, Any]]) -> Table:
    """A line a case: how far its keys are off on average and at most, and whether errors cover."""
    columns = ["case", "parameters", "reference", "n -> oo", "keys", "mean off", "worst off"]
    table = Table("local learning coefficients, nothing set", [*columns, "covered", "known", "s"])
    cases: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        cases.setdefault(record["case"], []).append(record)
    for name, of in sorted(cases.items(), key=lambda item: list(CASES).index(item[0])):
        off = [_off(record) for record in of]
        known = sum(record["verdict"] == "KNOWN" for record in of)
        seconds = statistics.median(record["seconds"] for record in of)
        cells = (
            name, f"{of[0]['parameters']:,}", _known(of[0]), f"{of[0]['limit']:g}", f"{len(of)}",
            f"{statistics.mean(off):+.1%}", f"{max(off, key=abs):+.1%}",
            f"{sum(record['covered'] for record in of)}", f"{known}", f"{seconds:.1f}",
        )  # fmt: skip
        table.rows.append(list(cells))
    covered = [record["covered"] for of in cases.values() for record in of]
    table.notes = [
        f"covered: {sum(covered)} of {len(covered)}; within the printed error, which is two "
        "standard errors, and two of the reference's",
        "s: the median of the keys, on one core of two that were busy",
    ]
    return table


def by_devinterp(python: str, case: Case, reference: float) -> str:
    """A line for each of devinterp's settings."""
    x, y = map(np.asarray, case.data)
    layers = [np.atleast_2d(np.asarray(w)) for w in jax.tree.leaves(case.weights)]
    arrays: dict[str, Any] = {f"w{number}": layer for number, layer in enumerate(layers)}
    arrays |= {"x": x, "y": y.reshape(len(x), -1), "gamma": case.localization}
    arrays["t"] = len(x) / math.log(len(x))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "case.npz")
        np.savez(file, **arrays)
        call = [python, Path(__file__).with_name("peer.py"), file]
        made = subprocess.run(call, capture_output=True, text=True, check=True)
    lines = []
    for found in map(json.loads, made.stdout.splitlines()):
        mean, spread = found["llc_mean"], found["llc_std"]
        lines.append(
            f"  devinterp, {found['method']}, lr {found['rate']:g}: {mean:.4g} (sd of chains "
            f"{spread:.2g}), {mean / reference - 1.0:+.0%}, {found['seconds']:.1f} s"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
