"""Small files, small functions."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "src" / "ergodax").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
LINES, FUNCTION_LINES = 500, 60


def identify(path: Path) -> str:
    return str(path.relative_to(ROOT))


def code_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its docstring, which may be as long as it must."""
    assert node.end_lineno is not None
    total = node.end_lineno - node.lineno + 1
    first = node.body[0]
    if ast.get_docstring(node) is not None and first.end_lineno is not None:
        total -= first.end_lineno - first.lineno + 1
    return total


@pytest.mark.parametrize("path", FILES + TESTS, ids=identify)
def test_file(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= LINES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert code_lines(node) <= FUNCTION_LINES, node.name


def test_there_are_files():
    assert len(FILES) > 30


def test_every_file_says_what_it_is():
    for path in FILES + TESTS:
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), path
