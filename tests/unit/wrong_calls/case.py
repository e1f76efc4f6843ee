"""A wrong call, and what comes of it."""

from collections.abc import Callable
from typing import Any, NamedTuple


class Case(NamedTuple):
    """A wrong call; the message must have every word: the argument, and what to try."""

    call: Callable[[], Any]
    error: type[Exception]
    words: tuple[str, ...]


def outcome(case: Case) -> tuple[list[str], str]:
    """The classes of the error that the call ends in, and its message."""
    try:
        case.call()
    except Exception as error:
        return [kind.__name__ for kind in type(error).__mro__], str(error)
    return [], "no error"
