"""Do the tests notice when a line of the package says something else?

Each mutant of benchmarks/mutants/mutants.jsonl is applied to a copy of src, and the fast tests that
are named for its file in places.py are run until one fails, those first that come to its line. So
they run once with nothing changed, where every one has to pass; `--baseline` does this, and nothing
else, anew. A run that is stopped goes on where it was.
"""

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.mutants import mutant, run
from benchmarks.mutants.lines import Book
from benchmarks.mutants.places import MODULES, files, others
from benchmarks.report import Table

GOAL = 0.95
OUTCOMES = Path("benchmarks/mutants/outcomes.jsonl")
SCRATCH = Path("runs/mutants")  # the cache, and the lines that each test comes to


def table(mutants: Sequence[mutant.Mutant], found: dict[str, dict]) -> Table:
    """By module: how many were killed, survived, are equivalent; the score without these."""
    columns = ("module", "mutants", "killed", "survived", "equivalent", "not run", "score")
    made, total = Table("Mutants", columns), [0] * 5
    for module in MODULES:
        counts = [0] * 5
        for one in mutants:
            if files()[one.file][0] != module:
                continue
            verdict = found.get(one.name, {}).get("verdict", "")
            column = {"killed": 1, "too long": 1, "survived": 2}.get(verdict, 4)
            counts[3 if one.equivalent and column != 1 else column] += 1
            counts[0] += 1
        total = [a + b for a, b in zip(total, counts, strict=True)]
        made.rows.append([module, *map(str, counts), _score(counts)])
    made.rows.append(["all", *map(str, total), _score(total)])
    made.notes = [f"The goal is a score of {GOAL:.0%}; a mutant that never ends counts as killed."]
    return made


def _score(counts: list[int]) -> str:
    run_to_end = counts[1] + counts[2]
    return f"{counts[1] / run_to_end:.1%}" if run_to_end else ""


def known(path: Path) -> dict[str, dict]:
    """The last outcome of each mutant in the file."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {entry["name"]: entry for entry in map(json.loads, lines)}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what has no outcome yet, and print the table."""
    parser = argparse.ArgumentParser("python -m benchmarks mutants", description=__doc__)
    parser.add_argument("--only", default="", metavar="MODULE", help="or a file's name")
    parser.add_argument("--first", type=int, metavar="N", help="of each module, at most so many")
    parser.add_argument("--again", action="store_true", help="those that survived, once more")
    parser.add_argument("--baseline", action="store_true", help="only the tests, nothing changed")
    parser.add_argument("--table", action="store_true", help="print what is known, run nothing")
    parser.add_argument(
        "--generate", type=int, metavar="N", help="add N of each module, drop stale"
    )
    parser.add_argument("--seed", type=int, default=0, help="of --generate")
    parser.add_argument("--results", type=Path, default=OUTCOMES, metavar="FILE")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there")
    given = parser.parse_args(arguments)
    results, mutants = given.results.resolve(), mutant.read()
    if given.generate:
        try:
            from benchmarks.mutants.generate import generated
        except ModuleNotFoundError as missing:
            parser.error(f"--generate needs Cosmic Ray ({missing}). Try pip install cosmic-ray.")
        fitting = [one for one in mutants if one.fits()]
        return mutant.write(fitting + generated(given.generate, given.seed, fitting))
    chosen = _chosen(mutants, given.only, given.first)
    if not given.table:
        scratch = SCRATCH.resolve()
        scratch.mkdir(parents=True, exist_ok=True)
        run.prepare(scratch / "cache")
        book = Book(scratch / "lines.json")
        with run.copied() as source:
            _record(source, chosen, book, anew=given.baseline)
            if given.baseline:
                return None
            _run(source, chosen, results, book, given.again)
    found = known(results)
    for one in chosen:
        if found.get(one.name, {}).get("verdict") == "survived":
            print(one, f"\n    equivalent: {one.equivalent}" if one.equivalent else "")
    made = table(chosen, found)
    print(f"\n{made.text()}")
    if given.markdown:
        equivalent = [f"- `{m.name}`: {m.equivalent}" for m in chosen if m.equivalent]
        text = "\n".join(["# Do the tests notice?", "", made.markdown(), "", *equivalent])
        given.markdown.write_text(text + "\n", encoding="utf-8")


def _chosen(mutants: list[mutant.Mutant], only: str, first: int | None) -> list[mutant.Mutant]:
    """Of this module or file, and of each module at most so many."""
    taken: dict[str, int] = {}
    chosen = []
    # Those made by hand first, then in an order that has nothing to do with the files'.
    for one in sorted(mutants, key=lambda m: (m.operator != "ByHand", m.name.rpartition("@")[2])):
        module = files()[one.file][0]
        if only not in ("", module) and only not in one.name:
            continue
        taken[module] = taken.get(module, 0) + 1
        if first is None or taken[module] <= first:
            chosen.append(one)
    return chosen


def _record(source: Path, chosen: list[mutant.Mutant], book: Book, anew: bool = False) -> None:
    """Which lines the tests of these mutants come to, where it isn't known; they have to pass."""
    named = dict.fromkeys(test for one in chosen for test in files()[one.file][1])
    for test in [*named, *others()]:
        if anew or not book.holds(test):
            found = run.recorded(source, test, book)
            said = "pass" if found.verdict == "survived" else f"FAIL at {found.by}"
            print(f"{test:50} {found.seconds:6.1f} s  {said}", flush=True)
            if found.verdict != "survived" and test in named:
                raise SystemExit(f"{test} has to pass where nothing is changed.")


def _run(source: Path, chosen: list[mutant.Mutant], results: Path, book: Book, again: bool) -> None:
    """Add a line to the file of results for each."""
    before = known(results)
    for one in chosen:
        verdict = before.get(one.name, {}).get("verdict")
        noticed = verdict != "survived" or bool(one.equivalent)
        if verdict is not None and (noticed or not again):
            continue
        of_file = [entry["by"] for name, entry in before.items() if name.startswith(one.file + "@")]
        found = run.outcome(source, one, book, Counter(of_file))
        before[one.name] = {"name": one.name, **found._asdict(), "seconds": round(found.seconds, 1)}
        with results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(before[one.name]) + "\n")
        print(f"{found.verdict:9} {found.seconds:6.1f} s  {one.name}  {found.by}", flush=True)
