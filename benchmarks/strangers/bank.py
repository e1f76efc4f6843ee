"""The bank: every posterior by name, what it is, and what the right answer to it is."""

import dataclasses
import importlib
import re
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from benchmarks.strangers.reference import Reference

FAMILIES = (
    "hierarchies", "shapes", "edges", "counts", "regression", "separation", "mixtures", "singular",
    "gaussian_process", "time_series", "responses", "posteriordb", "tables",
)  # fmt: skip
OUT_OF_TIME = r"\btime\b|max_seconds|seconds"  # a true cause for whom the time was used


class Absent(Exception):  # noqa: N818 (a case that can't be made here is no error)
    """A case needs a file or a package that is not here; the message says which."""


@dataclasses.dataclass(frozen=True)
class Problem:
    """What a user would hand to `infer`, and what is known of the answer.

    Attributes:
        target: an ex.Posterior or ex.Target.
        start: where a user would begin.
        exact: the answer in closed form; or
        compute: the computation, in double precision, of the one in references/; both None where
            there is no answer.
    """

    target: Any
    start: PyTree
    exact: Reference | None = None
    compute: Callable[[], Reference] | None = None


@dataclasses.dataclass(frozen=True)
class Case:
    """A posterior of the bank.

    Attributes:
        name: on the command line.
        family: the module that has it.
        what: one line for the table.
        make: simulates or reads the data and writes the model down.
        proper: whether means and standard deviations exist, so that there is an answer.
        causes: a regular expression of words that name what is hard here, without case; a verdict
            that says "not converged" and has one of them names the true cause.
    """

    name: str
    family: str
    what: str
    make: Callable[[], Problem]
    proper: bool = True
    causes: str | None = None

    def names_cause(self, verdict: str, used_time: bool) -> bool:
        """Whether a verdict says what is hard, or that the time was too short where it was.

        Args:
            verdict: in words.
            used_time: whether `infer` used the time that it was given.
        """
        patterns = [self.causes] if self.causes else []
        if self.proper and used_time:
            patterns.append(OUT_OF_TIME)
        return any(re.search(each, verdict, re.IGNORECASE) for each in patterns)


_CASES: dict[str, Case] = {}


def case(
    name: str, what: str, *, proper: bool = True, causes: str | None = None
) -> Callable[[Callable[[], Problem]], Callable[[], Problem]]:
    """Enter a function that makes a problem into the bank; the arguments are those of `Case`."""

    def enter(make: Callable[[], Problem]) -> Callable[[], Problem]:
        if name in _CASES:
            raise ValueError(f"two cases are called {name!r}")
        _CASES[name] = Case(name, make.__module__.split(".")[-1], what, make, proper, causes)
        return make

    return enter


def cases() -> dict[str, Case]:
    """All cases by name, in the order of the families."""
    for family in FAMILIES:
        importlib.import_module(f"benchmarks.strangers.{family}")
    return dict(sorted(_CASES.items(), key=lambda item: FAMILIES.index(item[1].family)))


def rows(*arrays: Any) -> Any:
    """Data with the same values in single and in double precision, so that both have one answer.

    Args:
        arrays: floats are rounded to single precision; integers stay.

    Returns:
        An array for one, a tuple for more.
    """
    made = []
    for array in map(np.asarray, arrays):
        if np.issubdtype(array.dtype, np.floating):
            made.append(jnp.asarray(array.astype(np.float32), dtype=float))
        else:
            made.append(jnp.asarray(array.astype(np.int32)))
    return made[0] if len(made) == 1 else tuple(made)


def zeros(**shapes: int | tuple[int, ...]) -> dict[str, Any]:
    """A dict of zeros, where most users begin: `zeros(mu=(), z=10)`."""
    return {name: jnp.zeros(shape) for name, shape in shapes.items()}
