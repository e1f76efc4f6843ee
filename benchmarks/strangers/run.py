"""One case in a process of its own: `python -m benchmarks.strangers.run NAME --seconds 60`."""

import time

BEGIN = time.perf_counter()  # before JAX and ergodax are imported, whose time a user waits for too

import argparse  # noqa: E402
import json  # noqa: E402
import traceback  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import jax  # noqa: E402
import numpy as np  # noqa: E402

import ergodax as ex  # noqa: E402
from benchmarks.strangers import bank, judge, peers  # noqa: E402

LINES = 12  # of a traceback that are kept


def main(arguments: Sequence[str] | None = None) -> None:
    """Run infer on one case, print what it says, and write what the judge needs."""
    parser = argparse.ArgumentParser("python -m benchmarks.strangers.run", description=__doc__)
    parser.add_argument("name", help="of the case")
    parser.add_argument("--seconds", type=float, default=120.0, help="max_seconds of infer")
    parser.add_argument("--key", type=int, default=0, help="number of the key")
    parser.add_argument("--float64", action="store_true", help="double precision")
    parser.add_argument("--by", choices=[judge.INFER, *peers.PEERS], default=judge.INFER)
    parser.add_argument("--output", type=Path, help="file of what was found, as JSON")
    given = parser.parse_args(arguments)
    if given.float64:
        jax.config.update("jax_enable_x64", True)
    imported = time.perf_counter() - BEGIN
    try:
        problem = bank.cases()[given.name].make()
        found = answer(given.by, problem, given.key, given.seconds, imported)
    except bank.Absent as reason:
        found = {"skipped": str(reason)}
    if given.output:
        given.output.write_text(json.dumps(found), encoding="utf-8")


def answer(
    by: str, problem: bank.Problem, key: int, seconds: float, imported: float
) -> dict[str, Any]:
    """What infer or a peer says, and how long it took; an exception is told as such.

    Args:
        by: who answers.
        problem: the question.
        key: its number.
        seconds: that may be taken.
        imported: the seconds that the imports took.

    Raises:
        Absent: the peer has no answer to questions of this kind.
    """
    begin = time.perf_counter()
    try:
        if by == judge.INFER:
            return infer(problem, key, seconds, imported)
        found = peers.answer(by, problem, key, seconds, imported)
        print(f"{found['verdict']}\n\n{found['infer']:.1f} s, and {imported:.1f} s of imports")
        return found
    except bank.Absent:
        raise
    except Exception as error:
        traceback.print_exc()
        text = "".join(traceback.format_exception(error)[-LINES:])
        name = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        return {"raised": name, "account": text, "infer": time.perf_counter() - begin}


def infer(problem: bank.Problem, key: int, seconds: float, imported: float) -> dict[str, Any]:
    """What infer says; the arguments are those of `answer`."""
    begin = time.perf_counter()
    result = ex.infer(
        problem.target, problem.start, key=jax.random.key(key), max_seconds=seconds, progress=False
    )
    verdict, text = result.verdict(), str(result)
    took = time.perf_counter() - begin
    print(f"{text}\n\n{took:.1f} s, and {imported:.1f} s of imports")
    table = {name: np.asarray(result.table[name], np.float64) for name in ("mean", "sd", "error")}
    return {
        "converged": bool(result.converged),
        "verdict": verdict,
        **{name: values.tolist() for name, values in table.items()},
        "infer": took,
        "total": took + imported,
        "account": str(result.account),
    }


if __name__ == "__main__":
    main()
