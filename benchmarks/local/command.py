"""Local learning coefficients with nothing set, beside what they are.

    python -m benchmarks local rank-6-4-6 --keys 3

A line for each case and key: the estimate with its error, the reference (exact, by quadrature, or
by long exact runs, with their standard error), the coefficient as n grows, whether the error covers
the reference (two standard errors of it allowed), the verdict, the seconds.
"""

import argparse
import time
from collections.abc import Sequence

import jax

import ergodax as ex
from benchmarks.local.cases import CASES


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the lines, and how many errors covered."""
    parser = argparse.ArgumentParser("python -m benchmarks local", description=__doc__)
    parser.add_argument("cases", nargs="*", help=f"by default all: {', '.join(CASES)}")
    parser.add_argument("--keys", type=int, default=1, help="of each case")
    parser.add_argument("--seconds", type=float, default=600.0, help="max_seconds of each")
    parser.add_argument("--verbose", action="store_true", help="print the results whole")
    given = parser.parse_args(arguments)
    unknown = [name for name in given.cases if name not in CASES]
    if unknown:
        parser.error(f"no case {unknown[0]!r}; there are {', '.join(CASES)}")
    head = ("case", "parameters", "estimate", "error", "reference", "off", "n -> oo", "covered")
    columns = "{:<22}{:>10}{:>10}{:>9}{:>18}{:>8}{:>9}{:>9} {}"
    print(columns.format(*head, "verdict, seconds"))
    covered, total = 0, 0
    for name in given.cases or CASES:
        case = CASES[name]()
        reference, error = case.reference()
        for number in range(given.keys):
            began = time.perf_counter()
            found = ex.local.learning_coefficient(
                case.loss,
                case.weights,
                case.data,
                key=jax.random.key(number),
                temperature=case.temperature,
                localization=case.localization,
                max_seconds=given.seconds,
            )
            seconds = time.perf_counter() - began
            inside = abs(found.estimate - reference) <= found.error + 2.0 * error
            covered, total = covered + inside, total + 1
            known = f"{reference:.4g}" + (f" +- {error:.2g}" if error else "")
            cells = (
                name, f"{found.num_parameters:,}", f"{found.estimate:.4g}", f"{found.error:.2g}",
                known, f"{found.estimate / reference - 1.0:+.1%}", f"{case.asymptotic:g}",
                "yes" if inside else "NO", f"{found.verdict}, {seconds:.1f}",
            )  # fmt: skip
            print(columns.format(*cells), flush=True)
            if given.verbose:
                print(found, flush=True)
    print(f"covered: {covered} of {total}")


if __name__ == "__main__":
    main()
