"""What all commands have in common: names of options, and what they print and write."""

import contextlib
import importlib
import json
import os
import signal
import sys
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ergodax.errors import Interrupted
from ergodax.report.page import are_figures, plain

Output = Annotated[Path | None, Parameter(name=("--output", "--out"))]
Json = Annotated[bool, Parameter(name="--json", negative=())]
Many = Parameter(consume_multiple=True, negative=())
LEAST, GAP = 12, 2  # characters of a column of words, and between columns


def folder(output: Path | None, name: str = "") -> Path:
    """The folder for a result, runs/NAME where none is given, made before any work is done.

    What draws and writes reports is imported, so that it is not missing later.

    Raises:
        ValueError: it can't be made or written to.
        ModuleNotFoundError: a library of the extra is not installed.
    """
    for library in ("jinja2", "matplotlib"):
        importlib.import_module(library)
    path = output or Path("runs") / name
    try:
        path.mkdir(parents=True, exist_ok=True)
        usable = os.access(path, os.W_OK)
    except OSError:
        usable = False
    if not usable:
        raise ValueError(f"--output {path} is not a folder that can be written to. Try another.")
    return path


@contextlib.contextmanager
def stopped(kept: str) -> Generator[None]:
    """Within it, Ctrl-C and the signal to terminate end in what is kept and how to go on."""
    try:
        yield
    except KeyboardInterrupt as error:
        number = getattr(error, "signal", signal.SIGINT)
        raise Interrupted(f"stopped: {kept}", signal=number) from None


def tell_json(facts: Mapping[str, Any], paths: Mapping[str, Path] | None = None) -> None:
    """Print the one JSON document of a command, with the paths of its files where it has any."""
    files = {} if paths is None else {"files": {name: str(path) for name, path in paths.items()}}
    json.dump(plain(dict(facts)) | files, sys.stdout)
    sys.stdout.write("\n")


def tell_files(console: Console, paths: Mapping[str, Path]) -> None:
    """Print where the files are, if there are any."""
    if paths:
        console.print(f"written: {', '.join(map(str, paths.values()))}", highlight=False)


def tell(console: Console, parts: Iterable[Any]) -> None:
    """Print sentences, DataFrames of texts, and pairs of a title and such a table."""
    for part in parts:
        match part:
            case str():
                console.print(part, highlight=False, markup=False)
            case (str(title), table):
                show(console, table, title)
            case _:
                show(console, part)


def show(console: Console, texts: Any, title: str | None = None) -> None:
    """Print a DataFrame of texts: words to the left, figures to the right.

    On a narrow terminal the last columns of figures are left out, rather than a name cut short or
    a figure on two lines.
    """
    if title is not None:
        console.print(title, style="italic", highlight=False, markup=False)
    figures = {name: are_figures(texts[name]) for name in texts.columns}
    least = {}  # characters
    for name in texts.columns:
        widest = max(map(len, [str(name), *map(str, texts[name])]))
        least[name] = GAP + (widest if figures[name] else min(LEAST, widest))
    out = []
    while sum(least.values()) > console.width and (last := [k for k in least if figures[k]][1:]):
        out.append(last[-1])
        del least[last[-1]]
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for name in least:
        side = "right" if figures[name] else "left"
        table.add_column(Text(str(name)), justify=side, overflow="fold", no_wrap=figures[name])
    for row in texts[list(least)].itertuples(index=False):
        table.add_row(*(Text(str(cell)) for cell in row))
    console.print(table)
    if out:
        words = f"left out, as the terminal is narrow: {', '.join(map(str, reversed(out)))}"
        console.print(words, highlight=False, markup=False)
