"""Every Python block of the documentation runs, as a reader would run it.

The blocks of a page share one namespace. A page runs in a process of its own with JAX's plain
settings, since readers have those and not this test suite's; warnings are errors all the same,
but for the one of a compiled program that another process is just writing.
"""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = "```"
HALF_WRITTEN = "ignore:Error reading persistent compilation cache entry"


NEEDS = re.compile(r"^# needs (\w+)$", re.MULTILINE)


def missing(text: str) -> list[str]:
    """The libraries that the text's blocks need and that are not installed."""
    return sorted({n for n in NEEDS.findall(text) if importlib.util.find_spec(n) is None})


def python_of(text: str) -> str:
    """The Python blocks of a page; all other lines are blank, so line numbers are the page's.

    A block that begins with `# needs NAME` is left out where NAME is not installed.
    """
    inside, kept, lines = False, True, []
    for line in text.splitlines():
        if inside and line.startswith(FENCE):
            inside, kept = False, True
        kept = kept and not (inside and missing(line))
        lines.append(line if inside and kept else "")
        if line.startswith(FENCE + "python"):
            inside = True
    assert not inside, "a block is not closed"
    return "\n".join(lines)


WITH_PYTHON = [page for page in PAGES if python_of(page.read_text(encoding="utf-8")).strip()]


def run(text: str, folder: Path) -> subprocess.CompletedProcess:
    script = folder / "page.py"
    script.write_text(python_of(text) + "\n", encoding="utf-8")
    command = [sys.executable, "-W", "error", "-W", HALF_WRITTEN, script.name]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)


def identify(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", WITH_PYTHON, ids=identify)
def test_every_python_block_runs(page, tmp_path):
    done = run(page.read_text(encoding="utf-8"), tmp_path)
    assert done.returncode == 0, f"{page} (line numbers are the page's):\n{done.stderr}"


@pytest.mark.parametrize("page", [p for p in PAGES if NEEDS.search(p.read_text())], ids=identify)
def test_no_block_is_left_out(page):
    if absent := missing(page.read_text(encoding="utf-8")):
        pytest.skip(f"blocks that need {', '.join(absent)} were left out")


def test_no_python_block_escapes():
    """A block that is indented or named otherwise would not be run."""
    other = re.compile(rf"^[ \t]+{FENCE}|^{FENCE}(?:py|pycon|Python)\b", re.MULTILINE)
    assert [page for page in PAGES if other.search(page.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    "body, message",
    [("assert 1 == 2", "AssertionError"), ("import warnings; warnings.warn('x')", "UserWarning")],
)
def test_a_block_that_fails_is_seen(body, message, tmp_path):
    done = run(
        f"text\n\n{FENCE}python\nx = 1\n{FENCE}\n\n{FENCE}python\n{body}\n{FENCE}\n", tmp_path
    )
    assert done.returncode != 0
    assert message in done.stderr and "line 8" in done.stderr
