"""The notebooks without a browser: every cell runs, and so does the code that they show."""

import importlib
import importlib.util
import json
import re
import subprocess
import sys

import pytest

from gallery.pages import FIGURES, find, heading

pytestmark = pytest.mark.skipif(importlib.util.find_spec("marimo") is None, reason="needs marimo")
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

RUN_ALL = """
import contextlib, io, json, sys, traceback
outcomes = {}
for name, block in json.load(sys.stdin).items():
    printed, error = io.StringIO(), ""
    with contextlib.redirect_stdout(printed):
        try:
            exec(block, {"__name__": name})
        except Exception:
            error = traceback.format_exc()
    outcomes[name] = printed.getvalue(), error
print(json.dumps(outcomes))
"""


def identify(figure):
    return figure.slug


def shown(figure):
    """The code that a notebook shows."""
    blocks = BLOCK.findall(figure.notebook.read_text(encoding="utf-8"))
    assert len(blocks) == 1, "one block at the end"
    return blocks[0]


@pytest.fixture(scope="module")
def outcomes():
    """What each block printed, and its error; in a process with JAX's plain settings."""
    blocks = json.dumps({figure.slug: shown(figure) for figure in FIGURES})
    command = [sys.executable, "-W", "ignore", "-c", RUN_ALL]
    done = subprocess.run(command, input=blocks, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("figure", FIGURES, ids=identify)
def test_the_code_that_a_page_shows_runs(figure, outcomes):
    printed, error = outcomes[figure.slug]
    assert not error
    assert printed.strip() and "nan" not in printed


@pytest.mark.parametrize("figure", FIGURES, ids=identify)
def test_a_notebook_is_an_app_with_the_pages_title(figure):
    module = importlib.import_module(f"gallery.notebooks.{figure.slug}")
    assert module.app._config.app_title == figure.title
    assert f'heading("{figure.slug}")' in figure.notebook.read_text(encoding="utf-8")


def test_headings_name_figures():
    assert find("sgld") in FIGURES and heading("sgld").endswith(find("sgld").title)
    with pytest.raises(ValueError, match="figure must be one of recipe, brownian.*not 'sgdl'"):
        find("sgdl")
    assert len({figure.slug for figure in FIGURES}) == len(FIGURES) == 15
