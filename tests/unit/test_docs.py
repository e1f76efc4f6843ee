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

import ergodax as ex
from ergodax.sampler import __all__ as NAMES

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
TOOLS = ROOT / "tools"
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


@pytest.mark.parametrize("page", PAGES, ids=identify)
def test_no_python_block_escapes(page):
    """A block that is indented or named otherwise would not be run."""
    text = page.read_text(encoding="utf-8")
    found = len(re.findall(rf"^[ \t]+{FENCE}|^{FENCE}(?:py|pycon|Python)\b", text, re.MULTILINE))
    assert found == 0


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


@pytest.fixture(scope="module")
def made():
    """The hook of the documentation that makes a page for every sampler."""
    return imported(TOOLS / "sampler_pages.py")


def imported(path: Path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_public_name_is_in_the_reference(made):
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    text += "".join(made.pages().values())
    documented = {path.split(".")[-1] for path in re.findall(r"^::: (\S+)$", text, re.MULTILINE)}
    assert set(ex.__all__) - documented == set()


def test_every_sampler_has_a_page_with_its_row_and_its_law_tests(made):
    found = {sampler.name: sampler for sampler in made.samplers()}
    others = {"firefly", "tuna", "confidence", "austerity", "naive_sghmc", "splitting"}
    assert found.keys() >= set(NAMES) - {"counterexamples"} | others
    for sampler in found.values():
        page = made.sampler_page(sampler)
        assert "| D |" in page and "](../law/test_" in page, sampler.name


def test_a_sampler_without_a_row_ends_the_build(made):
    with pytest.raises(LookupError, match=r"ex.nothing has no row in docs/methods.md"):
        made.facts(made.Sampler("ex.nothing", ex.sgld))


def test_equations_of_docstrings_become_blocks():
    fenced = imported(TOOLS / "griffe_equations.py").fenced
    text = "Update:\n    x+ = x\n    y+ = y\nThen.\n\nArgs:\n    a: number."
    blocks = "Update:\n\n```text\nx+ = x\ny+ = y\n```\n\nThen.\n\nArgs:\n    a: number."
    assert fenced(text) == blocks
    assert fenced("- a list\n    goes on") == "- a list\n    goes on"


def test_the_picture_is_that_of_the_figures():
    pictures = imported(TOOLS / "pictures.py")
    text = pictures.SOURCE.read_text(encoding="utf-8")
    assert pictures.PICTURE.read_text(encoding="utf-8") == pictures.picture(text), (
        "benchmarks/NUTS.md has changed; run `python tools/pictures.py`"
    )


def test_links_between_files_lead_somewhere(made):
    pages = {ROOT / "docs" / path for path in made.pages()}
    broken = []
    for page in [*PAGES, ROOT / "VISION.md", ROOT / "CHANGELOG.md"]:
        for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            path = page.parent / link
            if "://" not in link and not path.exists() and path not in pages:
                broken.append((page.name, link))
    assert broken == []
