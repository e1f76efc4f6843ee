"""How soon a page of the gallery follows its sliders: `python -m benchmarks gallery`.

The gallery is served by a process of its own, and its pages are opened one after the other in
Chromium without a window. A slider is moved by a key, each time to a value at which it has not
been, since a page keeps what it has computed.
"""

import argparse
import importlib.util
import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks import environment
from benchmarks.report import Table
from gallery import headless
from gallery.pages import FIGURES

DESCRIPTION = "How soon a page of the gallery follows its sliders."
QUIET = 1.0  # seconds without a change after which a picture is drawn; not counted
SLUGS = [figure.slug for figure in FIGURES]
NOTES = [
    "Seconds to the last change of the pictures, to about 0.1 s: they are looked at every 50 ms.",
    "open: for the first time; again: another visitor, whose browser is as empty; next: a third, "
    "who comes from another page, so that the browser has marimo's scripts.",
]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print what it was measured on and, when all pages are done, the table."""
    parser = argparse.ArgumentParser("python -m benchmarks gallery", description=DESCRIPTION)
    names = f"of {', '.join(SLUGS)} (all)"
    parser.add_argument(
        "--pages", nargs="+", choices=SLUGS, default=SLUGS, metavar="PAGE", help=names
    )
    parser.add_argument("--moves", type=int, default=5, help="of the sliders of each page (5)")
    options = parser.parse_args(arguments)
    if options.moves < 1:
        parser.error(f"--moves must be at least 1, not {options.moves}.")
    lacks = [n for n in ("marimo", "playwright") if importlib.util.find_spec(n) is None]
    if headless.executable() is None:
        lacks.append("Chromium (sh tools/browser.sh)")
    if lacks:
        parser.exit(2, f"error: needs {' and '.join(lacks)}\n")
    print("\n".join(f"{name:>12}: {value}" for name, value in environment.describe().items()))
    with headless.running() as address, headless.chromium() as chromium:
        visitor = chromium.new_context(viewport=headless.WINDOW)
        opened, _ = _open(chromium, f"{address}/{SLUGS[0]}/", visitor)
        opened.page.close()
        measured = {
            slug: _measured(chromium, f"{address}/{slug}/", options.moves, visitor)
            for slug in options.pages
        }
    print(f"\n{table(measured).text()}")


def table(measured: dict[str, tuple[list[float], list[float]]]) -> Table:
    """A row for each page: seconds to open it, thrice, and to follow each move."""
    columns = ("page", "open", "again", "next", "moves", "median", "largest")
    found = Table("From a slider's move to the changed picture, seconds", columns, notes=NOTES)
    for slug, (opened, moves) in measured.items():
        times = (*opened, statistics.median(moves), max(moves))
        cells = [f"{seconds:.1f}" for seconds in times]
        found.rows.append([slug, *cells[:3], str(len(moves)), *cells[3:]])
    return found


def _measured(
    chromium: Any, address: str, most: int, visitor: Any
) -> tuple[list[float], list[float]]:
    """Seconds to open a page, by each of three, and from each move to its picture."""
    times, moves = [], []
    for who in (None, None, visitor):
        opened, seconds = _open(chromium, address, who)
        times.append(seconds)
        if who is None:
            opened.page.close()
    for slider, key in _places(opened.page):
        before, begin = opened.pictures(), time.perf_counter()
        slider.press(key)
        moves.append(_last_change(opened, before) - begin)
        if len(moves) == most:
            break
    opened.page.close()
    return times, moves


def _open(chromium: Any, address: str, visitor: Any = None) -> tuple[headless.Page, float]:
    begin = time.perf_counter()
    opened = headless.Page(chromium, address, visitor=visitor)
    return opened, _last_change(opened, "") - begin


def _places(page: Any) -> Iterator[tuple[Any, str]]:
    """Each slider and the key that moves it to a new place: down to its end, or up from there."""
    for slider in page.get_by_role("slider").all():
        now, least, most = _numbers(slider)
        key, end = ("ArrowLeft", least) if now > least else ("ArrowRight", most)
        while _numbers(slider)[0] != end:
            yield slider, key


def _numbers(slider: Any) -> list[float]:
    names = ("aria-valuenow", "aria-valuemin", "aria-valuemax")
    return [float(slider.get_attribute(name)) for name in names]


def _last_change(opened: headless.Page, before: str) -> float:
    """When the pictures, which were `before`, were last drawn; returns when they stay so."""
    last, when = before, time.perf_counter()

    def drawn() -> bool:
        nonlocal last, when
        now = opened.pictures()
        if now not in ("", last):
            last, when = now, time.perf_counter()
        return last != before and time.perf_counter() - when > QUIET

    opened.until(drawn, "the picture stays as it was")
    return when
