"""The host between two chunks: how long the next one is, the progress bar, and Ctrl-C."""

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

SECONDS_TO_A_CHUNK = 0.5  # how often progress is shown and divergence is looked for
FIRST = 64  # steps of the first chunk
Report = Callable[[int, float], None]  # steps done in all, steps a second


class Clock:
    """Times chunks, and says how many steps make one of about so many seconds.

    Args:
        seconds: of a chunk.

    Attributes:
        rate: steps of each chain a second; 0 before the first chunk.
    """

    def __init__(self, seconds: float = SECONDS_TO_A_CHUNK) -> None:
        self.seconds, self.rate = seconds, 0.0

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
def progress_bar(total: int, *, show: bool) -> Iterator[Report]:
    """A bar over `total` steps of one chain, on standard error if that is a terminal."""
    if not (show and sys.stderr.isatty()):
        yield lambda done, rate: None
        return
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("sampling"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TextColumn("{task.fields[rate]}"),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("sampling", total=total, rate="compiling")
        yield lambda done, rate: bar.update(task, completed=done, rate=f"{rate:,.0f} steps/s")


class Stop:
    """Whether the run was asked to stop.

    Attributes:
        signal: the number of the signal, 0 for none.
    """

    signal = 0


@contextlib.contextmanager
def stop_requested(*, terminate: bool) -> Iterator[Stop]:
    """While active, the first Ctrl-C is noted instead of raised; a second one is obeyed.

    With `terminate` so is the signal to terminate, by which schedulers announce the end. Signals
    belong to the main thread; in any other nothing is changed.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    which = [signal.SIGINT, signal.SIGTERM] if terminate else [signal.SIGINT]

    def note(number: int, frame: FrameType | None) -> None:
        stop.signal = number
        restore()

    def restore() -> None:
        for one, handler in before.items():
            signal.signal(one, signal.SIG_DFL if handler is None else handler)

    before = {one: signal.signal(one, note) for one in which}
    try:
        yield stop
    finally:
        restore()
