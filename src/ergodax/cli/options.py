"""What all commands have in common: the names of their options, and how they end."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console

from ergodax.report.page import plain

Output = Annotated[Path | None, Parameter(name=("--output", "--out"))]
Json = Annotated[bool, Parameter(name="--json", negative=())]
Many = Parameter(consume_multiple=True, negative=())


def folder(output: Path | None, name: str = "") -> Path:
    """The folder for a result, runs/NAME where none is given, made before any work is done.

    Raises:
        ValueError: it can't be made or written to.
    """
    path = output or Path("runs") / name
    try:
        path.mkdir(parents=True, exist_ok=True)
        usable = os.access(path, os.W_OK)
    except OSError:
        usable = False
    if not usable:
        raise ValueError(f"--output {path} is not a folder that can be written to. Try another.")
    return path


def tell_json(facts: Mapping[str, Any], paths: Mapping[str, Path] | None = None) -> None:
    """Print the one JSON document of a command, with the paths of its files where it has any.

    Args:
        facts: everything that was found.
        paths: of the files by name; None for a command that writes none.
    """
    files = {} if paths is None else {"files": {name: str(path) for name, path in paths.items()}}
    json.dump(plain(dict(facts)) | files, sys.stdout)
    sys.stdout.write("\n")


def tell_files(console: Console, paths: Mapping[str, Path]) -> None:
    """Print where the files are, if there are any."""
    if paths:
        console.print(f"written: {', '.join(map(str, paths.values()))}", highlight=False)
