"""The host between two chunks: how long the next one is, the progress bar, and Ctrl-C."""

import atexit
import contextlib
import dataclasses
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType

from ergodax.errors import Interrupted

SECONDS_TO_A_CHUNK = 0.5  # how often progress is shown and divergence is looked for
FIRST = 1  # step in the first chunk: nobody knows yet how long one takes
LATE = -1  # in place of a signal's number: the time of the run is up
Report = Callable[[int, float], None]  # steps done in all, steps a second


@dataclasses.dataclass
class Clock:
    """Times chunks, and says how many steps make one of about so many seconds."""

    seconds: float = SECONDS_TO_A_CHUNK
    rate: float = 0.0  # steps of each chain a second; 0 before the first chunk

    def steps(self) -> int:
        """How many steps the next chunk should have."""
        return max(1, int(self.rate * self.seconds)) if self.rate else FIRST

    @contextlib.contextmanager
    def timing(self, count: int) -> Iterator[None]:
        """A context in which `count` steps are taken."""
        begin = time.perf_counter()
        yield
        self.rate = count / max(time.perf_counter() - begin, 1e-9)


@contextlib.contextmanager
def progress_bar(
    total: int, *, show: bool, what: str = "sampling", unit: str = "steps"
) -> Iterator[Report]:
    """A bar over `total` steps of one chain, on standard error if that is a terminal."""
    if not (show and sys.stderr.isatty()):
        yield lambda done, rate: None
        return
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn(what),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TextColumn("{task.fields[rate]}"),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total, rate="compiling")
        yield lambda done, rate: bar.update(task, completed=done, rate=f"{rate:,.0f} {unit}/s")


class Stop:
    """Whether the run was asked to stop, or its time is up.

    Args:
        max_seconds: from now on; None for no limit.
    """

    def __init__(self, max_seconds: float | None = None) -> None:
        self.signal = 0  # its number
        self._end = math.inf if max_seconds is None else time.perf_counter() + max_seconds

    @property
    def reason(self) -> int:
        """The number of the signal, LATE where the time is up, 0 to go on."""
        return self.signal or (LATE if time.perf_counter() >= self._end else 0)


@contextlib.contextmanager
def listening(stop: Stop) -> Iterator[None]:
    """While active, the first Ctrl-C is noted instead of raised; a second one is obeyed.

    So is the signal to terminate, by which schedulers announce the end. Signals belong to the main
    thread; in any other nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def note(number: int, frame: FrameType | None) -> None:
        stop.signal = number
        restore()

    def restore() -> None:
        for one, handler in before.items():
            signal.signal(one, signal.SIG_DFL if handler is None else handler)

    before = {one: signal.signal(one, note) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        restore()


def status_if_uncaught() -> None:
    """Let a program that does not catch `Interrupted` end as by the signal that interrupted it.

    A shell or a scheduler then sees 128 plus the signal's number; Python's own status would be 1.
    """
    report = sys.excepthook
    if report is _Reported.hook:
        return

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        report(kind, error, trace)
        if isinstance(error, Interrupted):
            _Reported.signal = error.signal

    sys.excepthook = _Reported.hook = hook


class _Reported:
    """The signal of an `Interrupted` that nobody caught, and who notes it."""

    signal = 0
    hook: Callable | None = None


@atexit.register  # early, so that it is done after what the program has registered
def _end_by_signal() -> None:
    if _Reported.signal:
        sys.stdout.flush()
        sys.stderr.flush()
        signal.signal(_Reported.signal, signal.SIG_DFL)
        os.kill(os.getpid(), _Reported.signal)
