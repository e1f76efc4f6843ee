"""Runs are killed, again and again, resumed each time, and at last compared to the bit.

Half of the kills come at random instants of a copy's life, the others where it has stopped in a
write. After each the store is read and compared, and the checkpoint must count no less than before.
"""

import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.kills.kinds import KINDS
from benchmarks.kills.outcomes import Outcome, Row, begun_rightly, ended_rightly, judged
from benchmarks.kills.runs import RUN
from benchmarks.kills.worker import FINISHED, PATIENCE, REFUSED, Worker

READING = 60.0  # seconds, after which reading a store hangs
OPERATIONS = 150  # of writing, among which a copy stops in one
KILLED = -signal.SIGKILL


def kill_and_resume(
    kind: str,
    kills: int,
    folder: Path,
    *,
    seed: int,
    say: Callable[[str], None] = lambda text: None,
) -> Row:
    """Kill a run, resume it, and compare.

    A run that comes to its end is compared, and the next one begins.

    Args:
        kind: a key of `KINDS`.
        kills: how many.
        folder: an empty one.
        seed: of the instants.
        say: called with a line at every tenth kill.
    """
    dice = random.Random(seed)
    with Worker(kind, folder / "data", folder / "killed") as worker:
        drill = Drill(kind, worker, folder / "data", folder / "killed")
        longest = 2.0 * drill.seconds_to_the_first_draws()
        while drill.row.trials + len(drill.pending) < kills:
            if len(drill.pending) % 2:
                drill.kill_after(dice.uniform(0.0, longest))
            else:
                drill.kill_in_a_write(dice.randint(1, OPERATIONS), dice.getrandbits(32))
            if (done := drill.row.trials + len(drill.pending)) % 10 == 0:
                say(f"{drill.row.fault}: {done} of {kills}")
        while drill.pending:
            drill.finish()
        drill.row.in_writes = drill.in_writes
        drill.row.note = f"{drill.in_writes} in a write, {drill.ends} runs finished"
        return drill.row


class Drill:
    """One kind of run, killed and resumed.

    Args:
        kind: a key of `KINDS`.
        worker: whose copies run.
        data: the folder of its data.
        folder: of the run.

    Attributes:
        row: what came of the kills of the runs that have ended.
        pending: of those of the run that goes on.
        in_writes: kills that cut a write in two.
        ends: runs that came to their end.
        saved: what can be read of a run that was not killed.
        ended: what it ended in.
    """

    def __init__(self, kind: str, worker: Worker, data: Path, folder: Path) -> None:
        self.kind, self.worker, self.data, self.folder = KINDS[kind], worker, data, folder
        self.row = Row(f"SIGKILL: {kind}", expected=(Outcome.RIGHT,))
        self.pending: list[tuple[Outcome, str]] = []
        self.in_writes = self.ends = self.counted = 0
        worker.begin()
        if (code := worker.end(PATIENCE)) != FINISHED:
            raise RuntimeError(f"the run that nothing befell ended with {code}:\n{worker.said}")
        self.saved, self.ended = self.kind.saved(data, folder), self.kind.ended(data, folder)
        self._clear()

    def seconds_to_the_first_draws(self) -> float:
        """How long a copy takes to its first checkpoint that counts some; it is killed then."""
        begin, copy = time.perf_counter(), self.worker.begin()
        while not self.kind.counted(self.folder):
            if time.perf_counter() - begin > PATIENCE:
                raise RuntimeError(f"the run makes no draws:\n{self.worker.said}")
            time.sleep(0.01)
        seconds = time.perf_counter() - begin
        self.worker.kill(copy)
        self._clear()
        return seconds

    def kill_after(self, seconds: float) -> None:
        """Kill a copy at an instant that is chosen without regard to what it does."""
        begin, copy = time.time(), self.worker.begin()
        time.sleep(seconds)
        code = self.worker.kill(copy)
        # Of an earlier kill there may be some too, which the next run to come so far removes.
        left = any(path.stat().st_mtime > begin for path in self.folder.rglob(".*.new"))
        self.over(code, f"after {seconds:.3f} s", in_a_write=left)

    def kill_in_a_write(self, number: int, seed: int) -> None:
        """Kill a copy in its number-th operation of writing, if it comes to it."""
        copy = self.worker.begin(number, seed)
        line = self.worker.line(PATIENCE)
        if line is None:
            self._hung(copy)
        elif line.startswith("in "):
            self.over(self.worker.kill(copy), line, in_a_write=True)
        else:
            self.over(int(line.split()[1]))

    def finish(self) -> None:
        """Let the run come to its end, and compare."""
        copy = self.worker.begin()
        try:
            code = self.worker.end(PATIENCE)
        except TimeoutError:
            self._hung(copy)
        else:
            self.over(code)

    def over(self, code: int, when: str = "", *, in_a_write: bool = False) -> None:
        """A copy's life is over: killed, at its end, or in an error, which a kill has caused."""
        if code == KILLED:
            self.in_writes += in_a_write
            self.pending.append(self._judge(when))
        elif code == FINISHED:
            judge = lambda: ended_rightly(self.kind.ended(self.data, self.folder), self.ended)  # noqa: E731
            self.ends += 1
            self._count(*judged(self.folder, READING, judge))
        else:
            outcome = Outcome.LOST if code == REFUSED else Outcome.UNNAMED
            self._count(outcome, f"can't be gone on with:\n{self.worker.said}")

    def _judge(self, when: str) -> tuple[Outcome, str]:
        """What can be read after a kill, and whether it is as much as before."""
        before, self.counted = self.counted, self.kind.counted(self.folder)
        if self.counted < before:
            return Outcome.LOST, f"{when}: {before} draws were counted, then {self.counted}"

        def read() -> Outcome:
            found = self.kind.saved(self.data, self.folder)
            return begun_rightly(found, self.saved, at_least=self.counted)

        outcome, words = judged(self.folder, READING, read)
        # Nothing is to be refused here: nobody has touched the files.
        outcome = Outcome.LOST if outcome is Outcome.REFUSED else outcome
        return outcome, f"{when}: {words}"

    def _hung(self, copy: int) -> None:
        self.worker.kill(copy)
        self._count(Outcome.HANG, f"no end after {PATIENCE} s")

    def _count(self, end: Outcome, words: str) -> None:
        """Count the kills of a run that is over: each is as bad as the run's end, or worse."""
        for outcome, when in self.pending or [(Outcome.RIGHT, "not killed")]:
            if self.pending or end is not Outcome.RIGHT:
                self.row.add(max(outcome, end), when if outcome > end else f"{when}: {words}")
        self.pending = []
        self._clear()

    def _clear(self) -> None:
        self.counted = 0
        for path in self.folder.iterdir():
            shutil.rmtree(path)
        assert not (self.folder / RUN).exists()
