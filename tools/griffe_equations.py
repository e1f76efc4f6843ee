"""Show the equations of docstrings as they are written there, a line each.

In a docstring an equation stands on lines of its own, indented. Markdown would run them into the
paragraph before them; this extension of griffe makes blocks of code of them.
"""

import re
from typing import Any

import griffe

SECTION = re.compile(r"^(Args|Returns|Raises|Yields|Attributes|Reference|References|Examples?):$")
INDENTED = re.compile(r"^    +\S")
ITEM = re.compile(r"^\s*([-*]|\d+\.)\s")


class Equations(griffe.Extension):
    """Put indented lines of a docstring's text between fences."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite the docstring of anything that has one."""
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    r"""The docstring with fences around the indented lines before its first section.

    `make docs` runs this example:

    >>> print(fenced("Update:\n    x+ = x\n    y+ = y\nThen.\n\nArgs:\n    a: number."))
    Update:
    <BLANKLINE>
    ```text
    x+ = x
    y+ = y
    ```
    <BLANKLINE>
    Then.
    <BLANKLINE>
    Args:
        a: number.
    >>> fenced("- a list\n    goes on") == "- a list\n    goes on"
    True
    """
    out: list[str] = []
    inside = item = False
    lines = iter(text.splitlines())
    for line in lines:
        if SECTION.match(line):
            out += ["```", ""] * inside + [line, *lines]
            return "\n".join(out)
        item = bool(ITEM.match(line)) or (item and line.startswith(" "))
        equation = bool(INDENTED.match(line)) and not item
        if equation != inside and (line.strip() or not inside):
            out += ["", "```text"] if equation else ["```", ""]
            inside = equation
        out.append(line[4:] if equation else line)
    return "\n".join(out + ["```"] * inside)
