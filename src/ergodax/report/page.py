"""A self-contained HTML page: what was run, what came out, pictures."""

import html
import json
import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ergodax.report import pictures

FIGURE = re.compile(r"[+-]?\d.*|none|nan|")
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1080px; margin: 2em auto; padding: 0 1em;
       color: #222; }
table { border-collapse: collapse; font-size: 13px; }
th, td { padding: 2px 10px; text-align: right; border-bottom: 1px solid #e5e5e5; }
th:first-child, td:first-child { text-align: left; }
img { max-width: 100%; } h2 { margin-top: 2em; } .scroll { max-height: 30em; overflow: auto; }
figcaption { color: #666; font-size: 13px; }
"""


def key_values(values: dict[str, object]) -> str:
    """A two-column table."""
    rows = "".join(
        f"<tr><td>{html.escape(name.replace('_', ' '))}</td><td>{_text(value)}</td></tr>"
        for name, value in values.items()
    )
    return f"<table>{rows}</table>"


def data_frame(table: pd.DataFrame) -> str:
    """A table with row names, four significant digits, scrolled if long."""
    body = table.to_html(float_format=lambda x: f"{x:.4g}", border=0)
    return f'<div class="scroll">{body}</div>'


def text_table(table: pd.DataFrame) -> str:
    """A table of texts without row names: words to the left, figures to the right."""
    sides = ["" if are_figures(table[name]) else ' style="text-align: left"' for name in table]

    def row(cells: Iterable[object], tag: str) -> str:
        texts = zip(sides, cells, strict=True)
        return "".join(f"<{tag}{side}>{html.escape(str(c))}</{tag}>" for side, c in texts)

    body = "".join(f"<tr>{row(cells, 'td')}</tr>" for cells in table.itertuples(index=False))
    return f"<table><tr>{row(table.columns, 'th')}</tr>{body}</table>"


def are_figures(texts: Iterable[str]) -> bool:
    """Whether every text of a column begins with a number, or stands for none."""
    return all(FIGURE.fullmatch(str(text)) for text in texts)


def picture(figure: object, caption: str) -> str:
    """A figure with its caption, the image inlined."""
    data = pictures.encode(figure)
    alt = html.escape(caption)
    return (
        f'<figure><img alt="{alt}" src="data:image/png;base64,{data}">'
        f"<figcaption>{alt}</figcaption></figure>"
    )


def write(path: Path, title: str, sections: list[tuple[str, str]]) -> Path:
    """Write the page.

    Args:
        path: of the .html file; its folder is made.
        title: of the page.
        sections: (heading, HTML) in order.
    """
    body = "".join(f"<h2>{html.escape(head)}</h2>\n{content}\n" for head, content in sections)
    page = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}'
        f"</title><style>{STYLE}</style></head><body><h1>{html.escape(title)}</h1>{body}"
        "</body></html>\n"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")
    return path


def results(
    folder: Path,
    name: str,
    picture: Any,
    table: pd.DataFrame | None,
    facts: dict[str, Any],
    *,
    facts_name: str | None = None,
) -> dict[str, Path]:
    """Write NAME.png, NAME.csv if there is a table, and the facts as JSON.

    Args:
        folder: made if it does not exist.
        name: of the files.
        picture: a figure.
        table: without row names; or None.
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
    paths["facts"].write_text(json.dumps(plain(facts), indent=2) + "\n", encoding="utf-8")
    return paths


def plain(value: Any) -> Any:
    """Facts as JSON has them: numbers of Python, and null for what is not a finite number."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return value


def sentences_list(sentences: list[str]) -> str:
    """An HTML list."""
    return "<ul>" + "".join(f"<li>{html.escape(s, quote=False)}</li>" for s in sentences) + "</ul>"


def _text(value: object) -> str:
    if isinstance(value, float | np.floating):
        return f"{value:.5g}"
    return html.escape(str(value))
