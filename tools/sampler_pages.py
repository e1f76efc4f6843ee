"""Pages of the documentation that are made as it is built: one a sampler, and the law tests.

A hook of MkDocs. Every function of the library that returns a kernel gets a page: its docstring,
its rows of the tables in docs/methods.md, and the tests of its law. Nothing is kept by hand, so a
new sampler has its page, its line in the overview and its place in the menu; one without a row in
docs/methods.md ends the build with an error.
"""

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import ergodax as ex

ROOT = Path(__file__).resolve().parents[1]
METHODS = ROOT / "docs" / "methods.md"
LAWS = ROOT / "tests" / "law"
GROUP = "Samplers"
OVERVIEW = "samplers/index.md"
COLUMNS = ("state", "order", "gradient evaluations a step")

INTRODUCTION = f"""# Samplers

Each takes a gradient estimator and returns a kernel, which `ex.sample` runs. The page of a sampler
has its state, H, D and Q, the update as the code computes it, order, stability and bias, its
arguments, and the tests of its law. [Methods](../methods.md) compares all of them in one notation,
[Concepts](../concepts.md) says what a finite step and a minibatch do to the answer.

| sampler | what it is | {" | ".join(COLUMNS)} |
|---|---|---|---|---|
"""


@dataclass(frozen=True)
class Sampler:
    """A function that makes a kernel, and how users call it."""

    call: str
    function: Callable

    @property
    def name(self) -> str:
        """Its name without the modules it is in."""
        return self.function.__name__

    @property
    def page(self) -> str:
        """Its page, below docs/."""
        return f"samplers/{self.name}.md"

    @property
    def path(self) -> str:
        """Where it is defined."""
        return f"{self.function.__module__}.{self.name}"

    @property
    def line(self) -> str:
        """The first line of its docstring."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0].rstrip(".")


def samplers() -> list[Sampler]:
    """Every function that is exported and returns a kernel, in the order of docs/methods.md."""
    found = [s for room in (ex, ex.exact, ex.counterexamples) for s in _samplers_of(room)]
    text = METHODS.read_text(encoding="utf-8")
    return sorted(found, key=lambda s: (text.find(f"\n| `{s.call}"), s.name))


def _samplers_of(room: ModuleType) -> Iterator[Sampler]:
    prefix = room.__name__.rpartition(".")[2]
    for name, value in vars(room).items():
        if _returns_kernel(value) and value.__module__.startswith(room.__name__):
            yield Sampler(name if room is ex else f"{prefix}.{name}", value)


def _returns_kernel(value: Any) -> bool:
    if not inspect.isfunction(value) or value.__name__.startswith("_"):
        return False
    kernel = inspect.signature(value).return_annotation
    return inspect.isclass(kernel) and hasattr(kernel, "init") and hasattr(kernel, "step")


def facts(sampler: Sampler) -> list[tuple[list[str], list[list[str]]]]:
    """The header and the sampler's rows of every table of methods that has some."""
    tables = []
    for block in re.findall(r"(?:^\|.*\n)+", METHODS.read_text(encoding="utf-8"), re.MULTILINE):
        header, _, *rows = [_cells(line) for line in block.splitlines()]
        own = [row for row in rows if re.match(rf"`{re.escape(sampler.call)}\b", row[0])]
        if header[0] == "method" and own:
            tables.append((header, own))
    if not tables:
        raise LookupError(f"{sampler.call} has no row in docs/methods.md; add one.")
    return tables


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def laws(sampler: Sampler) -> list[Path]:
    """The files of tests/law that use the sampler: those named after it, then by how often."""
    name = sampler.name
    use = re.compile(rf"\b(?:ex|exact|counterexamples)\.{name}\b|import .*\b{name}\b")
    counts = {path: len(use.findall(path.read_text(encoding="utf-8"))) for path in _law_tests()}

    def rank(path: Path) -> tuple:
        return name not in path.stem.split("_"), -counts[path], path.name

    return sorted((path for path in counts if counts[path]), key=rank)


def _law_tests() -> list[Path]:
    return sorted(LAWS.glob("test_*.py"))


def _title(path: Path) -> str:
    document = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or path.stem
    return document.partition("\n")[0].rstrip(".")


def sampler_page(sampler: Sampler) -> str:
    """A sampler's page."""
    parts = [
        f"::: {sampler.path}\n    options:\n      heading: ex.{sampler.call}\n"
        "      heading_level: 1",
        "## How it compares\n\nFrom the tables of all methods, [Methods](../methods.md), whose "
        "symbols are those of the [conventions](../concepts.md#conventions).",
        *(_turned(header, rows) for header, rows in facts(sampler)),
        "## Tests of its law\n\nEach stands beside planted faults that it must reject. The tests "
        "of the contract that every kernel keeps run over it as well.",
        "\n".join(f"- [{_title(path)}](../law/{path.stem}.md)" for path in laws(sampler)),
    ]
    return "\n\n".join(parts) + "\n"


def _turned(header: list[str], rows: list[list[str]]) -> str:
    columns = [header, *rows]
    lines = ["| " + " | ".join(column[i] for column in columns) + " |" for i in range(len(header))]
    return "\n".join([lines[0], "|---" * len(columns) + "|", *lines[1:]])


def overview() -> str:
    """The page with a line for each sampler."""
    lines = []
    for sampler in samplers():
        header, rows = facts(sampler)[0]
        values = [" / ".join(dict.fromkeys(r[header.index(c)] for r in rows)) for c in COLUMNS]
        link = f"[`{sampler.call}`]({sampler.name}.md)"
        lines.append("| " + " | ".join([link, sampler.line, *values]) + " |\n")
    return INTRODUCTION + "".join(lines)


def law_page(path: Path) -> str:
    """A law test to be read; the search leaves it out."""
    source = path.read_text(encoding="utf-8")
    title = f"# {path.stem}\n\n{_title(path)}: `tests/law/{path.name}`."
    return f"---\nsearch:\n  exclude: true\n---\n{title}\n\n````python\n{source}````\n"


def pages() -> dict[str, str]:
    """All pages that are made here, by their paths below docs/."""
    made = {OVERVIEW: overview()}
    made |= {sampler.page: sampler_page(sampler) for sampler in samplers()}
    return made | {f"law/{path.stem}.md": law_page(path) for path in _law_tests()}


def on_config(config):
    """Put the samplers into their group of the menu."""
    group = next(entry[GROUP] for entry in config["nav"] if GROUP in entry)
    group += [{sampler.name: sampler.page} for sampler in samplers()]


def on_files(files, config):
    """Add the pages to those that are read from docs/."""
    from mkdocs.structure.files import File  # the tests of the pages do without MkDocs

    for path, content in pages().items():
        files.append(File.generated(config, path, content=content))
