"""What a generated call came to, told by where its error was raised."""

import ast
import contextlib
import functools
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import ergodax

OURS = str(Path(ergodax.__file__).parent)
HERE = str(Path(__file__).parent)
SECONDS = 60.0  # of one call, its compilation included; more is a hang


class Outcome(NamedTuple):
    """`kind` is "fine", "refused", "inside" or "hang"; `where` is its innermost line."""

    kind: str
    where: str = ""
    message: str = ""


class Hang(BaseException):
    """A call took too long; no `except Exception` swallows it."""


def outcome(call: Callable[[], Any], seconds: float = SECONDS) -> Outcome:
    """Make a call and say what it came to.

    An error is a refusal where the innermost line of its traceback is a `raise` of the library's
    own. A line of ours that made Python, NumPy or JAX raise is as unplanned as one of theirs.
    """
    try:
        with warnings.catch_warnings(), time_limit(seconds):
            warnings.simplefilter("ignore")
            call()
    except Hang:
        return Outcome("hang")
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        last = frames[-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
        ours = [frame for frame in frames if frame.filename.startswith(OURS)]
        message = f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"
        if not ours and last.filename.startswith(HERE):
            return Outcome("refused", "the call itself", message)
        if last.filename.startswith(OURS) and last.lineno in raising_lines(last.filename):
            return Outcome("refused", where, message)
        if isinstance(error, OSError) and error.filename is not None:
            return Outcome("refused", where, message)  # the system's words, and the file's name
        if ours:
            where = f"{Path(ours[-1].filename).name}:{ours[-1].lineno} > {where}"
        return Outcome("inside", where, message)
    return Outcome("fine")


@functools.cache
def raising_lines(filename: str) -> frozenset[int]:
    """The lines of a file's `raise` statements."""
    nodes = ast.walk(ast.parse(Path(filename).read_text()))
    raising = [node for node in nodes if isinstance(node, ast.Raise) and node.exc is not None]
    return frozenset(
        k for node in raising for k in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    )


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `Hang` in what runs for longer."""

    def stop(*_: Any) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
