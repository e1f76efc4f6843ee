"""A self-contained HTML page from one template: sections of sentences, tables and pictures."""

import base64
import functools
import io
import json
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

FIGURE = re.compile(r"[+-]?\d.*|none|nan|")
Section = tuple[str, Sequence[Any]]  # a heading and its parts: see `write`


def write(path: Path, title: str, sections: Sequence[Section]) -> Path:
    """Write the page; its folder is made.

    A section's parts are lists of sentences, dicts of settings, DataFrames whose row names are not
    shown, and pairs of a matplotlib figure, which is closed, and its caption.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    shown = [(head, [_shown(part) for part in parts]) for head, parts in sections]
    text = _template().render(title=title, sections=shown)
    path.write_text(text + "\n", encoding="utf-8")
    return path


def _shown(part: Any) -> tuple[Any, ...]:
    """A part as the template has it: its kind, and what that needs."""
    match part:
        case _ if hasattr(part, "columns"):
            left = [not are_figures(part[name]) for name in part]
            return "table", list(part.columns), part.to_numpy().tolist(), left
        case dict():
            return "settings", {name: _rounded(value, 5) for name, value in part.items()}
        case (figure, str(caption)) if hasattr(figure, "savefig"):
            return "picture", _inlined(figure), caption
        case _:
            return "sentences", part


def _inlined(figure: Any) -> str:
    import matplotlib.pyplot as plt

    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110, bbox_inches="tight")
    plt.close(figure)
    return base64.b64encode(buffer.getvalue()).decode()


def with_names(table: Any) -> Any:
    """A DataFrame of four significant digits, whose row names are its first column."""
    rounded = table.map(lambda value: str(_rounded(value, 4))).astype(object)
    rounded.insert(0, "", [str(name) for name in table.index], allow_duplicates=True)
    return rounded


def are_figures(texts: Iterable[Any]) -> bool:
    """Whether every text of a column begins with a number, or stands for none."""
    return all(FIGURE.fullmatch(str(text)) for text in texts)


def write_facts(path: Path, facts: dict[str, Any]) -> Path:
    """Write facts as JSON."""
    path.write_text(json.dumps(plain(facts), indent=2) + "\n", encoding="utf-8")
    return path


def plain(value: Any) -> Any:
    """Facts as JSON has them: numbers of Python, and null for what is not a finite number."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return value


@functools.cache
def _template() -> Any:
    import jinja2

    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    return jinja2.Environment(loader=loader, autoescape=True).get_template("page.html")


def _rounded(value: object, digits: int) -> object:
    return f"{value:.{digits}g}" if isinstance(value, float | np.floating) else value
