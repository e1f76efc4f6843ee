"""Names in a user's table are shown, and are neither markup, formula, template nor control code."""

import csv
import html.parser
import json

import numpy as np
import pandas as pd
import pytest
import xarray

from ergodax.checks import legible

EVIL = [
    r"$\frac{a$", "<script>alert(1)</script>", "{{7*7}}", "{% raw %}", 'say "hi"', "it's",
    "two\nlines", "\u202egnp.exe", "\x1b[31mred", "x" * 10_000, "[bold]b", "&lt;", "-->",
    "x' onmouseover='y",
]  # fmt: skip
CLASSES = "<b>yes</b>", "no$\n\u202e"
TAGS = set("html head meta title style body h1 h2 ul li table tr td th div figure img".split())
TAGS.add("figcaption")
ATTRIBUTES = {"lang", "charset", "class", "alt", "src"}


class Elements(html.parser.HTMLParser):
    """What a browser would make of a page."""

    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.texts = set(), set(), []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= set(attrs)

    def handle_data(self, data):
        self.texts.append(data)

    def handle_comment(self, data):
        pytest.fail(f"a comment: {data}")


def looked_at(path) -> list[str]:
    """The texts of a page, all of whose elements and attributes are the template's."""
    found = Elements()
    found.feed(path.read_text(encoding="utf-8"))
    found.close()
    assert found.tags <= TAGS
    for name, value in found.attributes:
        assert name in ATTRIBUTES, name
        assert name != "src" or value.startswith("data:image/png;base64,")
        assert name != "class" or value in ("left", "scroll")
    return found.texts


@pytest.fixture
def table(tmp_path):
    """A CSV file with these columns, one without a name, and a target of these classes."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, len(EVIL) + 1))
    with open(tmp_path / "t.csv", "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow([*EVIL, "", "y"])
        rows.writerows([*row, CLASSES[rng.random() < 0.5]] for row in x)
    return tmp_path / "t.csv"


@pytest.mark.slow
def test_infer(table, ergodax, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "80")
    where = tmp_path / "out"
    arguments = ["--data", table, "--target", "y", "--held-out", 0.2, "--output", where]
    code, out, error = ergodax("infer", *arguments)
    assert code == 0, error
    assert_legible(out)
    texts = looked_at(where / "report.html")
    for name in map(legible, EVIL):
        assert name in texts, name
        assert any(line.startswith(name[:20]) for line in out.splitlines()), name
    assert "49" not in texts
    # What programs read has the names as they are; that without one is called so by Pandas.
    names = [*EVIL, f"Unnamed: {len(EVIL)}"]
    facts = json.loads((where / "facts.json").read_text())
    assert list(facts["components"]) == [*names, "intercept"]
    tree = xarray.open_datatree(where / "draws.zarr", engine="zarr")
    assert list(tree["posterior"]["column"].to_numpy()) == names
    assert list(pd.read_csv(where / "summary.csv", index_col=0).index) == [*names, "intercept"]


def assert_legible(out):
    """On lines of 80 columns, of characters that print."""
    assert out and all(c.isprintable() for c in out if c != "\n")
    assert all(len(line) <= 80 for line in out.splitlines())


MODEL = """
import jax.numpy as jnp

import ergodax as ex

EVIL = {evil!r}
well = ex.Target(lambda x: 0.5 * sum(x[name] ** 2 for name in EVIL))
start = {{name: jnp.zeros(()) for name in EVIL}}


def diffusion(z):
    return {{"position": ex.Diagonal({{k: 1.0 + x**2 for k, x in z["position"].items()}})}}


wrong = ex.Recipe(diffusion, gamma=lambda z: {{"position": z["position"]}})
"""


@pytest.mark.slow
@pytest.mark.parametrize("evil", [EVIL[:1], EVIL[1:3], EVIL])
def test_verify(evil, ergodax, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "80")
    model, where = tmp_path / "model.py", tmp_path / "out"
    model.write_text(MODEL.format(evil=evil), encoding="utf-8")
    target = ["--target", f"{model}:well", "--position", f"{model}:start", "--output", where]
    code, out, error = ergodax("verify", "recipe", f"{model}:wrong", *target)
    assert code == 1, error
    assert "REFUTED" in out
    body = out.partition("REFUTED")[2].partition("written:")[0]  # between the names of files
    assert_legible(body)
    texts = " ".join(looked_at(where / "report.html"))
    assert f"position.{legible(sorted(evil)[0])}" in texts
    assert set(json.loads((where / "facts.json").read_text())["worst_point"]) == {
        f"position.{name}" for name in evil
    }
