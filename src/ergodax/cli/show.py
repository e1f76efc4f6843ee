"""Tables in the terminal."""

from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ergodax.report.page import are_figures

LEAST, GAP = 12, 2  # characters of a column of words, and between columns


def text_table(texts: Any, title: str | None = None) -> Table:
    """A table of texts: words to the left, figures to the right.

    Args:
        texts: a pandas DataFrame of cells.
        title: above it.
    """
    table = Table(
        title=None if title is None else Text(title), title_justify="left", box=box.SIMPLE_HEAD,
        show_edge=False, pad_edge=False, padding=(0, 1, 0, 0),
    )  # fmt: skip
    for name in texts.columns:
        words = not are_figures(texts[name])
        side = "left" if words else "right"
        table.add_column(Text(str(name)), justify=side, overflow="fold")
    for row in texts.itertuples(index=False):
        table.add_row(*(Text(str(cell)) for cell in row))
    return table


def show(console: Console, texts: Any, title: str | None = None) -> None:
    """Print such a table, wider than the terminal rather than with a figure on two lines.

    Args:
        console: where.
        texts: as of `text_table`.
        title: above it.
    """
    if title is not None:
        console.print(title, style="italic", highlight=False, markup=False)
    table, least = text_table(texts), 0
    for column, name in zip(table.columns, texts.columns, strict=True):
        widest = max(map(len, [str(name), *map(str, texts[name])]))
        column.no_wrap = column.justify == "right"
        least += GAP + (widest if column.no_wrap else min(LEAST, widest))
    console.print(table, width=max(console.width, least), crop=False)
