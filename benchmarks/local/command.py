"""Local learning coefficients with nothing set, beside what they are.

    python -m benchmarks local rank-6-4-6 --keys 3

A line for each case and key: the estimate with its error, the reference (exact, by quadrature, or
by long exact runs, with their standard error), the coefficient as n grows, whether the error covers
the reference (two standard errors of it allowed), the verdict, the seconds. Where --devinterp names
an interpreter that has devinterp, its estimates of the linear networks stand below, at its defaults
and several learning rates. With --large: what 5 to 40 million parameters cost.
"""

import argparse
import json
import math
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import ergodax as ex
from benchmarks.local import large
from benchmarks.local.cases import CASES, Case

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
    given = parser.parse_args(arguments)
    unknown = [name for name in given.cases if name not in CASES]
    if unknown:
        parser.error(f"no case {unknown[0]!r}; there are {', '.join(CASES)}")
    if given.large:
        print(large.step(rounds=7).text(), flush=True)
        print(large.memory(given.seconds).text())
        return
    head = ("case", "parameters", "estimate", "error", "reference", "off", "n -> oo", "covered")
    print(COLUMNS.format(*head, "verdict, seconds"))
    covered = []
    for name in given.cases or CASES:
        case = CASES[name]()
        reference = case.reference()
        for number in range(given.keys):
            line, inside, found = estimated(name, case, number, given.seconds, *reference)
            covered.append(inside)
            print(line, flush=True)
            if given.verbose:
                print(found, flush=True)
        if given.devinterp and isinstance(case.data, tuple):
            print(by_devinterp(given.devinterp, case, reference[0]), flush=True)
    print(f"covered: {sum(covered)} of {len(covered)}")


def estimated(
    name: str, case: Case, number: int, max_seconds: float, reference: float, error: float
) -> tuple[str, bool, ex.local.LearningCoefficient]:
    """The line of a key, whether the error covers, and what was found."""
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
    seconds = time.perf_counter() - began
    inside = abs(found.estimate - reference) <= found.error + 2.0 * error
    known = f"{reference:.4g}" + (f" +- {error:.2g}" if error else "")
    cells = (
        name, f"{found.num_parameters:,}", f"{found.estimate:.4g}", f"{found.error:.2g}",
        known, f"{found.estimate / reference - 1.0:+.1%}", f"{case.asymptotic:g}",
        "yes" if inside else "NO", f"{found.verdict}, {seconds:.1f}",
    )  # fmt: skip
    return COLUMNS.format(*cells), inside, found


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
