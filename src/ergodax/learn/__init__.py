"""Models that are learnt from data in one call. None is imported before it is used.

Tables are read and prepared here, and the regressions of `ergodax infer` stand here.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ergodax.learn import regression, tables, topics

__all__ = ["regression", "tables", "topics"]


def __getattr__(name: str) -> Any:
    """`learn.regression` and the others, imported when they are asked for."""
    if name in __all__:
        return importlib.import_module(f"ergodax.learn.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
