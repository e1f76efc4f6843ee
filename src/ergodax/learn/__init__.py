"""Models that are learnt from data in one call. None is imported before it is used."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ergodax.learn import topics

__all__ = ["topics"]


def __getattr__(name: str) -> Any:
    """`learn.topics`, imported when it is asked for."""
    if name == "topics":
        return importlib.import_module("ergodax.learn.topics")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
