"""Tables as aligned text for a terminal and as Markdown for a file."""

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass
class Table:
    """A title, columns, rows of text, and notes below.

    Attributes:
        title: one line.
        columns: headings; the first column is a name, the others are numbers.
        rows: as many cells as columns.
        notes: lines of text for the reader.
        data: the same figures as plain numbers, for --json.
    """

    title: str
    columns: Sequence[str]
    rows: list[list[str]] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    data: dict = dataclasses.field(default_factory=dict)

    def text(self) -> str:
        """Aligned with spaces."""
        lines = [list(self.columns), *self.rows]
        widths = [max(len(line[k]) for line in lines) for k in range(len(self.columns))]
        pad = [
            "  ".join(
                [line[0].ljust(widths[0])]
                + [c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True)]
            )
            for line in lines
        ]
        pad.insert(1, "-" * len(pad[0]))
        return "\n".join([f"{self.title}\n", *pad, *self.notes])

    def markdown(self) -> str:
        """A heading, a table, the notes as a list."""
        lines = ["| " + " | ".join(line) + " |" for line in [list(self.columns), *self.rows]]
        lines.insert(1, "|---" + "|---:" * (len(self.columns) - 1) + "|")
        notes = ["", *(f"- {note}" for note in self.notes)] if self.notes else []
        return "\n".join([f"## {self.title}", "", *lines, *notes])


def verdict(what: str, value: float, goal: float, *, strict: bool = False) -> str:
    """A goal and whether it is met."""
    met = value < goal if strict else round(value, 2) <= goal
    sign = "<" if strict else "at most"
    return f"{what}: {value:.2f} (goal {sign} {goal:g}) {'met' if met else 'NOT MET'}"
