"""Levels of optimisation: programs that run for a moment are compiled without any.

With XLA's optimisations a program such as a descent takes twice as long to compile, and runs five
times as fast.
"""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import equinox as eqx

_SHORT_RUNS: ContextVar[bool] = ContextVar("short_runs", default=False)


def compiled_at(
    function: Callable, level: int = 0, more: dict[str, Any] | None = None, **options: Any
) -> Callable:
    """`eqx.filter_jit` without all the optimisations of XLA's back end.

    What it returns can't be called within another compiled program.

    Args:
        function: to be compiled.
        level: of optimisation, from 0 to 3. At 2 the samplers that were measured ran as fast as at
            3 and were compiled in four fifths of the time.
        more: options of XLA.
        options: of `eqx.filter_jit`.
    """
    compiler = {"xla_backend_optimization_level": level} | (more or {})
    settings: Any = {"compiler_options": compiler} | options
    return eqx.filter_jit(function, **settings)


@contextlib.contextmanager
def short_runs(short: bool = True) -> Iterator[None]:
    """Within it, in this thread, the draws of `sample` are made by an unoptimised program.

    They are the same up to rounding.

    Args:
        short: False changes nothing.
    """
    token = _SHORT_RUNS.set(short)
    try:
        yield
    finally:
        _SHORT_RUNS.reset(token)


def runs_are_short() -> bool:
    """Whether `short_runs` holds here."""
    return _SHORT_RUNS.get()
