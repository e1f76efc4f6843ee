"""Small files, small functions."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "src" / "ergodax").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
LINES, FUNCTION_LINES = 500, 60


def code_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its docstring, which may be as long as it must."""
    assert node.end_lineno is not None
    total = node.end_lineno - node.lineno + 1
    first = node.body[0]
    if ast.get_docstring(node) is not None and first.end_lineno is not None:
        total -= first.end_lineno - first.lineno + 1
    return total


def too_long(path: Path, limit: int) -> list[str]:
    """What of a file is longer than it may be."""
    text = path.read_text(encoding="utf-8")
    name = str(path.relative_to(ROOT))
    lines = len(text.splitlines())
    found = [f"{name}: {lines} lines"] if lines > limit else []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if (lines := code_lines(node)) > FUNCTION_LINES:
                found.append(f"{name}: {node.name} has {lines} lines")
    return found


def test_no_file_and_no_function_is_too_long():
    assert len(FILES) > 30
    assert [long for path in FILES + TESTS for long in too_long(path, LINES)] == []


def test_what_is_too_long_is_seen():
    assert too_long(Path(__file__), 10)[0].startswith("tests/architecture/test_size.py: ")


def test_every_file_says_what_it_is():
    for path in FILES + TESTS:
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), path
