"""How pictures look, and the few kinds of chart that the notebooks draw.

Columns of a table are the titles of axes, and values of `by` the entries of legends, so they are
named for readers. Charts are layered with `+` and set out by `beside` or `above`. A chart is its
specification in Vega-Lite, which the page draws; the rows travel in it.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

BLUE, ORANGE, GREEN, PURPLE, RED = "#3b6fb6", "#d0662b", "#4c9a5b", "#8b5fa8", "#b8373f"
PALETTE = (BLUE, ORANGE, GREEN, PURPLE, RED)
EXACT, GREY = "#1d1d1f", "#9a9aa0"  # what is known, what is in the background
WIDTH, HEIGHT = 425, 290  # two such charts fill the width of a page
SIZE = {"width": WIDTH, "height": HEIGHT}
APART = {"scale": {"color": "independent", "strokeDash": "independent"}}
DASHED = [5, 4]
ORDER = "place"  # the column of a row's number
MIME = "application/vnd.vegalite.v6+json"
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"  # its name; nothing is fetched
Encoding = dict[str, Any]
Range = tuple[float, float] | None
Colours = Mapping[str, str] | str | None


@dataclasses.dataclass(frozen=True)
class Chart:
    """A specification in Vega-Lite, without the look that all share.

    Attributes:
        specification: marks, encodings and rows, or charts layered or set out.
    """

    specification: dict[str, Any]

    def __add__(self, other: "Chart") -> "Chart":
        """Both on the same axes, the other one above."""
        drawn = [layer for chart in (self, other) for layer in chart._layers()]
        both = {**other.specification, **self.specification}
        whole = {name: both[name] for name in ("title", *SIZE) if name in both}
        return Chart({**whole, "layer": drawn})

    def _layers(self) -> list[dict[str, Any]]:
        alone = {k: v for k, v in self.specification.items() if k not in ("title", *SIZE)}
        return alone.get("layer", [alone])

    def sized(self, width: int, height: int) -> "Chart":
        """Of this size in pixels, not of the usual one."""
        return Chart({**self.specification, "width": width, "height": height})

    def whole(self) -> dict[str, Any]:
        """The specification that a page gets."""
        return {"$schema": SCHEMA, **LOOK, **self.specification}

    def _mime_(self) -> tuple[str, str]:
        """How marimo shows it."""
        return MIME, json.dumps(self.whole())


def _look() -> dict[str, Any]:
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


LOOK = _look()


def beside(*charts: Chart) -> Chart:
    """Charts in a row, each with its own colours and legend."""
    row = [chart.specification for chart in charts]
    return Chart({"hconcat": row, "spacing": 30, "resolve": APART})


def above(*rows: Chart | Sequence[Chart]) -> Chart:
    """Rows of charts, one above the other; a row is a chart or a list of charts."""
    made = [row if isinstance(row, Chart) else beside(*row) for row in rows]
    stacked = [row.specification for row in made]
    return Chart({"vconcat": stacked, "spacing": 24, "resolve": APART})


def _drawn(
    table: pd.DataFrame,
    mark: str,
    style: Mapping[str, Any],
    encoding: Encoding,
    *,
    title: str = "",
    **size: int,
) -> Chart:
    """A chart of one mark; what is no number is a gap."""
    text = table.to_json(orient="records", double_precision=15)
    assert text is not None  # as there is no file
    rows = json.loads(text)
    drawn = {
        "data": {"values": rows}, "mark": {"type": mark, **style}, "encoding": encoding, **size,
    }  # fmt: skip
    return Chart({**drawn, "title": title} if title else drawn)


def _framed(
    table: pd.DataFrame,
    mark: str,
    style: Mapping[str, Any],
    x: str,
    y: str,
    encoding: Encoding,
    *,
    log_x: bool = False,
    log_y: bool = False,
    x_range: Range = None,
    y_range: Range = None,
    title: str = "",
) -> Chart:
    """A chart with axes, linear or logarithmic; what lies beyond their ranges is cut off.

    The keywords are the `frame` of the functions below.
    """
    axes = {"x": _axis(x, log_x, x_range), "y": _axis(y, log_y, y_range)}
    clipped = {**style, "clip": True}
    return _drawn(table, mark, clipped, {**axes, **encoding}, title=title, **SIZE)


def _axis(column: str, log: bool, within: Range) -> Encoding:
    scale: dict[str, Any] = {"type": "log"} if log else {"type": "linear", "zero": False}
    if within is not None:
        scale["domain"] = [float(end) for end in within]
    return {**_quantity(column), "scale": {**scale, "nice": False}, "title": column}


def _field(column: str) -> Encoding:
    # A column may have any name, and these signs mean a path to Vega-Lite.
    return {"field": "".join(f"\\{sign}" if sign in ".[]" else sign for sign in column)}


def _quantity(column: str) -> Encoding:
    return {**_field(column), "type": "quantitative"}


def _name(column: str, **options: Any) -> Encoding:
    return {**_field(column), "type": "nominal", **options}


def _joined(table: pd.DataFrame) -> tuple[pd.DataFrame, Encoding]:
    """Points are joined as they come, not from left to right: a path may turn back."""
    return table.assign(**{ORDER: np.arange(len(table))}), {"order": _quantity(ORDER)}


def _colour(table: pd.DataFrame, by: str | None, colours: Colours) -> Encoding:
    """One colour for all, or one for each value of `by`; by default the palette in turn."""
    if by is None or isinstance(colours, str):
        return {"value": colours if isinstance(colours, str) else BLUE}
    names = list(dict.fromkeys(table[by]))
    chosen = [(colours or {}).get(n, PALETTE[k % len(PALETTE)]) for k, n in enumerate(names)]
    return _name(by, title=None, scale={"domain": names, "range": chosen})


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
) -> Chart:
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
    numbered, encoding = _joined(table)
    encoding["color"] = _colour(table, by, colours)
    if by is not None and dashed:
        names = list(dict.fromkeys(table[by]))
        pattern = [DASHED if name in dashed else [1, 0] for name in names]
        encoding["strokeDash"] = _name(by, title=None, scale={"domain": names, "range": pattern})
    if detail is not None:
        encoding["detail"] = _name(detail)
    return _framed(numbered, "line", {"strokeWidth": width}, x, y, encoding, **frame)


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
) -> Chart:
    """Many thin curves of one colour, told apart by the column `by`, without a legend."""
    numbered, encoding = _joined(table)
    style = {"color": colour, "opacity": opacity, "strokeDash": list(dash), "strokeWidth": 1.0}
    return _framed(numbered, "line", style, x, y, {**encoding, "detail": _name(by)}, **frame)


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
) -> Chart:
    """Dots of `size` square pixels, coloured by the column `by`."""
    style = {"size": size, "opacity": opacity, "filled": True}
    return _framed(table, "point", style, x, y, {"color": _colour(table, by, colours)}, **frame)


def bars(table: pd.DataFrame, x: str, *, colour: str = BLUE, **frame: Any) -> Chart:
    """A histogram of the variable x, of the columns left, right and density."""
    ends = {"x2": _field("right"), "y2": {"datum": 0.0}}
    style = {"color": colour, "opacity": 0.45, "stroke": None}
    return _framed(table.rename(columns={"left": x}), "rect", style, x, "density", ends, **frame)


def density_and_histogram(table: pd.DataFrame, curve: pd.DataFrame, x: str, **frame: Any) -> Chart:
    """A histogram under the exact density, whose columns are x and density."""
    return bars(table, x, **frame) + lines(curve, x, "density", colours=EXACT, **frame)


def shades(
    table: pd.DataFrame, x: str, y: str, shade: str, *, colour: str = BLUE, **frame: Any
) -> Chart:
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
    paint = _name(shade, scale=None)
    ends = {"x2": _field(f"{x} end"), "y2": _field(f"{y} end")}
    encoding = {"fill": paint, "stroke": paint, **ends}
    return _framed(filled, "rect", {"strokeWidth": 0.7}, x, y, encoding, **frame)


def mixed(colour: str, share: float) -> str:
    """White with a share of a colour."""
    parts = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
    return "#" + "".join(f"{round(255 + share * (part - 255)):02x}" for part in parts)


def level(y: float, *, colour: str = EXACT) -> Chart:
    """A dashed horizontal line."""
    table = pd.DataFrame({"level": [y]})
    return _drawn(table, "rule", {"color": colour, "strokeDash": DASHED}, {"y": _quantity("level")})


def upright(x: str, at: float, *, colour: str = GREY) -> Chart:
    """A dashed vertical line, on the axis x of the chart which it is added to."""
    style = {"color": colour, "strokeDash": DASHED, "clip": True}
    return _drawn(pd.DataFrame({x: [at]}), "rule", style, {"x": _quantity(x)})


def named_bars(
    table: pd.DataFrame, x: str, by: str, *, colours: Mapping[str, str], title: str = ""
) -> Chart:
    """Horizontal bars of length x on a logarithmic axis, a row each, their names beside them."""
    names = list(table[by])
    start = float(10.0 ** np.floor(np.log10(0.5 * table[x].min())))
    end = float(10.0 ** np.ceil(np.log10(1.2 * table[x].max())))
    palette = {"domain": names, "range": [colours[name] for name in names]}
    encoding = {
        "x": _axis(x, True, (start, end)) | {"scale": {"type": "log", "domain": [start, end]}},
        "x2": _field("start"),
        "y": _name(by, sort=names, title=None),
        "color": _name(by, scale=palette, legend=None),
    }
    table = table.assign(start=start)
    return _drawn(table, "bar", {"height": 30}, encoding, title=title).sized(WIDTH - 30, HEIGHT)


def room(*columns: pd.Series) -> tuple[float, float]:
    """The ends of a logarithmic axis that has these numbers, with some room beyond them."""
    lows, highs = zip(*((column.min(), column.max()) for column in columns), strict=True)
    return 0.85 * float(min(lows)), 1.15 * float(max(highs))


def symmetric_log(chart: Chart, x: str, within: tuple[float, float], unit: float) -> Chart:
    """The chart with an axis x that is linear about 0 and, beyond `unit`, logarithmic."""
    scale = {"type": "symlog", "constant": unit, "domain": list(within), "nice": False}
    ticks = [s * v for s in (-1, 1) for v in (1, 10, 100, 1000) if v <= within[1]] + [0]
    axis = {**_quantity(x), "scale": scale, "axis": {"values": ticks}}
    encoding = {**chart.specification["encoding"], "x": axis}
    return Chart({**chart.specification, "encoding": encoding})
