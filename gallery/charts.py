"""How pictures look, and the few kinds of chart that the notebooks draw.

Columns of a table are the titles of axes, and values of `by` the entries of legends, so they are
named for readers. Charts are layered with `+` and set out by `beside` or `above`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

BLUE, ORANGE, GREEN, PURPLE, RED = "#3b6fb6", "#d0662b", "#4c9a5b", "#8b5fa8", "#b8373f"
PALETTE = (BLUE, ORANGE, GREEN, PURPLE, RED)
EXACT, GREY = "#1d1d1f", "#9a9aa0"  # what is known, what is in the background
WIDTH, HEIGHT = 425, 290  # two such charts fill the width of a page
APART = {"scale": {"color": "independent", "strokeDash": "independent"}}
ORDER = "place"  # the column of a row's number
Range = tuple[float, float] | None
Colours = Mapping[str, str] | str | None

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


def _framed(
    table: pd.DataFrame,
    x: str,
    y: str,
    *,
    log_x: bool = False,
    log_y: bool = False,
    x_range: Range = None,
    y_range: Range = None,
    title: str = "",
) -> alt.Chart:
    """A chart with axes, linear or logarithmic; what lies beyond their ranges is cut off.

    These keywords are the `frame` of the functions below.
    """
    across, up = _scale(log_x, x_range), _scale(log_y, y_range)
    return alt.Chart(table, title=title, width=WIDTH, height=HEIGHT).encode(
        x=alt.X(field=x, type="quantitative", scale=across, title=x),
        y=alt.Y(field=y, type="quantitative", scale=up, title=y),
    )


def _scale(log: bool, within: Range) -> alt.Scale:
    options: dict[str, Any] = {"type": "log"} if log else {"type": "linear", "zero": False}
    if within is not None:
        options["domain"] = list(within)
    return alt.Scale(**options, nice=False)


def _joined(table: pd.DataFrame, x: str, y: str, frame: Mapping[str, Any]) -> alt.Chart:
    """Points are joined as they come, not from left to right: a path may turn back."""
    numbered = table.assign(**{ORDER: np.arange(len(table))})
    return _framed(numbered, x, y, **frame).encode(
        order=alt.Order(field=ORDER, type="quantitative")
    )


def _colour(table: pd.DataFrame, by: str | None, colours: Colours) -> Any:
    """One colour for all, or one for each value of `by`; by default the palette in turn."""
    if by is None or isinstance(colours, str):
        return alt.ColorValue(colours if isinstance(colours, str) else BLUE)
    names = list(dict.fromkeys(table[by]))
    chosen = [(colours or {}).get(n, PALETTE[k % len(PALETTE)]) for k, n in enumerate(names)]
    palette = alt.Scale(domain=names, range=chosen)
    return alt.Color(field=by, type="nominal", title=None, scale=palette)


def lines(
    table: pd.DataFrame,
    x: str,
    y: str,
    by: str | None = None,
    *,
    detail: str | None = None,
    colours: Colours = None,
    dashed: Sequence[str] = (),
    width: float = 2.0,
    **frame: Any,
) -> alt.Chart:
    """Curves, one for each value of the column `by`, with a legend of those values.

    Args:
        table: a row for each point, in the order of drawing.
        x: column.
        y: column.
        by: column of the curves' names; None for one curve.
        detail: column by which a curve is cut into several of the same colour.
        colours: of the curves, by name, or one for all.
        dashed: names of the curves that are dashed.
        width: of the lines, in pixels.
        **frame: log_x, log_y, x_range, y_range, title.
    """
    encoding: dict[str, Any] = {"color": _colour(table, by, colours)}
    if by is not None and dashed:
        names = list(dict.fromkeys(table[by]))
        pattern = [[5, 4] if name in dashed else [1, 0] for name in names]
        encoding["strokeDash"] = alt.StrokeDash(
            field=by, type="nominal", title=None, scale=alt.Scale(domain=names, range=pattern)
        )
    if detail is not None:
        encoding["detail"] = alt.Detail(field=detail, type="nominal")
    return _joined(table, x, y, frame).mark_line(strokeWidth=width, clip=True).encode(**encoding)


def threads(
    table: pd.DataFrame,
    x: str,
    y: str,
    by: str,
    *,
    colour: str = GREY,
    opacity: float = 0.45,
    dash: Sequence[int] = (1, 0),
    **frame: Any,
) -> alt.Chart:
    """Many thin curves of one colour, told apart by the column `by`, without a legend."""
    style = {"color": colour, "opacity": opacity, "strokeDash": list(dash)}
    detail = alt.Detail(field=by, type="nominal")
    drawn = _joined(table, x, y, frame).mark_line(strokeWidth=1.0, clip=True, **style)
    return drawn.encode(detail=detail)


def points(
    table: pd.DataFrame,
    x: str,
    y: str,
    by: str | None = None,
    *,
    colours: Colours = None,
    size: float = 30.0,
    opacity: float = 0.9,
    **frame: Any,
) -> alt.Chart:
    """Dots of `size` square pixels, coloured by the column `by`."""
    mark = {"size": size, "opacity": opacity, "filled": True, "clip": True}
    drawn = _framed(table, x, y, **frame).mark_point(**mark)
    return drawn.encode(color=_colour(table, by, colours))


def bars(table: pd.DataFrame, x: str, *, colour: str = BLUE, **frame: Any) -> alt.Chart:
    """A histogram of the variable x, of the columns left, right and density."""
    drawn = _framed(table.rename(columns={"left": x}), x, "density", **frame)
    filled = drawn.mark_rect(color=colour, opacity=0.45, clip=True, stroke=None)
    return filled.encode(x2=alt.X2(field="right"), y2=alt.Y2Datum(0.0))


def density_and_histogram(table: pd.DataFrame, curve: pd.DataFrame, x: str, **frame: Any) -> Any:
    """A histogram under the exact density, whose columns are x and density."""
    return bars(table, x, **frame) + lines(curve, x, "density", colours=EXACT)


def shades(
    table: pd.DataFrame, x: str, y: str, shade: str, *, colour: str = BLUE, **frame: Any
) -> alt.Chart:
    """Cells of a plane, the darker the more: a density of two variables.

    Args:
        table: a row for each cell; its ends are the columns `x`, "`x` end", `y`, "`y` end".
        x: column of the left ends.
        y: column of the lower ends.
        shade: column of what is shown, not negative; 0 is white, the largest is `colour`.
        colour: of the largest value.
        **frame: log_x, log_y, x_range, y_range, title.
    """
    # Colours without a scale leave the one of the curves above them alone; the stroke closes seams.
    filled = table[table[shade] > 0.004 * table[shade].max()]  # the rest is white
    depth = filled[shade] / filled[shade].max()
    filled = filled.assign(**{shade: [mixed(colour, share) for share in depth]})
    paint = {"field": shade, "type": "nominal", "scale": None}
    cells = _framed(filled, x, y, **frame).mark_rect(clip=True, strokeWidth=0.7)
    ends = {"x2": alt.X2(field=f"{x} end"), "y2": alt.Y2(field=f"{y} end")}
    return cells.encode(fill=alt.Fill(**paint), stroke=alt.Stroke(**paint), **ends)


def mixed(colour: str, share: float) -> str:
    """White with a share of a colour."""
    parts = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
    return "#" + "".join(f"{round(255 + share * (part - 255)):02x}" for part in parts)


def level(y: float, *, colour: str = EXACT) -> alt.Chart:
    """A dashed horizontal line."""
    rule = alt.Chart(pd.DataFrame({"level": [y]})).mark_rule(color=colour, strokeDash=[5, 4])
    return rule.encode(y=alt.Y(field="level", type="quantitative"))


def upright(x: str, at: float, *, colour: str = GREY) -> alt.Chart:
    """A dashed vertical line, on the axis x of the chart which it is added to."""
    rule = alt.Chart(pd.DataFrame({x: [at]})).mark_rule(color=colour, strokeDash=[5, 4], clip=True)
    return rule.encode(x=alt.X(field=x, type="quantitative"))


def named_bars(
    table: pd.DataFrame, x: str, by: str, *, colours: Mapping[str, str], title: str = ""
) -> alt.Chart:
    """Horizontal bars of length x on a logarithmic axis, a row each, their names beside them."""
    names = list(table[by])
    start = float(10.0 ** np.floor(np.log10(0.5 * table[x].min())))
    end = float(10.0 ** np.ceil(np.log10(1.2 * table[x].max())))
    scale = alt.Scale(type="log", domain=[start, end])
    palette = alt.Scale(domain=names, range=[colours[name] for name in names])
    drawn = alt.Chart(table.assign(start=start), title=title).mark_bar(height=30)
    return drawn.encode(
        x=alt.X(field=x, type="quantitative", scale=scale, title=x),
        x2="start",
        y=alt.Y(field=by, type="nominal", sort=names, title=None),
        color=alt.Color(field=by, type="nominal", scale=palette, legend=None),
    ).properties(width=WIDTH - 30, height=HEIGHT)


def room(*columns: pd.Series) -> tuple[float, float]:
    """The ends of a logarithmic axis that has these numbers, with some room beyond them."""
    lows, highs = zip(*((column.min(), column.max()) for column in columns), strict=True)
    return 0.85 * float(min(lows)), 1.15 * float(max(highs))


def symmetric_log(chart: alt.Chart, x: str, within: tuple[float, float], unit: float) -> alt.Chart:
    """The chart with an axis x that is linear about 0 and, beyond `unit`, logarithmic."""
    scale = alt.Scale(type="symlog", constant=unit, domain=list(within), nice=False)
    ticks = [s * v for s in (-1, 1) for v in (1, 10, 100, 1000) if v <= within[1]] + [0]
    return chart.encode(
        x=alt.X(field=x, type="quantitative", scale=scale, axis=alt.Axis(values=ticks))
    )
