"""Every cell of every page runs, without a browser, and makes its pictures."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from gallery.pages import FIGURES

pytestmark = pytest.mark.skipif(importlib.util.find_spec("marimo") is None, reason="needs marimo")

RUN_ALL = """
import importlib, json, sys, traceback
from gallery import charts
found = {}
for slug in sys.argv[1:]:
    try:
        shown, _ = importlib.import_module(f"gallery.notebooks.{slug}").app.run()
        found[slug] = sum(charts.MIME in getattr(each, "text", "") for each in shown), ""
    except Exception:
        found[slug] = 0, traceback.format_exc()
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found():
    """The number of cells that show charts, and the error; in a process with JAX's settings."""
    command = [sys.executable, "-W", "ignore", "-c", RUN_ALL, *(figure.slug for figure in FIGURES)]
    root = Path(__file__).parents[3]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.slug)
def test_every_cell_runs(figure, found):
    pictures, error = found[figure.slug]
    assert not error
    assert pictures == 1, "the cell of the pictures"
