"""Marks that few pictures need: vertical lines, bars with names, rings, axes for all scales."""

from collections.abc import Mapping

import altair as alt
import numpy as np
import pandas as pd

from gallery import charts


def upright(x: str, at: float, *, colour: str = charts.GREY) -> alt.Chart:
    """A dashed vertical line.

    Args:
        x: the axis, by the name that it has in the chart which the line is added to.
        at: where.
        colour: of the line.
    """
    rule = alt.Chart(pd.DataFrame({x: [at]})).mark_rule(color=colour, strokeDash=[5, 4], clip=True)
    return rule.encode(x=alt.X(field=x, type="quantitative"))


def named_bars(
    table: pd.DataFrame, x: str, by: str, *, colours: Mapping[str, str], title: str = ""
) -> alt.Chart:
    """Horizontal bars on a logarithmic axis, one for each row, with the names beside them.

    Args:
        table: a row for each bar.
        x: column of their lengths, positive.
        by: column of their names.
        colours: by name.
        title: over the chart.
    """
    names = list(table[by])
    start = float(10.0 ** np.floor(np.log10(0.5 * table[x].min())))
    end = float(10.0 ** np.ceil(np.log10(1.2 * table[x].max())))
    scale = alt.Scale(type="log", domain=[start, end])
    palette = alt.Scale(domain=names, range=[colours[name] for name in names])
    chart = alt.Chart(table.assign(start=start), title=title)
    return (
        chart.mark_bar(height=30)
        .encode(
            x=alt.X(field=x, type="quantitative", scale=scale, title=x),
            x2="start",
            y=alt.Y(field=by, type="nominal", sort=names, title=None),
            color=alt.Color(field=by, type="nominal", scale=palette, legend=None),
        )
        .properties(width=charts.WIDTH - 30, height=charts.HEIGHT)
    )


def room(*columns: pd.Series) -> tuple[float, float]:
    """The ends of a logarithmic axis that has these numbers, with some room beyond them."""
    lows, highs = zip(*((column.min(), column.max()) for column in columns), strict=True)
    return 0.85 * float(min(lows)), 1.15 * float(max(highs))


def symmetric_log(chart: alt.Chart, x: str, within: tuple[float, float], unit: float) -> alt.Chart:
    """The chart with an axis that is linear about 0 and logarithmic far from it.

    Args:
        chart: whose axis it is.
        x: the axis.
        within: its ends.
        unit: where one passes into the other.
    """
    scale = alt.Scale(type="symlog", constant=unit, domain=list(within), nice=False)
    ticks = [s * v for s in (-1, 1) for v in (1, 10, 100, 1000) if v <= within[1]] + [0]
    axis = alt.Axis(values=ticks)
    return chart.encode(x=alt.X(field=x, type="quantitative", scale=scale, axis=axis))
