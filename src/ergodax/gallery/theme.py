"""How pictures look: colours, fonts, sizes, and how charts are set out on a page."""

from collections.abc import Sequence
from typing import Any

import altair as alt

BLUE, ORANGE, GREEN, PURPLE, RED = "#3b6fb6", "#d0662b", "#4c9a5b", "#8b5fa8", "#b8373f"
PALETTE = (BLUE, ORANGE, GREEN, PURPLE, RED)
EXACT, GREY = "#1d1d1f", "#9a9aa0"  # what is known, what is in the background
WIDTH, HEIGHT = 425, 290  # two such charts fill the width of a page

# A chart is its specification, which the page draws; the rows travel in it.
MIME = f"application/vnd.vegalite.v{alt.VEGALITE_VERSION.partition('.')[0]}+json"
alt.renderers.register("ergodax", lambda specification, **_: {MIME: specification})
alt.renderers.enable("ergodax")
alt.data_transformers.disable_max_rows()


def beside(*charts: Any) -> alt.HConcatChart:
    """Charts in a row, each with its own colours and legend, in the gallery's theme."""
    return themed(_row(charts))


def above(*rows: Any) -> alt.VConcatChart:
    """Rows of charts, in the gallery's theme; a row is a chart or a list of charts."""
    made = [_row(row) if isinstance(row, list) else row for row in rows]
    return themed(_apart(alt.vconcat(*made, spacing=24)))


def themed(chart: Any) -> Any:
    """The chart with fonts, colours and legends of the gallery; once, at the outermost."""
    font = "PT Sans, Helvetica, Arial, sans-serif"
    return (
        chart.properties(usermeta={"embedOptions": {"actions": False}})
        .configure(background="white", font=font, padding=8)
        .configure_view(stroke="#d8d8dc")
        .configure_axis(
            labelFontSize=12, titleFontSize=13, titleFontWeight="normal", gridColor="#eeeef1",
            labelFlush=False, domainColor="#b5b5ba", tickColor="#b5b5ba", labelColor=EXACT,
            titleColor=EXACT,
        )
        .configure_title(fontSize=14, fontWeight="bold", anchor="start", offset=10, color=EXACT)
        .configure_legend(
            orient="top", title=None, labelFontSize=12, labelLimit=320, labelColor=EXACT,
            symbolStrokeWidth=3, symbolSize=160, columnPadding=14, padding=0, offset=6,
        )
    )  # fmt: skip


def _row(charts: Sequence[Any]) -> alt.HConcatChart:
    return _apart(alt.hconcat(*charts, spacing=30))


def _apart(chart: Any) -> Any:
    return chart.resolve_scale(color="independent", strokeDash="independent")


def mixed(colour: str, share: float) -> str:
    """White with a share of a colour."""
    parts = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
    return "#" + "".join(f"{round(255 + share * (part - 255)):02x}" for part in parts)
