"""Ctrl-C ends the command `ergodax` in one line and status 130, whenever it comes.

While it imports, an exception would be a traceback through all libraries, or be lost where one of
them catches everything. Later it would be lost where Python ignores exceptions, as in what JAX does
at each collection of garbage.
"""

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

NOTHING = "stopped: nothing was kept."
AGAIN = 0.05  # seconds


def end_command(words: list[str]) -> None:
    """From here on Ctrl-C ends this process, if it is the command's.

    Args:
        words: what it was started with, as `sys.orig_argv`; other programs are left alone.
    """
    script = Path(words[1]).stem if len(words) > 1 else ""
    ours = script == "ergodax" or words[1:3] == ["-m", "ergodax"]
    if ours and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def raise_again() -> None:
    """From here on Ctrl-C raises KeyboardInterrupt again, and is not lost."""
    if signal.getsignal(signal.SIGINT) is _end:
        sys.unraisablehook = _raise_later
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, _: Any) -> None:
    """End at once: nothing has been done yet that could be kept or cleared away."""
    os.write(2, f"{NOTHING}\n".encode())
    os._exit(128 + number)


def _raise_later(ignored: Any) -> None:
    """Where Ctrl-C was ignored, send it again when that place has been left."""
    if not issubclass(ignored.exc_type, KeyboardInterrupt):
        return sys.__unraisablehook__(ignored)
    timer = threading.Timer(AGAIN, signal.raise_signal, [signal.SIGINT])
    timer.daemon = True
    timer.start()


end_command(sys.orig_argv)
