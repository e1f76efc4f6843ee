"""Ctrl-C ends a run after the chunk it is in; a second one ends it at once."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class Stop:
    """Whether the run was asked to stop.

    Attributes:
        signal: the number of the signal, 0 for none.
    """

    def __init__(self) -> None:
        self.signal = 0

    def __bool__(self) -> bool:
        return self.signal != 0


@contextlib.contextmanager
def stop_requested(*, terminate: bool) -> Iterator[Stop]:
    """While active, an interrupt is noted instead of raised.

    Signals belong to the main thread; in any other nothing is changed.

    Args:
        terminate: note the signal to terminate as well, by which schedulers announce the end.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    which = [signal.SIGINT, signal.SIGTERM] if terminate else [signal.SIGINT]

    def note(number: int, frame: FrameType | None) -> None:
        stop.signal = number
        restore()  # so that the next one is not noted but obeyed

    def restore() -> None:
        for one, handler in before.items():
            signal.signal(one, signal.SIG_DFL if handler is None else handler)

    before = {one: signal.signal(one, note) for one in which}
    try:
        yield stop
    finally:
        restore()
