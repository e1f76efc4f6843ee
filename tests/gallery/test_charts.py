"""What charts make of tables; how they look is seen in a browser."""

import json

import numpy as np
import pandas as pd

from gallery import charts

TABLE = pd.DataFrame({"step": [1.0, 2.0] * 2, "error": [1.0, 0.5, 2.0, 1.0], "of": [*"aabb"]})


def drawn(chart):
    """The specification that the page gets, with its rows."""
    kind, text = chart._mime_()
    assert kind == charts.MIME, "the page's own way to draw it"
    specification = json.loads(text)
    return specification, specification.get("data", {}).get("values")


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


def test_what_is_no_number_is_a_gap():
    table = pd.DataFrame({"step": [0.0, 1.0, 2.0], "error": [1.0, np.nan, np.inf]})
    _, rows = drawn(charts.lines(table, "step", "error"))
    assert [row["error"] for row in rows] == [1.0, None, None]


def test_layers_have_one_title_and_one_size():
    lines = charts.lines(TABLE, "step", "error", "of")
    dots = charts.points(TABLE, "step", "error", "of", title="Errors")
    specification, _ = drawn((lines + dots + charts.level(1.0)).sized(300, 200))
    assert [layer["mark"]["type"] for layer in specification["layer"]] == ["line", "point", "rule"]
    assert specification["title"] == "Errors"
    assert (specification["width"], specification["height"]) == (300, 200)
    assert not any({"title", "width"} & layer.keys() for layer in specification["layer"])


def test_a_column_may_have_any_name():
    table = TABLE.rename(columns={"step": "time [s]", "error": "x.y"})
    specification, rows = drawn(charts.points(table, "time [s]", "x.y"))
    encoding = specification["encoding"]
    assert (encoding["x"]["field"], encoding["y"]["field"]) == ("time \\[s\\]", "x\\.y")
    assert encoding["x"]["title"] == "time [s]" and rows[0]["x.y"] == 1.0


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
