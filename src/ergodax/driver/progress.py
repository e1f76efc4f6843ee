"""A progress bar on the host, between chunks; silent where nobody looks."""

import contextlib
import sys
from collections.abc import Callable, Iterator

Report = Callable[[int, float], None]  # steps done in all, steps a second


@contextlib.contextmanager
def progress_bar(total: int, *, show: bool) -> Iterator[Report]:
    """A bar over `total` steps, drawn on standard error if that is a terminal.

    Args:
        total: steps of one chain, burn-in included.
        show: False for silence even at a terminal.
    """
    if not (show and sys.stderr.isatty()):
        yield lambda done, rate: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("sampling"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("sampling", total=total, rate="compiling")
        yield lambda done, rate: bar.update(task, completed=done, rate=f"{rate:,.0f} steps/s")
