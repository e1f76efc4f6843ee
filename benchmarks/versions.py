"""Step times of this checkout beside those of another, in turn: `python -m benchmarks versions`."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.report import Table

HERE = Path(__file__).resolve().parents[1]
CONTROLS = ("hand-written scan", "floor", "BlackJAX in a scan")
READING = (
    "Best of each turn, this checkout to the other: median [quartiles] over the turns.\n"
    "Loops that are not ours are the same code in both: how far they are from 1 is the noise."
)

# The best time of every contestant, by its table's title and its own name.
Times = dict[tuple[str, str], float]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the steps of both checkouts in turn, each in its own process; print the ratios."""
    options = _options(arguments)
    turns: list[tuple[Times, Times]] = []
    for turn in range(options.turns):
        # Who goes first changes, so that a machine that warms up favours neither.
        order = (HERE, options.other) if turn % 2 else (options.other, HERE)
        times = {folder: _times(folder, options.only) for folder in order}
        turns.append((times[HERE], times[options.other]))
        print(f"turn {turn + 1} of {options.turns}", file=sys.stderr, flush=True)
    print(f"{READING}\n\n{_table(turns).text()}")


def _times(folder: Path, sections: Sequence[str]) -> Times:
    """Run `steps --quick` of the checkout in `folder` in a process of its own."""
    # Version 0.1.0 had one benchmark, in benchmarks/run.py.
    named = (folder / "benchmarks" / "__main__.py").exists()
    command = ["benchmarks", "steps"] if named else ["benchmarks.run"]
    chosen = [word for section in sections for word in ("--only", section)]
    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch) / "steps.json"
        subprocess.run(
            [sys.executable, "-m", *command, "--quick", *chosen, "--json", str(output)],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{folder / 'src'}"},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        tables = json.loads(output.read_text())["tables"]
    return {
        (title, name): min(figures["microseconds"])
        for title, contestants in tables.items()
        for name, figures in contestants.items()
    }


def _table(turns: Sequence[tuple[Times, Times]]) -> Table:
    table = Table("This checkout beside the other", ["contestant", "us a step", "other", "ratio"])
    for which in turns[0][0]:
        if not all(which in times for turn in turns for times in turn):
            continue
        here, other = ([turn[side][which] for turn in turns] for side in (0, 1))
        ratios = [a / b for a, b in zip(here, other, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
        mark = " (control)" if which[1] in CONTROLS else ""
        table.rows.append(
            [
                f"{which[0].split(':')[0]}: {which[1]}{mark}",
                f"{min(here):.2f}",
                f"{min(other):.2f}",
                f"{middle:.2f} [{low:.2f}, {high:.2f}]",
            ]
        )
    return table


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks versions",
        description="Microseconds a step of this checkout beside those of another one.",
        epilog="example: git worktree add ../before COMMIT; "
        "python -m benchmarks versions ../before --turns 7",
    )
    parser.add_argument("other", type=lambda name: Path(name).resolve(), help="its folder")
    parser.add_argument("--turns", type=int, default=7, help="of both, one after the other (7)")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        help="a section of `steps`; may be given more than once (default: steps)",
    )
    options = parser.parse_args(arguments)
    options.only = options.only or ["steps"]
    if not (options.other / "benchmarks").is_dir():
        parser.error(f"{options.other} has no folder benchmarks")
    if options.turns < 2:
        parser.error("--turns: at least 2, since quartiles are told")
    return options


if __name__ == "__main__":
    main()
