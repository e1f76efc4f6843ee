"""How pictures look: colours, fonts, sizes, and how charts are set out on a page."""

from collections.abc import Sequence
from typing import Any

import altair as alt

BLUE, ORANGE, GREEN, PURPLE, RED = "#3b6fb6", "#d0662b", "#4c9a5b", "#8b5fa8", "#b8373f"
PALETTE = (BLUE, ORANGE, GREEN, PURPLE, RED)
EXACT, GREY = "#1d1d1f", "#9a9aa0"  # what is known, what is in the background
WIDTH, HEIGHT = 425, 290  # two such charts fill the width of a page
APART = {"scale": {"color": "independent", "strokeDash": "independent"}}

# A chart is its specification, which the page draws; the rows travel in it.
MIME = f"application/vnd.vegalite.v{alt.VEGALITE_VERSION.partition('.')[0]}+json"
alt.renderers.register("ergodax", lambda specification, **_: {MIME: specification})
alt.renderers.enable("ergodax")
alt.data_transformers.disable_max_rows()


@alt.theme.register("ergodax", enable=True)
def look() -> Any:
    """Fonts, colours and legends of every chart; nothing to click but the chart."""
    label = {"labelFontSize": 12, "labelColor": EXACT}
    lines = {"gridColor": "#eeeef1", "domainColor": "#b5b5ba", "tickColor": "#b5b5ba"}
    title = {"titleFontSize": 13, "titleFontWeight": "normal", "titleColor": EXACT}
    symbols = {"symbolStrokeWidth": 3, "symbolSize": 160, "columnPadding": 14}
    return {
        "usermeta": {"embedOptions": {"actions": False}},
        "config": {
            "background": "white",
            "font": "PT Sans, Helvetica, Arial, sans-serif",
            "padding": 8,
            "view": {"stroke": "#d8d8dc"},
            "axis": {
                "labelFlush": False, "labelOverlap": True, "labelSeparation": 6,
                **label, **lines, **title,
            },
            "title": {"fontSize": 14, "anchor": "start", "offset": 10, "color": EXACT},
            "legend": {
                "orient": "top", "title": None, "labelLimit": 320, "padding": 0, "offset": 6,
                **label, **symbols,
            },
        },
    }  # fmt: skip


def beside(*charts: Any) -> alt.HConcatChart:
    """Charts in a row, each with its own colours and legend."""
    return alt.hconcat(*charts, spacing=30, resolve=APART)


def above(*rows: Any) -> alt.VConcatChart:
    """Rows of charts, one above the other; a row is a chart or a list of charts."""
    made = [beside(*row) if isinstance(row, Sequence) else row for row in rows]
    return alt.vconcat(*made, spacing=24, resolve=APART)


def mixed(colour: str, share: float) -> str:
    """White with a share of a colour."""
    parts = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
    return "#" + "".join(f"{round(255 + share * (part - 255)):02x}" for part in parts)
