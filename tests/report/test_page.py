"""The page of every report: self-contained, escaped, words to the left."""

import re

import numpy as np
import pandas as pd

from ergodax.report import page as report

EVIL = "<script>a & 'b'</script>"


def test_words_go_left_and_figures_right(tmp_path):
    assert report.are_figures(["1.0±0.2", "-3", "none", ""])
    assert not report.are_figures(["1.0", "3 < 4", "x"])
    table = pd.DataFrame({"name": ["a<b"], "value": ["1.5"]})
    page = report.write(tmp_path / "report.html", "x", [("y", [table])]).read_text()
    assert '<td class="left">a&lt;b</td><td>1.5</td>' in page


def test_nothing_that_a_user_names_is_markup(tmp_path):
    table = pd.DataFrame({EVIL: [1.23456789, np.nan]}, index=pd.Index([EVIL, "b"]))
    parts = [
        {EVIL: EVIL},
        report.with_names(table),
        pd.DataFrame({EVIL: [EVIL]}),
        [EVIL],
    ]
    path = report.write(tmp_path / "new" / "report.html", EVIL, [(EVIL, parts)])
    page = path.read_text(encoding="utf-8")
    assert "<script>" not in page and page.count("&lt;script&gt;") == 10
    assert "<td>1.235</td>" in page and page.count("<h2>") == 1


def test_a_picture_is_inside_the_page(tmp_path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure = plt.figure()
    page = report.write(tmp_path / "report.html", "x", [("y", [(figure, "a > b")])]).read_text()
    assert page.startswith("<!doctype html>") and page.count("data:image/png;base64,") == 1
    assert "<figcaption>a &gt; b</figcaption>" in page
    assert not re.search(r'(src|href)="http', page)
    assert not plt.fignum_exists(figure.number), "it is closed; figures of others may be open"


def test_facts_are_json():
    facts = {"a": np.float32(0.5), "b": [np.inf, (1, "x")], "c": {"d": float("nan")}}
    assert report.plain(facts) == {"a": 0.5, "b": [None, [1, "x"]], "c": {"d": None}}
