"""The reference names every public name, and links between pages lead somewhere."""

import importlib.util
import re
from pathlib import Path

import pytest

import ergodax as ex
from ergodax.sampler import __all__ as NAMES

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
TOOLS = ROOT / "tools"


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


def test_the_first_page_is_that_of_the_benchmarks_files():
    first = imported(TOOLS / "first_page.py")
    picture = first.picture(first.SOURCE.read_text(encoding="utf-8"))
    text = first.PAGE.read_text(encoding="utf-8")
    why = "a file of benchmarks/ has changed; run `python tools/first_page.py`"
    assert first.PICTURE.read_text(encoding="utf-8") == picture, why
    assert text == first.page(text), why
    assert first.page(text.replace(" right, 0 wrong", " right, 7 wrong")) == text, "it writes anew"
    assert "at 500, " in text and "wrong and called right" in text


def test_links_between_files_lead_somewhere(made):
    pages = {ROOT / "docs" / path for path in made.pages()}
    broken = []
    for page in [*PAGES, ROOT / "VISION.md", ROOT / "CHANGELOG.md"]:
        for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            path = page.parent / link
            if "://" not in link and not path.exists() and path not in pages:
                broken.append((page.name, link))
    assert broken == []
