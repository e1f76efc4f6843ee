"""What a step costs: `python -m benchmarks steps`."""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import environment
from benchmarks.report import Table
from benchmarks.sections.chains import chains_table
from benchmarks.sections.drawing import drawing_table
from benchmarks.sections.nogin import nogin_table
from benchmarks.sections.recipes import logistic_recipes, wide_recipes
from benchmarks.sections.settings import FULL, QUICK, Settings
from benchmarks.sections.size import size_table
from benchmarks.sections.steps import main_table
from benchmarks.tasks import logistic

SECTIONS = ("steps", "thin1", "chains", "size", "drawing", "recipes", "nogin")
QUICK_SECTIONS = ("steps", "chains", "size", "drawing", "recipes", "nogin")

READING = (
    "Times are microseconds; the first column is the best round, `median` the middle one.\n"
    "Ratios are taken within a round and only within this run: median [quartiles] over rounds.\n"
    "`sd` is the posterior's spread against the hand-written loop's: 1 is the same law.\n"
    "Compilation is excluded for everyone; every result is waited for."
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the sections, print each as soon as it is done, write the files asked for."""
    options = _options(arguments)
    settings = QUICK if options.quick else FULL
    facts, begin = environment.describe(), time.perf_counter()
    print("\n".join(f"{name:>12}: {value}" for name, value in facts.items()))
    print(f"\n{READING}\n", flush=True)
    tables = []
    chosen = options.only or (QUICK_SECTIONS if options.quick else SECTIONS)
    for table in _tables(settings, chosen):
        tables.append(table)
        print(table.text(), end="\n\n", flush=True)
    facts["took"] = f"{time.perf_counter() - begin:.0f} s"
    print(f"took {facts['took']}, peak memory {environment.peak_memory():.2f} GB")
    if options.markdown:
        _write(options.markdown, _markdown(facts, tables))
    if options.json:
        content = {"environment": facts, "tables": {t.title: t.data for t in tables}}
        _write(options.json, json.dumps(content, indent=1) + "\n")


def _tables(settings: Settings, chosen: list[str] | tuple[str, ...]) -> Iterator[Table]:
    task = logistic.make()
    if "steps" in chosen:
        for sampler in ("sgld", "sghmc"):
            yield main_table(sampler, task, settings)
    if "thin1" in chosen:
        for sampler in settings.samplers:
            yield main_table(sampler, task, settings, thin=1)
    if "chains" in chosen:
        for sampler in settings.samplers:
            yield chains_table(sampler, task, settings)
    if "size" in chosen:
        yield size_table(settings)
    if "drawing" in chosen:
        yield drawing_table(settings)
    if "recipes" in chosen:
        yield logistic_recipes(task, settings)
        yield wide_recipes(settings)
    if "nogin" in chosen:
        yield nogin_table(task, settings)


def _markdown(facts: dict[str, str], tables: list[Table]) -> str:
    head = [
        "# Results",
        "",
        "Written by `python -m benchmarks steps --markdown`; do not edit.",
        "",
        *(f"- {name}: {value}" for name, value in facts.items()),
        "",
        READING,
        "",
    ]
    return "\n".join([*head, *(table.markdown() + "\n" for table in tables)])


def _write(path: str, text: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)
    print(f"wrote {path}")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks steps",
        description="Microseconds a step of ergodax, of loops written by hand and of BlackJAX.",
        epilog="example: python -m benchmarks steps --quick --only steps --json timings.json",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="shorter, rougher, and without thin1: about a minute on a quiet machine",
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=SECTIONS,
        help="one part of the report; may be given more than once (default: all)",
    )
    parser.add_argument("--json", metavar="FILE", help="write every round's times")
    parser.add_argument("--markdown", metavar="FILE", help="write the tables, as in RESULTS.md")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
