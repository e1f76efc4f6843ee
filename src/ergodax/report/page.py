"""A self-contained HTML page from one template: what was run, what came out, pictures."""

import base64
import functools
import html
import io
import json
import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

FIGURE = re.compile(r"[+-]?\d.*|none|nan|")
LEFT = ' style="text-align: left"'


def key_values(values: dict[str, object]) -> str:
    """A two-column table."""
    return _part("key_values", {name: _rounded(value, 5) for name, value in values.items()})


def data_frame(table: Any) -> str:
    """A pandas DataFrame with row names, four significant digits, scrolled if long."""
    rows = [
        [name, *(_rounded(value, 4) for value in row)]
        for name, row in zip(table.index, table.itertuples(index=False), strict=True)
    ]
    return _part("table", ["", *table.columns], rows, [""] * (1 + len(table.columns)))


def text_table(table: Any) -> str:
    """A DataFrame of texts without row names: words to the left, figures to the right."""
    sides = ["" if are_figures(table[name]) else _safe(LEFT) for name in table]
    return _part("table", table.columns, table.itertuples(index=False), sides)


def are_figures(texts: Iterable[str]) -> bool:
    """Whether every text of a column begins with a number, or stands for none."""
    return all(FIGURE.fullmatch(str(text)) for text in texts)


def picture(figure: Any, caption: str) -> str:
    """A matplotlib figure with its caption, the image inlined; closes it."""
    import matplotlib.pyplot as plt

    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110, bbox_inches="tight")
    plt.close(figure)
    return _part("picture", base64.b64encode(buffer.getvalue()).decode(), caption)


def sentences_list(sentences: list[str]) -> str:
    """An HTML list."""
    return _part("sentences_list", [_safe(html.escape(s, quote=False)) for s in sentences])


def write(path: Path, title: str, sections: list[tuple[str, str]]) -> Path:
    """Write the page.

    Args:
        path: of the .html file; its folder is made.
        title: of the page.
        sections: (heading, HTML) in order, the HTML made of the parts above.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    text = _template().render(title=title, sections=sections)
    path.write_text(text + "\n", encoding="utf-8")
    return path


def results(
    folder: Path,
    name: str,
    picture: Any,
    table: Any,
    facts: dict[str, Any],
    *,
    facts_name: str | None = None,
) -> dict[str, Path]:
    """Write NAME.png, NAME.csv if there is a table, and the facts as JSON.

    Args:
        folder: made if it does not exist.
        name: of the files.
        picture: a figure.
        table: a DataFrame without row names; or None.
        facts: see `plain`.
        facts_name: of the facts' file, if another one.

    Returns:
        Their paths, and that of the report.html which is to be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = {
        "picture": folder / f"{name}.png",
        "table": folder / f"{name}.csv",
        "facts": folder / f"{facts_name or name}.json",
        "report": folder / "report.html",
    }
    picture.savefig(paths["picture"], dpi=150)
    if table is None:
        del paths["table"]
    else:
        table.to_csv(paths["table"], index=False)
    write_facts(paths["facts"], facts)
    return paths


def write_facts(path: Path, facts: dict[str, Any]) -> None:
    """Write facts as JSON."""
    path.write_text(json.dumps(plain(facts), indent=2) + "\n", encoding="utf-8")


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


def _part(macro: str, *arguments: Any) -> str:
    """What a macro of the template makes of the arguments; a plain str, to be added to others."""
    return str(getattr(_template().module, macro)(*arguments))


def _rounded(value: object, digits: int) -> object:
    return f"{value:.{digits}g}" if isinstance(value, float | np.floating) else value


def _safe(text: str) -> Any:
    from markupsafe import Markup

    return Markup(text)
