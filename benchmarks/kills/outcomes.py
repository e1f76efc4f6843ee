"""What can come of a fault, the table of all, and how a call is judged."""

import contextlib
import dataclasses
import enum
import signal
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType

import numpy as np

import ergodax as ex

Arrays = list[np.ndarray]


class Outcome(enum.IntEnum):
    """What came of one fault, from the best to the worst."""

    RIGHT = 0  # what was read is what was saved, and the run ended in the same bits
    REFUSED = 1  # an error that names the file or the folder
    UNNAMED = 2  # some other error
    HANG = 3
    LOST = 4  # what was saved is not there
    DIFFERENT = 5  # the run ended in other bits
    WRONG = 6  # what was read is not what was saved, and nothing was said


COLUMNS = {
    Outcome.RIGHT: "right",
    Outcome.REFUSED: "refused by name",
    Outcome.WRONG: "silently wrong",
    Outcome.LOST: "saved, lost",
    Outcome.DIFFERENT: "other bits",
    Outcome.HANG: "hang",
    Outcome.UNNAMED: "other error",
}


@dataclasses.dataclass
class Row:
    """What came of one kind of fault.

    Attributes:
        fault: in words.
        counts: of the outcomes.
        note: what else is to be said.
        in_writes: of kills, how many cut a write in two.
        expected: the outcomes that are right here.
        first: of the others, the first one in words.
    """

    fault: str
    counts: Counter[Outcome] = dataclasses.field(default_factory=Counter)
    note: str = ""
    in_writes: int | None = None
    expected: tuple[Outcome, ...] = (Outcome.RIGHT, Outcome.REFUSED)
    first: str = ""

    def add(self, outcome: Outcome, of: str = "") -> None:
        """Count an outcome; `of` says which trial it was."""
        self.counts[outcome] += 1
        if outcome not in self.expected and not self.first:
            self.first = f"{self.fault}: {outcome.name.lower()}: {of}"

    @property
    def trials(self) -> int:
        """How many there were."""
        return self.counts.total()

    @property
    def ok(self) -> bool:
        """Whether every outcome is one that is right here."""
        return not set(self.counts) - set(self.expected)

    @property
    def told(self) -> str:
        """The outcomes in words."""
        found = ", ".join(f"{count} {COLUMNS[each]}" for each, count in sorted(self.counts.items()))
        return f"{found or 'none'}{'' if self.ok else ', NOT as it should be'}"


def table(rows: Sequence[Row]) -> str:
    """The rows as a table in Markdown, which can be read as text too."""
    head = ["fault", "trials", *COLUMNS.values(), "note"]
    cells = [
        [row.fault, str(row.trials), *(str(row.counts[each]) for each in COLUMNS), row.note]
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
    right = {k for k in range(1, len(head) - 1)}
    lines = [
        [text.rjust(w) if k in right else text.ljust(w) for k, (text, w) in pairs]
        for pairs in (enumerate(zip(line, widths, strict=True)) for line in [head, *cells])
    ]
    rule = ["-" * (w - 1) + ":" if k in right else "-" * w for k, w in enumerate(widths)]
    return "\n".join(f"| {' | '.join(line)} |" for line in [lines[0], rule, *lines[1:]])


NAMED = (ex.CheckpointError, ex.StorageError, OSError)


def judged(folder: Path, seconds: float, call: Callable[[], Outcome]) -> tuple[Outcome, str]:
    """What a call comes to, and the error's words: refused, if it names the folder.

    Args:
        folder: whose files something happened to.
        seconds: after which it hangs.
        call: returns the outcome where it ends without an error.
    """
    try:
        with _at_most(seconds), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return call(), ""
    except _Hanging:
        return Outcome.HANG, f"no end after {seconds} s"
    except NAMED as error:
        named = str(folder) in str(error)
        return Outcome.REFUSED if named else Outcome.UNNAMED, f"{type(error).__name__}: {error}"
    except Exception as error:
        return Outcome.UNNAMED, f"{type(error).__name__}: {error}"


def begun_rightly(found: Arrays, whole: Arrays, at_least: int) -> Outcome:
    """Whether what is read of an unfinished run is the beginning of the one that nothing befell.

    Args:
        found: arrays with the draws first; none where there is nothing to read.
        whole: of the other run.
        at_least: draws that had been saved.
    """
    count = len(found[0]) if found else 0
    if count < at_least:
        return Outcome.LOST
    if not found:
        return Outcome.RIGHT
    right = all(same_bits(x, y[:count]) for x, y in zip(found, whole, strict=True))
    return Outcome.RIGHT if right else Outcome.WRONG


def ended_rightly(found: Arrays, whole: Arrays) -> Outcome:
    """Whether a finished run is, to the bit, the one that nothing befell."""
    same = len(found) == len(whole) and all(map(same_bits, found, whole))
    return Outcome.RIGHT if same else Outcome.DIFFERENT


def same_bits(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether two arrays have the same bits, shape and type."""
    return (x.shape, x.dtype, x.tobytes()) == (y.shape, y.dtype, y.tobytes())


class _Hanging(BaseException):
    """Not an Exception, so that nothing in between takes it for one of its own."""


@contextlib.contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Raise `_Hanging` after so long, in the main thread."""

    def raise_it(number: int, frame: FrameType | None) -> None:
        raise _Hanging

    before = signal.signal(signal.SIGALRM, raise_it)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
