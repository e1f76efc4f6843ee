"""Compilation in haste, for programs that run once and for less time than it takes to compile them.

With XLA's optimisations a program such as the descents takes twice as long to compile, and runs
five times as fast.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx


def in_haste(function: Callable) -> Callable:
    """`eqx.filter_jit` without the optimisations of XLA's back end.

    Args:
        function: to be compiled.
    """
    options: Any = {"compiler_options": {"xla_backend_optimization_level": 0}}
    return eqx.filter_jit(function, **options)
