"""`python -m benchmarks strangers`: the bank, or part of it, each case in a process of its own."""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.strangers import bank, judge, make, peers
from benchmarks.strangers.judge import Judged
from benchmarks.strangers.table import leaderboard, markdown, text

ROOT = Path(__file__).parents[2]
DESCRIPTION = """\
Run infer on the posteriors of the bank and compare each answer with its reference: verdict, errors,
seconds, and whether the verdict was right. Without names all of them, which takes hours."""
EXAMPLES = """\
examples:
  python -m benchmarks strangers --list
  python -m benchmarks strangers wall neal-funnel hierarchies --seconds 60 --json runs/bank.json
  python -m benchmarks strangers --peers --seconds 30 --json runs/peers.json
  python -m benchmarks strangers --make-references item-response-1pl
  python -m benchmarks.strangers.run wall --seconds 60     # one case, with all that infer says"""

IMPORTS = 15.0  # seconds, of a peer's process before it begins
PEERS_HELP = "these of numpyro, blackjax, posteriors as well, without a name all"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, judge, print, write; wrong use ends with exit status 2."""
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        chosen = _chosen(given.names)
    except ValueError as error:
        parser.error(str(error))
    if given.list:
        print("\n".join(f"{c.name:<28}{c.family:<18}{c.what}" for c in chosen))
    elif given.make_references:
        make.references(chosen)
    else:
        _run(chosen, given)


def _run(chosen: list[bank.Case], given: argparse.Namespace) -> None:
    done = _read(given.json)
    beside = given.peers is not None
    contestants = [judge.INFER, *(given.peers or peers.PEERS if beside else ())]
    precision = "float64" if given.float64 else "float32"
    asked = [
        (case, key, by)
        for case in chosen
        for key in range(given.first_key, given.first_key + given.keys)
        for by in contestants
        if not (given.resume and (by, case.name, precision, key) in done)
    ]
    with ThreadPoolExecutor(given.jobs) as pool:
        runs = [pool.submit(one, case, key, given, by) for case, key, by in asked]
        for run in runs:
            result = run.result()
            who = f" by {result.by}" if beside else ""
            print(f"{result.name}{who}: {result.outcome}; {result.verdict[:160]}", flush=True)
            done[_identity(result)] = result
            if given.json:  # after each, since a run of all takes hours
                facts = [vars(each) for each in done.values()]
                given.json.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    rows = list(done.values())
    board = leaderboard(rows) if beside else None
    print(board.text() if board else text(rows))
    if given.markdown:
        page = f"# {board.markdown().removeprefix('## ')}\n" if board else markdown(rows)
        given.markdown.write_text(page, encoding="utf-8")


def _identity(row: Judged) -> tuple[str, str, str, int]:
    return row.by, row.name, row.precision, row.key


def _read(path: Path | None) -> dict[tuple[str, str, str, int], Judged]:
    if path is None or not path.exists():
        return {}
    rows = [Judged(**facts) for facts in json.loads(path.read_text(encoding="utf-8"))]
    return {_identity(row): row for row in rows}


def one(case: bank.Case, key: int, given: argparse.Namespace, by: str = judge.INFER) -> Judged:
    """Run a case in a process, which is killed when it takes far too long.

    Args:
        case: to run.
        key: number of the key.
        given: the options.
        by: who answers.
    """
    precision = "float64" if given.float64 else "float32"
    run = Judged(case.name, case.family, precision, key, given.seconds, judge.OVER, "", by=by)
    python = given.posteriors if by == "posteriors" and given.posteriors else sys.executable
    command = [str(python), "-m", "benchmarks.strangers.run", case.name]
    command += ["--seconds", str(given.seconds), "--key", str(key), "--by", by]
    command += ["--float64"] if given.float64 else []
    most = judge.limit(given.seconds)  # infer is to keep it; NUTS, which has no clock, is cut
    patience = given.patience or (2.0 * most + 60.0 if by == judge.INFER else most + IMPORTS)
    with tempfile.TemporaryDirectory() as folder:
        output, said = Path(folder) / "found.json", Path(folder) / "said.txt"
        with said.open("w", encoding="utf-8") as stream:
            process = subprocess.Popen(
                [*command, "--output", str(output)], stdout=stream, stderr=stream,
                start_new_session=True, cwd=ROOT,
            )  # fmt: skip
            try:
                code = process.wait(patience)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                run.late, run.seconds = True, patience
                run.verdict = f"no verdict after {patience:.0f} s"
                return run
        found = json.loads(output.read_text(encoding="utf-8")) if output.exists() else None
        return settle(case, run, found, code, said.read_text(encoding="utf-8", errors="replace"))


def settle(
    case: bank.Case, run: Judged, found: dict[str, Any] | None, code: int, said: str
) -> Judged:
    """The outcome of a process that has ended.

    Args:
        case: what was run.
        run: to be filled in.
        found: what it wrote, None where it died before.
        code: its exit status.
        said: what it printed.
    """
    if found is None:
        run.outcome = judge.TRACEBACK
        killed = ", out of memory?" if code == -signal.SIGKILL else ""
        run.verdict = f"the process ended with status {code}{killed}"
        run.account = "\n".join(said.splitlines()[-20:])
    elif "skipped" in found:
        run.outcome, run.verdict = judge.SKIPPED, found["skipped"]
    elif "raised" in found:
        run.outcome, run.verdict, run.account = judge.TRACEBACK, found["raised"], found["account"]
        run.seconds, run.late = found["infer"], found["infer"] > judge.limit(run.given)
    else:
        judge.judge(case, make.reference(case), found, run)
    return run


def _chosen(names: Sequence[str]) -> list[bank.Case]:
    cases = bank.cases()
    unknown = [name for name in names if name not in cases and name not in bank.FAMILIES]
    if unknown:
        raise ValueError(f"no case or family {unknown[0]!r}; --list names the cases")
    return [c for c in cases.values() if not names or c.name in names or c.family in names]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m benchmarks strangers", description=DESCRIPTION, epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help="cases or families; without, all")
    add("--seconds", type=float, default=120.0, help="max_seconds of infer (120)")
    add("--float64", action="store_true", help="double precision (single)")
    add("--keys", type=int, default=1, help="how many keys (1)")
    add("--first-key", type=int, default=0, help="the number of the first of them (0)")
    add("--peers", nargs="*", metavar="PEER", choices=[*peers.PEERS], help=PEERS_HELP)
    add("--posteriors", type=Path, metavar="PYTHON", help="the interpreter that has posteriors")
    add("--resume", action="store_true", help="run only what the file of --json lacks")
    add("--jobs", type=int, default=1, help="processes at a time (1); more make each slower")
    add(
        "--patience",
        type=float,
        help="seconds after which a process is killed (2.2 max_seconds + 70)",
    )
    add("--markdown", type=Path, metavar="FILE", help="write the table there")
    add("--json", type=Path, metavar="FILE", help="write the figures there; others in it are kept")
    add("--list", action="store_true", help="name the cases, run nothing")
    add("--make-references", action="store_true", help="compute references/NAME.json again")
    return parser
