"""The output of an experiment: a picture, a CSV, the facts as JSON, and one HTML page."""

import base64
import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True
)


@dataclasses.dataclass
class Page:
    """What an experiment found, ready to be shown.

    Attributes:
        title: of the page.
        facts: every number, for JSON.
        tables: of texts, by heading; printed and shown.
        sentences: what was found, or how the tables are read.
        figure: the picture.
        caption: of it.
        table: for the CSV; without row names.
        numbers: tables of numbers by heading, for the page alone.
    """

    title: str
    facts: dict[str, Any]
    tables: dict[str, pd.DataFrame]
    sentences: list[str]
    figure: Figure
    caption: str
    table: pd.DataFrame
    numbers: dict[str, pd.DataFrame] = dataclasses.field(default_factory=dict)


def write(page: Page, folder: Path, name: str) -> dict[str, Path]:
    """Write NAME.png, NAME.csv, facts.json and report.html.

    Args:
        page: what was found.
        folder: that exists.
        name: of the experiment.

    Returns:
        The paths by name.
    """
    paths = {
        "picture": folder / f"{name}.png",
        "table": folder / f"{name}.csv",
        "facts": folder / "facts.json",
        "report": folder / "report.html",
    }
    page.figure.savefig(paths["picture"], dpi=150)
    page.table.to_csv(paths["table"], index=False)
    paths["facts"].write_text(json.dumps(plain(page.facts), indent=2) + "\n", encoding="utf-8")
    numbers = {head: table.map(_text) for head, table in page.numbers.items()}
    html = TEMPLATES.get_template("page.html.jinja").render(
        page=page,
        tables=page.tables | numbers,
        settings={k: _text(v) for k, v in page.facts.items() if not isinstance(v, dict | list)},
        image=base64.b64encode(paths["picture"].read_bytes()).decode(),
    )
    paths["report"].write_text(html, encoding="utf-8")
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


def panels(rows: int, columns: int) -> tuple[Figure, Any]:
    """A figure and its axes, an array of rows and columns."""
    figure = Figure(figsize=(4.4 * columns, 3.4 * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def lines(
    axis: Any, table: Any, x: str, y: str, by: str, styles: dict[str, Any], **setting: Any
) -> None:
    """A line for each name: y by x on logarithmic axes, with two standard errors if there are any.

    Args:
        axis: of a figure.
        table: with the columns x, y and by, and perhaps NAME_error for the errors of y.
        x: name of a column.
        y: likewise; its sign is not shown.
        by: the column of the names.
        styles: colour and marker by name, and a line style if it is not solid.
        setting: of the axis, such as title and xlabel.
    """
    for name, (colour, marker, *dash) in styles.items():
        own = table[table[by] == name]
        if len(own):
            errors = 2.0 * own[f"{y}_error"] if f"{y}_error" in own else None
            style = {"color": colour, "marker": marker, "ms": 4, "lw": 1, "capsize": 2}
            style["ls"] = dash[0] if dash else "-"
            axis.errorbar(own[x], np.abs(own[y]), errors, label=name, **style)
    axis.set(**{"xscale": "log", "yscale": "log"} | setting)
    axis.title.set_fontsize(9)
    places = sorted({float(place) for place in table[x]})
    shown = places[:: -(-len(places) // 6) or 1]
    axis.set_xticks(shown, [f"{place:.4g}" for place in shown])
    axis.xaxis.set_tick_params(which="minor", bottom=False, labelbottom=False)


def _text(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float | np.floating) else str(value)
