"""The list of mutants: each is one changed line of a file that has tests, and still fits."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

if sys.version_info < (3, 12):
    pytest.skip("lines are recorded by sys.monitoring, of Python 3.12", allow_module_level=True)

from benchmarks.mutants import mutant, places, run
from benchmarks.mutants.lines import Book

ROOT = Path(__file__).parents[2]
FILES = places.files()


def test_every_file_and_every_test_that_is_named_exists():
    for file, (_, tests) in FILES.items():
        assert (ROOT / "src/ergodax" / file).is_file()
        named = [each for call in places.arguments(tests) for each in call if each.endswith(".py")]
        assert named and all((ROOT / each).is_file() for each in named), file


def test_most_mutants_fit_the_files():
    """A line that was edited since makes its mutant stale; `--generate` drops these."""
    mutants, stale = mutant.read(), 0
    assert len({one.name for one in mutants}) == len(mutants)
    for one in mutants:
        stale += not one.fits()
        assert one.old != one.new
    assert stale <= len(mutants) / 10
    assert {FILES[one.file][0] for one in mutants} == set(places.MODULES)


def test_a_mutant_changes_the_line_it_means():
    text = "a = 1\nb = 2\na = 1\n"
    one = mutant.Mutant("x.py", "NumberReplacer", "a = 1", "a = 2", which=1)
    assert one.applied(text) == "a = 1\nb = 2\na = 2\n"
    with pytest.raises(LookupError, match="make the mutant anew"):
        mutant.Mutant("x.py", "NumberReplacer", "a = 1", "a = 2", which=2).applied(text)


def test_equivalent_ones_are_kept_with_their_reason(tmp_path):
    path = tmp_path / "mutants.jsonl"
    both = [
        mutant.Mutant("b.py", "DropTerm", "x", "y", 1, "why"),
        mutant.Mutant("a.py", "", "x", "y"),
    ]
    mutant.write(both, path)
    assert mutant.read(path) == both[::-1]


def test_those_that_come_to_the_line_run_first_and_then_whole_files(tmp_path):
    """Killers of the file's other mutants first, then the quickest."""
    book = Book(tmp_path / "lines.json")
    file, (_, named) = next((f, m) for f, m in FILES.items() if len(m[1]) >= 2)
    here = {file: [3, 4]}
    book.add(named[0], {"a": {"seconds": 1, "lines": here}, "b": {"seconds": 2, "lines": here}})
    for test in named[1:]:
        book.add(
            test, {"c": {"seconds": 5, "lines": {file: [4]}}, "d": {"seconds": 1, "lines": {}}}
        )
    book = Book(tmp_path / "lines.json")
    assert all(map(book.holds, named))

    first, *rest = run.calls(file, 3, book, {"b": 1, "c": 9})
    assert first == (["b", "a"], 3)
    assert [options for options, _ in rest] == places.arguments(named[:1])

    first, *rest = run.calls(file, 4, book, {})
    assert first == (["a", "b", "c"], 8)
    assert [options for options, _ in rest] == places.arguments(named)
    assert [options for options, _ in run.calls(file, 5, book, {})] == places.arguments(named)

    book.add(named[0], {name: {"seconds": 3, "lines": here} for name in ("a", "b", "new")})
    assert next(run.calls(file, 3, book, {"b": 1}))[0] == ["new", "b", "a"]


def test_the_lines_of_each_test_are_recorded(tmp_path):
    """In a process of its own: a test of one's own line, with a package of one function."""
    package = tmp_path / "src" / "ergodax"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "def f(x):\n    if x > 0:\n        return 1\n    return 2\n"
    )
    test = tmp_path / "test_f.py"
    test.write_text(
        "from ergodax import f\n\ndef test_a():\n    assert f(1) == 1\n\n"
        "def test_b():\n    assert f(-1) == 2\n"
    )
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, pytest\nfrom pathlib import Path\n"
        "from benchmarks.mutants.lines import Recorder\n"
        "folder = Path(sys.argv[1])\nsys.path.insert(0, str(folder / 'src'))\n"
        "options = ['-q', '-c', '/dev/null', '--rootdir', str(folder), str(folder / 'test_f.py')]\n"
        "sys.exit(pytest.main(options, plugins=[Recorder(folder / 'src', folder / 'found')]))\n"
    )
    call = [sys.executable, str(script), str(tmp_path)]
    path = f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"
    subprocess.run(call, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": path})
    tests = json.loads((tmp_path / "found").read_text())
    assert [one["lines"] for one in tests.values()] == [
        {"__init__.py": [2, 3]},
        {"__init__.py": [2, 4]},
    ]
