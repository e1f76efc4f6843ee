"""What the commands have in common: their options, and how a result is shown and written."""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from experiments.page import Page, plain, write

Say = Callable[[str], None]
Output = Annotated[Path | None, Parameter(name=("--output", "--out"))]
Many = Parameter(consume_multiple=True, negative=())


@Parameter(name="*")
@dataclass(frozen=True)
class Options:
    """Options of every experiment.

    Parameters
    ----------
    quick
        A small version, with larger errors.
    seed
        Of everything random.
    progress
        Show progress bars, where standard error is a terminal.
    output
        Folder for the picture, the CSV, facts.json and report.html; by default runs/NAME.
    json
        Print the facts as JSON instead of tables.
    """

    quick: bool = False
    seed: int = 0
    progress: bool = True
    output: Output = None
    json: bool = False


DEFAULTS = Options()


def conduct(name: str, options: Options, run: Callable, present: Callable, size: Any) -> None:
    """Run an experiment and show it: `run(size, seed, progress, say)`, then `present(result)`.

    Args:
        name: of the files, and of the folder if none is given.
        options: of every experiment.
        run: returns a result.
        present: makes a Page of it.
        size: how much to run.
    """
    say = speaker(options)
    place = place_for(name, options)
    begin = time.perf_counter()
    page = present(run(size, options.seed, options.progress, say))
    page.facts["seconds"] = time.perf_counter() - begin
    finish(page, name, place, options)


def speaker(options: Options) -> Say:
    """What prints a line: to standard error where standard output is for JSON."""
    stream = sys.stderr if options.json else sys.stdout
    return lambda text: print(text, file=stream, flush=True)


def place_for(name: str, options: Options) -> Path:
    """The folder, made before any work is done."""
    place = options.output or Path("runs") / name
    place.mkdir(parents=True, exist_ok=True)
    return place


def finish(page: Page, name: str, place: Path, options: Options) -> None:
    """Write the files and print what was found.

    Args:
        page: what was found.
        name: of the files.
        place: their folder.
        options: of every experiment.
    """
    paths = write(page, place, name)
    if options.json:
        files = {"files": {name: str(path) for name, path in paths.items()}}
        print(json.dumps(plain(page.facts) | files))
    else:
        for head, table in page.tables.items():
            print(f"\n{head}\n{table.to_string(index=False)}")
        for sentence in page.sentences:
            print(f"- {sentence}")
    speaker(options)(f"written: {', '.join(map(str, paths.values()))}")
