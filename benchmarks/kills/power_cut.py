"""The power fails after any operation on a file: an earlier count is there, whole, and goes on."""

import random
from collections.abc import Callable
from pathlib import Path

from benchmarks.kills.kinds import SHORT
from benchmarks.kills.outcomes import Arrays, Outcome, Row, begun_rightly, ended_rightly, judged
from benchmarks.kills.recorder import Recorder, disks, lay_out
from benchmarks.kills.runs import Kept

SECONDS = 60.0  # after which reading or going on hangs
# From where to where a run is recorded; the draws of "a run" begin a second chunk at 0.4096.
PARTS = {
    "a run": {"begun": (0.0, 0.001), "half of it": (0.4090, 0.4100), "its end": (0.9995, 1.0)},
}
CUTS, RESUMED = 60, 10  # cuts of a part at most, and after one in how many the run goes on
ALWAYS, SELDOM = 1e-9, 10.0  # seconds to a saving: after every step, or hardly ever


def power_cut(
    kind: str, folder: Path, *, seed: int, quick: bool, say: Callable[[str], None]
) -> list[Row]:
    """Record parts of a run, and cut each after many of its operations.

    Args:
        kind: a key of `SHORT`.
        folder: an empty one.
        seed: of the cuts and of what is on the disk then.
        quick: few cuts.
        say: called with a line before each part.
    """
    run, data, dice, rows = SHORT[kind], folder / "data", random.Random(seed), []
    data.mkdir(parents=True)
    run.go_on(data, folder / "whole", every=SELDOM)
    saved, ended = run.saved(data, folder / "whole"), run.ended(data, folder / "whole")
    for name, (first, last) in PARTS[kind].items():
        row = Row(f"power cut: {kind}, {name}", expected=(Outcome.RIGHT,))
        say(row.fault)
        root = folder / f"disk {name}"
        root.mkdir()
        if first:
            run.go_on(data, root, first, every=SELDOM)
        with Recorder(root) as recorder:
            run.go_on(data, root, last, every=ALWAYS)
        places = range(recorder.first + 1, len(recorder.operations) + 1)
        cuts = dice.sample(places, min(len(places), CUTS // 8 if quick else CUTS))
        for number, end in enumerate(sorted(cuts)):
            found = disks(recorder.operations[:end], dice)
            sure = _sure(run, data, recorder, end, folder / "sure", dice)
            for disk in found:
                copy = folder / "copy"
                lay_out(disk, root, copy)
                goes_on = ended if number % RESUMED == 0 else None
                outcome, words = _judge(run, data, copy, saved, sure, goes_on)
                row.add(outcome, f"operation {end}: {words}")
        rows.append(row)
    return rows


def _sure(
    run: Kept, data: Path, recorder: Recorder, end: int, copy: Path, dice: random.Random
) -> int:
    """The draws that the last checkpoint counts that is there whatever is not, before the cut."""
    lay_out(next(disks(recorder.operations[: end - 1], dice)), recorder.root, copy)
    return run.counted(copy)


def _judge(
    run: Kept, data: Path, copy: Path, saved: Arrays, sure: int, ended: Arrays | None
) -> tuple[Outcome, str]:
    """What can be read after a cut, and what the run ends in, where it is to go on."""

    def read() -> Outcome:
        counted = run.counted(copy)
        if counted < sure:
            return Outcome.LOST
        return begun_rightly(run.saved(data, copy), saved, counted)

    def go_on() -> Outcome:
        if ended is None:
            return Outcome.RIGHT
        run.go_on(data, copy, every=SELDOM)
        return ended_rightly(run.ended(data, copy), ended)

    outcome, words = max(judged(copy, SECONDS, call) for call in (read, go_on))
    # Nothing is to be refused: the files are as the system left them.
    return (Outcome.LOST if outcome is Outcome.REFUSED else outcome), words
