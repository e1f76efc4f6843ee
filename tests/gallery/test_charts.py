"""What charts make of tables; how they look is seen in a browser."""

import importlib.util

import numpy as np
import pandas as pd
import pytest

if importlib.util.find_spec("altair") is None:
    pytest.skip("needs altair", allow_module_level=True)

from gallery import charts

TABLE = pd.DataFrame({"step": [1.0, 2.0] * 2, "error": [1.0, 0.5, 2.0, 1.0], "of": [*"aabb"]})


def drawn(chart):
    """The specification that the page gets, with its rows."""
    bundle = chart._repr_mimebundle_()
    assert list(bundle) == [charts.MIME], "one way to draw it, the page's own"
    specification = bundle[charts.MIME]
    return specification, next(iter(specification["datasets"].values()))


def test_a_curve_has_its_name_its_colour_and_its_dash():
    lines = charts.lines(
        TABLE, "step", "error", "of", colours={"b": charts.RED}, dashed=["b"], log_y=True
    )
    specification, rows = drawn(lines)
    assert [row.pop(charts.ORDER) for row in rows] == [0, 1, 2, 3], "joined as they come"
    assert rows == TABLE.to_dict("records")
    encoding = specification["encoding"]
    assert encoding["color"]["scale"] == {"domain": ["a", "b"], "range": [charts.BLUE, charts.RED]}
    assert encoding["strokeDash"]["scale"]["range"] == [[1, 0], [5, 4]]
    assert encoding["y"]["scale"]["type"] == "log" and encoding["x"]["scale"]["type"] == "linear"
    assert encoding["x"]["title"] == "step"
    assert specification["config"]["axis"]["labelColor"] == charts.EXACT


def test_a_chart_of_many_rows_is_drawn_without_ipython():
    """Altair shows an error, as for more than 5,000 rows, by IPython, which is not required."""
    table = pd.DataFrame({"step": np.arange(6000.0), "error": 1.0})
    _, rows = drawn(charts.lines(table, "step", "error"))
    assert len(rows) == 6000


def test_charts_in_rows_have_colours_of_their_own():
    chart = charts.points(TABLE, "step", "error", "of")
    specification, _ = drawn(charts.above([chart, chart], chart))
    for level in (specification, specification["vconcat"][0]):
        assert level["resolve"]["scale"]["color"] == "independent"


def test_the_darker_the_more():
    assert charts.mixed("#000000", 0.0) == "#ffffff" and charts.mixed("#102030", 1.0) == "#102030"
    corner = np.array([0.0, 1.0, 2.0])
    cells = pd.DataFrame({"x": corner, "x end": corner + 1.0, "y": 0.0, "y end": 1.0})
    shaded = charts.shades(cells.assign(density=[0.0, 1.0, 2.0]), "x", "y", "density")
    _, rows = drawn(shaded)
    assert [row["x"] for row in rows] == [1.0, 2.0], "what is white is left out"
    assert rows[1]["density"] == charts.BLUE
