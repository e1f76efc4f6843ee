"""`python -m benchmarks kills`: all faults, one after another, and a table of what came of them."""

import argparse
import itertools
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks import environment
from benchmarks.kills import disks, outcomes, writers
from benchmarks.kills.damage import damaged
from benchmarks.kills.kill_and_resume import kill_and_resume
from benchmarks.kills.kinds import KINDS, SHORT
from benchmarks.kills.memory import memory
from benchmarks.kills.outcomes import Row
from benchmarks.kills.power_cut import power_cut

EXAMPLE = """example:
  python -m benchmarks kills --only kills damage --runs saga topics --quick
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Let all faults happen, print the table, and exit with 1 where an outcome is not right."""
    options = _options(arguments)
    begin, seed = time.perf_counter(), options.seed or time.time_ns()
    about = {**environment.describe(), "seed": str(seed)}
    print("\n".join(f"{name:>12}: {value}" for name, value in about.items()), flush=True)
    rows: list[Row] = []

    def say(text: str) -> None:
        print(f"{time.perf_counter() - begin:6.0f} s  {text}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as folder:
        for name in options.only or [name for name in FAULTS if name != "memory"]:
            for row in FAULTS[name](options, Path(folder) / name, seed, say):
                rows.append(row)
                say(f"{row.fault}: {row.told}")
    if rows:
        _tell(rows, about, time.perf_counter() - begin, options.markdown)
    if not all(row.ok for row in rows):
        sys.exit(1)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m benchmarks kills",
        description="What a run survives: kills, full disks, damaged files, two writers, power "
        "cuts. Takes 15 to 40 minutes, by what else the machine does; exits with 1 where anything "
        "was silently wrong, lost, different or hanging.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--only",
        nargs="+",
        choices=FAULTS,
        help="these faults; by default all but memory, which is none",
    )
    parser.add_argument("--runs", nargs="+", choices=KINDS, help="of these runs, for kills")
    parser.add_argument("--kills", type=int, default=20, help="of each run (20)")
    parser.add_argument("--quick", action="store_true", help="few of each, about 3 minutes")
    parser.add_argument("--seed", type=int, help="of all that is random; by default the time")
    parser.add_argument("--markdown", type=Path, help="write the table to this file too")
    return parser.parse_args(arguments)


def _kills(options: argparse.Namespace, folder: Path, seed: int, say: Callable) -> Iterator[Row]:
    for kind in options.runs or KINDS:
        kills = 4 if options.quick else options.kills
        yield kill_and_resume(kind, kills, folder / kind, seed=seed, say=say)


def _disks(options: argparse.Namespace, folder: Path, seed: int, say: Callable) -> Iterator[Row]:
    sizes = {"data in memory": range(32, 512, 64), "network": range(1024, 9216, 2048)}
    try:
        for kind, small in sizes.items():
            say(f"disk full: {kind}")
            (folder / kind).mkdir(parents=True)
            yield from disks.full_disk(
                kind, list(small)[:: 5 if options.quick else 1], folder / kind
            )
        yield from disks.read_only(folder)
    except disks.CannotMount as error:
        yield Row("disk full, read only", note=f"skipped: {error}")


def _damage(options: argparse.Namespace, folder: Path, seed: int, say: Callable) -> Iterator[Row]:
    more = {"seed": seed, "quick": options.quick, "say": say}
    for kind, finished in itertools.product(SHORT, (False, True)):
        yield from damaged(kind, folder / f"{kind} {finished}", finished=finished, **more)


def _writers(options: argparse.Namespace, folder: Path, seed: int, say: Callable) -> Iterator[Row]:
    times = 2 if options.quick else 10
    yield writers.processes(times, folder / "processes", say)
    yield writers.threads(times, folder / "threads")


def _power(options: argparse.Namespace, folder: Path, seed: int, say: Callable) -> Iterator[Row]:
    for kind in SHORT:
        yield from power_cut(kind, folder / kind, seed=seed, quick=options.quick, say=say)


def _memory(options: argparse.Namespace, folder: Path, seed: int, say: Callable) -> Iterator[Row]:
    memory(1_000_000 if options.quick else 10_000_000)
    yield from ()


FAULTS: dict[str, Callable[..., Iterator[Row]]] = {
    "kills": _kills,
    "disks": _disks,
    "damage": _damage,
    "writers": _writers,
    "power": _power,
    "memory": _memory,
}


def _tell(rows: list[Row], about: dict[str, str], seconds: float, markdown: Path | None) -> None:
    """Print the table, what was not right, and the number of kills and of those in a write."""
    trials = sum(row.trials for row in rows)
    text = f"{outcomes.table(rows)}\n\n{trials} faults in {seconds / 60:.0f} minutes."
    kills = [row for row in rows if row.in_writes is not None]
    if kills:
        cut = sum(row.in_writes or 0 for row in kills)
        total = sum(row.trials for row in kills)
        text += f" {total} kills, {cut} of them ({cut / total:.0%}) in a write."
    print(f"\n{text}")
    for row in rows:
        if not row.ok:
            print(f"\n{row.first}")
    if markdown is not None:
        machine = "; ".join(f"{name} {value}" for name, value in about.items())
        markdown.write_text(f"{text}\n\n{machine}\n")
