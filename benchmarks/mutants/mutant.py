"""A mutant: one line of the package that says something else."""

import dataclasses
import hashlib
import json
from pathlib import Path

DATA = Path(__file__).parent / "mutants.jsonl"
ROOT = Path(__file__).parents[2]


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A line and what stands there instead.

    Attributes:
        file: below src/ergodax.
        operator: the kind of change.
        old: the line as it is, with its indentation.
        new: the line of the mutant; may have line breaks.
        which: 0 for the first line of the file that reads so, 1 for the second.
        equivalent: why no test can notice; "" where one has to.
    """

    file: str
    operator: str
    old: str
    new: str
    which: int = 0
    equivalent: str = ""

    @property
    def name(self) -> str:
        """File and digest of the change; stays when other lines of the file move."""
        change = json.dumps([self.file, self.old, self.new, self.which])
        return f"{self.file}@{hashlib.sha256(change.encode()).hexdigest()[:8]}"

    def applied(self, text: str) -> str:
        """The file with this change.

        Raises:
            LookupError: the line isn't there any more; the mutant is out of date.
        """
        lines = text.split("\n")
        lines[self.line(text) - 1] = self.new
        return "\n".join(lines)

    def line(self, text: str) -> int:
        """The number of its line in this file, from 1.

        Raises:
            LookupError: as above.
        """
        places = [k for k, line in enumerate(text.split("\n"), 1) if line == self.old]
        if self.which >= len(places):
            raise LookupError(f"{self.file} has no line {self.old.strip()!r}: make the mutant anew")
        return places[self.which]

    def fits(self) -> bool:
        """Whether the line is still there."""
        path = ROOT / "src/ergodax" / self.file
        try:
            self.applied(path.read_text(encoding="utf-8"))
        except (LookupError, FileNotFoundError):
            return False
        return True

    def __str__(self) -> str:
        return f"{self.name}\n    - {self.old.strip()}\n    + {self.new.strip()}"


def read(path: Path = DATA) -> list[Mutant]:
    """All mutants of the file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [Mutant(**json.loads(line)) for line in lines if line]


def write(mutants: list[Mutant], path: Path = DATA) -> None:
    """Write one a line, sorted by file."""
    entries = [dataclasses.asdict(one) for one in sorted(mutants, key=lambda m: (m.file, m.name))]
    for entry in entries:
        for key, default in (("equivalent", ""), ("which", 0)):
            if entry[key] == default:
                del entry[key]
    lines = [json.dumps(entry, ensure_ascii=False) for entry in entries]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
