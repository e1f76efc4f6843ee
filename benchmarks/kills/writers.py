"""Two runs that write to one folder: the second is told so, and the first goes on."""

import shutil
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

import ergodax as ex
from benchmarks.kills.kinds import KINDS, SHORT
from benchmarks.kills.outcomes import Outcome, Row, ended_rightly
from benchmarks.kills.worker import FINISHED, PATIENCE, REFUSED, Worker

KIND = "data in memory"
OF_A_COPY = {FINISHED: Outcome.RIGHT, REFUSED: Outcome.REFUSED}


def processes(times: int, folder: Path, say: Callable[[str], None]) -> Row:
    """Two processes begin a run in one folder at once; one is refused, or comes when it has ended.

    Then the folder has the run that one process makes alone.
    """
    row, run, data = Row("two writers: processes"), KINDS[KIND], folder / "data"
    killed = folder / "run"
    with Worker(KIND, data, killed) as one, Worker(KIND, data, killed) as other:
        one.begin()
        one.end(PATIENCE)
        ended = run.ended(data, killed)
        for number in range(times):
            _empty(killed)
            try:
                for worker in (one, other):
                    worker.begin()
                codes = [worker.end(PATIENCE) for worker in (one, other)]
            except TimeoutError:
                row.add(Outcome.HANG)
                break
            outcomes = [OF_A_COPY.get(code, Outcome.UNNAMED) for code in codes]
            if Outcome.RIGHT in outcomes:
                outcomes.append(ended_rightly(run.ended(data, killed), ended))
            else:
                outcomes.append(Outcome.LOST)  # nobody has written
            row.add(max(outcomes), f"{codes}: {one.said} {other.said}")
            say(f"{row.fault}: {number + 1} of {times}")
    return row


def threads(times: int, folder: Path) -> Row:
    """Likewise two threads of one process."""
    row, run, data = Row("two writers: threads"), SHORT["a run"], folder / "data"
    data.mkdir(parents=True)
    run.go_on(data, folder / "whole")
    ended = run.ended(data, folder / "whole")
    for _ in range(times):
        place, gate = folder / "run", threading.Barrier(2)
        found: list[Outcome] = []

        def live(place: Path, gate: threading.Barrier, found: list[Outcome]) -> None:
            gate.wait()
            try:
                run.go_on(data, place)
                found.append(Outcome.RIGHT)
            except ex.CheckpointError:
                found.append(Outcome.REFUSED)
            except Exception:
                traceback.print_exc()
                found.append(Outcome.UNNAMED)

        both = [threading.Thread(target=live, args=(place, gate, found)) for _ in range(2)]
        for thread in both:
            thread.daemon = True
            thread.start()
        for thread in both:
            thread.join(PATIENCE)
        if len(found) < 2:
            row.add(Outcome.HANG)
            break
        right = Outcome.RIGHT in found
        end = ended_rightly(run.ended(data, place), ended) if right else Outcome.LOST
        row.add(max(*found, end), str(found))
        shutil.rmtree(place)
    return row


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        shutil.rmtree(path)
