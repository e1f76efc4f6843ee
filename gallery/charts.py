"""The few kinds of chart that notebooks draw.

Columns of a table are the titles of axes, and values of `by` the entries of legends, so they are
named for readers. Charts are layered with `+` and set out by `beside` or `above`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from gallery.theme import (
    BLUE,
    EXACT,
    GREEN,
    GREY,
    HEIGHT,
    ORANGE,
    PALETTE,
    PURPLE,
    RED,
    WIDTH,
    above,
    beside,
    mixed,
)

ORDER = "place"  # the column of a row's number

__all__ = [
    "BLUE", "EXACT", "GREEN", "GREY", "HEIGHT", "ORANGE", "PALETTE", "PURPLE", "RED", "WIDTH",
    "above", "bars", "beside", "density_and_histogram", "level", "lines", "points", "shades",
    "threads",
]  # fmt: skip
Range = tuple[float, float] | None


def scale(log: bool = False, within: Range = None) -> alt.Scale:
    """The scale of an axis.

    Args:
        log: logarithmic.
        within: the ends; what lies beyond is cut off. By default, what the data need.
    """
    options: dict[str, Any] = {"type": "log"} if log else {"type": "linear", "zero": False}
    options["nice"] = False
    if within is not None:
        options |= {"domain": list(within)}
    return alt.Scale(**options)


def lines(
    table: pd.DataFrame,
    x: str,
    y: str,
    by: str | None = None,
    *,
    detail: str | None = None,
    colours: Mapping[str, str] | str | None = None,
    dashed: Sequence[str] = (),
    log_x: bool = False,
    log_y: bool = False,
    x_range: Range = None,
    y_range: Range = None,
    width: float = 2.0,
    title: str = "",
) -> alt.Chart:
    """Curves, one for each value of the column `by`, with a legend of those values.

    Args:
        table: a row for each point, in the order of drawing.
        x: column.
        y: column.
        by: column of the curves' names; None for one curve.
        detail: column by which a curve is cut into several of the same colour.
        colours: of the curves, by name, or one for all; by default the palette in turn.
        dashed: names of the curves that are dashed.
        log_x: a logarithmic axis.
        log_y: the same.
        x_range: the ends of the axis.
        y_range: the same.
        width: of the lines, in pixels.
        title: over the chart.
    """
    encoding: dict[str, Any] = _axes(x, y, scale(log_x, x_range), scale(log_y, y_range))
    if by is None:
        colour = colours if isinstance(colours, str) else BLUE
        encoding["color"] = alt.ColorValue(colour)
    else:
        names = list(dict.fromkeys(table[by]))
        encoding["color"] = _colour(by, names, colours)
        if dashed:
            pattern = [[5, 4] if name in dashed else [1, 0] for name in names]
            encoding["strokeDash"] = alt.StrokeDash(
                field=by, type="nominal", title=None, scale=alt.Scale(domain=names, range=pattern)
            )
    if detail is not None:
        encoding["detail"] = alt.Detail(field=detail, type="nominal")
    mark = {"strokeWidth": width, "clip": True}
    return _joined(table, title).mark_line(**mark).encode(**encoding)


def threads(
    table: pd.DataFrame,
    x: str,
    y: str,
    by: str,
    *,
    colour: str = GREY,
    opacity: float = 0.45,
    dash: Sequence[int] = (1, 0),
    log_x: bool = False,
    log_y: bool = False,
    x_range: Range = None,
    y_range: Range = None,
    title: str = "",
) -> alt.Chart:
    """Many thin curves of one colour, without a legend: paths of chains.

    Args:
        table: a row for each point, in the order of drawing.
        x: column.
        y: column.
        by: column that tells the curves apart.
        colour: of all.
        opacity: from 0 to 1.
        dash: pixels of a dash and of the gap after it.
        log_x: a logarithmic axis.
        log_y: the same.
        x_range: the ends of the axis.
        y_range: the same.
        title: over the chart.
    """
    encoding = _axes(x, y, scale(log_x, x_range), scale(log_y, y_range))
    style = {"color": colour, "opacity": opacity, "strokeDash": list(dash)}
    mark = {"strokeWidth": 1.0, "clip": True, **style}
    detail = alt.Detail(field=by, type="nominal")
    return _joined(table, title).mark_line(**mark).encode(detail=detail, **encoding)


def points(
    table: pd.DataFrame,
    x: str,
    y: str,
    by: str | None = None,
    *,
    colours: Mapping[str, str] | str | None = None,
    log_x: bool = False,
    log_y: bool = False,
    x_range: Range = None,
    y_range: Range = None,
    size: float = 30.0,
    opacity: float = 0.9,
    title: str = "",
) -> alt.Chart:
    """Dots, coloured by the column `by`.

    Args:
        table: a row for each point.
        x: column.
        y: column.
        by: column of the names in the legend; None for one colour.
        colours: by name, or one for all; by default the palette in turn.
        log_x: a logarithmic axis.
        log_y: the same.
        x_range: the ends of the axis.
        y_range: the same.
        size: of a dot, in square pixels.
        opacity: from 0 to 1.
        title: over the chart.
    """
    encoding: dict[str, Any] = _axes(x, y, scale(log_x, x_range), scale(log_y, y_range))
    if by is None:
        encoding["color"] = alt.ColorValue(colours if isinstance(colours, str) else BLUE)
    else:
        encoding["color"] = _colour(by, list(dict.fromkeys(table[by])), colours)
    mark = {"size": size, "opacity": opacity, "filled": True, "clip": True}
    return _chart(table, title).mark_point(**mark).encode(**encoding)


def bars(
    table: pd.DataFrame,
    x: str,
    *,
    colour: str = BLUE,
    x_range: Range = None,
    y_range: Range = None,
    title: str = "",
) -> alt.Chart:
    """A histogram.

    Args:
        table: of `tables.histogram`: columns left, right, density.
        x: the variable's name.
        colour: of the bars.
        x_range: the ends of the axis.
        y_range: the same.
        title: over the chart.
    """
    across = alt.X(field="left", type="quantitative", title=x, scale=scale(within=x_range))
    up = alt.Y(field="density", type="quantitative", scale=scale(within=y_range))
    filled = _chart(table, title).mark_rect(color=colour, opacity=0.45, clip=True, stroke=None)
    return filled.encode(x=across, x2=alt.X2(field="right"), y=up, y2=alt.Y2Datum(0.0))


def density_and_histogram(table: pd.DataFrame, curve: pd.DataFrame, x: str, **options: Any) -> Any:
    """A histogram of draws under the exact density.

    Args:
        table: of `tables.histogram`.
        curve: columns `x` and density.
        x: the variable's name.
        **options: of `bars`.
    """
    return bars(table, x, **options) + lines(curve, x, "density", colours=EXACT)


def shades(
    table: pd.DataFrame,
    x: str,
    y: str,
    shade: str,
    *,
    colour: str = BLUE,
    x_range: Range = None,
    y_range: Range = None,
    title: str = "",
) -> alt.Chart:
    """Cells of a plane, the darker the more: a density of two variables.

    Args:
        table: a row for each cell; its ends are the columns `x`, "`x` end", `y`, "`y` end".
        x: column of the left ends.
        y: column of the lower ends.
        shade: column of what is shown, not negative; 0 is white, the largest is `colour`.
        colour: of the largest value.
        x_range: the ends of the axis.
        y_range: the same.
        title: over the chart.
    """
    axes = _axes(x, y, scale(within=x_range), scale(within=y_range))
    # Colours without a scale leave the one of the curves above them alone; the stroke closes seams.
    filled = table[table[shade] > 0.004 * table[shade].max()]  # the rest is white
    depth = filled[shade] / filled[shade].max()
    filled = filled.assign(**{shade: [mixed(colour, share) for share in depth]})
    paint = {"field": shade, "type": "nominal", "scale": None}
    cells = _chart(filled, title).mark_rect(clip=True, strokeWidth=0.7)
    ends = {"x2": alt.X2(field=f"{x} end"), "y2": alt.Y2(field=f"{y} end")}
    return cells.encode(fill=alt.Fill(**paint), stroke=alt.Stroke(**paint), **ends, **axes)


def level(y: float, *, colour: str = EXACT) -> alt.Chart:
    """A dashed horizontal line.

    Args:
        y: where.
        colour: of the line.
    """
    rule = alt.Chart(pd.DataFrame({"level": [y]})).mark_rule(color=colour, strokeDash=[5, 4])
    return rule.encode(y=alt.Y(field="level", type="quantitative"))


def _joined(table: pd.DataFrame, title: str) -> alt.Chart:
    """Points are joined as they come, not from left to right: a path may turn back."""
    order = alt.Order(field=ORDER, type="quantitative")
    return _chart(table.assign(**{ORDER: np.arange(len(table))}), title).encode(order=order)


def _chart(table: pd.DataFrame, title: str) -> alt.Chart:
    return alt.Chart(table, title=title, width=WIDTH, height=HEIGHT)


def _axes(x: str, y: str, across: alt.Scale, up: alt.Scale) -> dict[str, Any]:
    return {
        "x": alt.X(field=x, type="quantitative", scale=across, title=x),
        "y": alt.Y(field=y, type="quantitative", scale=up, title=y),
    }


def _colour(by: str, names: list[str], colours: Mapping[str, str] | str | None) -> Any:
    if isinstance(colours, str):
        return alt.ColorValue(colours)
    chosen = [(colours or {}).get(n, PALETTE[k % len(PALETTE)]) for k, n in enumerate(names)]
    palette = alt.Scale(domain=names, range=chosen)
    return alt.Color(field=by, type="nominal", title=None, scale=palette)
