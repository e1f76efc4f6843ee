"""The stored references: read, and made again."""

import time
from collections.abc import Sequence

import jax

from benchmarks.strangers.bank import Absent, Case
from benchmarks.strangers.reference import FOLDER, Reference


def reference(case: Case) -> Reference | None:
    """The answer of a case, None where there is none.

    Args:
        case: of the bank.

    Raises:
        FileNotFoundError: it has not been computed.
    """
    path = FOLDER / f"{case.name}.json"
    if path.exists():
        return Reference.load(path)
    with jax.enable_x64(True):
        problem = case.make()
    if problem.exact is None and problem.compute is not None:
        raise FileNotFoundError(f"{path}: make it by --make-references {case.name}")
    return problem.exact


def compute(case: Case) -> Reference | None:
    """The answer in double precision, computed anew.

    Args:
        case: of the bank.
    """
    with jax.enable_x64(True):
        problem = case.make()
        return problem.exact if problem.compute is None else problem.compute()


def references(cases: Sequence[Case]) -> None:
    """Compute and store the references of those cases that have no closed form.

    Args:
        cases: of the bank.
    """
    FOLDER.mkdir(exist_ok=True)
    for case in cases:
        begin = time.perf_counter()
        try:
            with jax.enable_x64(True):
                problem = case.make()
                if problem.compute is None:
                    continue
                made = problem.compute()
            made.save(FOLDER / f"{case.name}.json")
        except (Absent, ValueError) as reason:
            print(f"{case.name}: not made, {reason}", flush=True)
            continue
        took = time.perf_counter() - begin
        errors = f"errors {made.error_mean:.2g}, {made.error_sd:.2g}"
        print(f"{case.name}: {made.how}; {errors}; {took:.0f} s", flush=True)
