"""Every page in a browser: it opens, draws, and draws anew when a slider is moved."""

import importlib.util

import pytest

from gallery import headless
from gallery.pages import FIGURES

LACKS = [n for n in ("marimo", "playwright") if importlib.util.find_spec(n) is None]
if headless.executable() is None:
    LACKS.append("a browser")
pytestmark = pytest.mark.skipif(bool(LACKS), reason=f"needs {' and '.join(LACKS)}")

BROKEN = """
import marimo
app = marimo.App()
@app.cell
def _():
    1 / 0
"""
SERVE_BROKEN = """
from pathlib import Path
from gallery import pages, serve
pages.NOTEBOOKS = Path(%r)
serve.FIGURES = (pages.Figure("broken", "Broken", "Divides by zero."),)
serve.serve(0, open_browser=False)
"""


@pytest.fixture(scope="module")
def address():
    with headless.running() as address:
        yield address


@pytest.fixture(scope="module")
def chromium():
    with headless.chromium() as browser:
        yield browser


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.slug)
def test_a_slider_changes_the_picture(figure, address, chromium):
    opened = headless.Page(chromium, f"{address}/{figure.slug}/")
    before = opened.settled()
    slider = opened.page.get_by_role("slider").first
    value = slider.get_attribute("aria-valuenow")
    slider.press("ArrowLeft")
    opened.until(lambda: slider.get_attribute("aria-valuenow") != value, "the slider stays")
    opened.until(lambda: opened.pictures() not in ("", before), "the picture stays")
    opened.settled(0.2)
    opened.page.get_by_role("heading", name=figure.title).wait_for()
    assert not opened.complaints
    assert not opened.elsewhere()
    opened.page.close()


def test_the_index_links_to_every_figure(address, chromium):
    opened = headless.Page(chromium, address)
    links = opened.page.get_by_role("link").evaluate_all("es => es.map(e => e.href)")
    assert links == [f"{address}/{figure.slug}/" for figure in FIGURES]
    opened.page.get_by_role("link", name=FIGURES[1].title).click()
    opened.settled()
    opened.page.get_by_role("link", name="All figures").click()
    opened.page.get_by_role("heading", name="in pictures").wait_for()
    assert not opened.complaints
    assert not opened.elsewhere()
    opened.page.close()


def test_a_cell_that_fails_is_seen(tmp_path, chromium):
    (tmp_path / "broken.py").write_text(BROKEN, encoding="utf-8")
    with headless.running(SERVE_BROKEN % str(tmp_path)) as address:
        opened = headless.Page(chromium, f"{address}/broken/")
        opened.page.get_by_text(headless.ERROR).first.wait_for()
        with pytest.raises(AssertionError):
            opened.settled()
        assert opened.complaints
        opened.page.close()


def test_a_request_to_another_host_is_seen(address, chromium):
    opened = headless.Page(chromium, address)
    opened.page.route("http://elsewhere.example/**", lambda route: route.abort())
    opened.page.evaluate("fetch('http://elsewhere.example/font').catch(() => 0)")
    assert opened.elsewhere() == ["http://elsewhere.example/font"]
    opened.page.close()
