"""Which lines of the package does each test execute? A plugin for pytest, and what it has found.

A test that never comes to a line can't notice its mutant. What is found decides which tests run and
in what order, per file of tests: what a fixture, or a program compiled by an earlier test of the
file, has executed, is that file's.
"""

import hashlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from benchmarks.mutants.mutant import ROOT
from benchmarks.mutants.places import arguments, files

TOOL = sys.monitoring.COVERAGE_ID


class Recorder:
    """A plugin: for each test its seconds and, by file of the package, its lines.

    Args:
        source: the folder that has the package; other files are not looked at.
        place: where it is written at the end, as JSON.
    """

    def __init__(self, source: Path, place: Path) -> None:
        self.package, self.place = str(source / "ergodax") + "/", place
        self.lines: dict[str, set[int]] = {}
        self.tests: dict[str, dict[str, Any]] = {}
        sys.monitoring.use_tool_id(TOOL, "mutants")
        sys.monitoring.register_callback(TOOL, sys.monitoring.events.LINE, self._line)
        sys.monitoring.set_events(TOOL, sys.monitoring.events.LINE)

    def _line(self, code: CodeType, number: int) -> object:
        if code.co_filename.startswith(self.package):
            self.lines.setdefault(code.co_filename[len(self.package) :], set()).add(number)
        return sys.monitoring.DISABLE

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Before and after each test."""
        self.lines = {}
        sys.monitoring.restart_events()
        begin = time.process_time()
        result = yield
        lines = {file: sorted(numbers) for file, numbers in self.lines.items()}
        seconds = round(time.process_time() - begin, 2)
        self.tests[item.nodeid] = {"seconds": seconds, "lines": lines}
        return result

    def pytest_sessionfinish(self) -> None:
        """Write it down."""
        self.place.write_text(json.dumps(self.tests), encoding="utf-8")


class Book:
    """What was recorded, in a file: by test file, or row of the contract, as places.py names it.

    Args:
        path: JSON, made where there is none.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    def holds(self, test: str) -> bool:
        """Whether its tests are known, and neither they nor what they are for has changed."""
        return self.kept.get(test, {}).get("digest") == digest(test)

    def add(self, test: str, tests: dict[str, dict[str, Any]]) -> None:
        """Write down what was executed, and which tests were not there before."""
        fresh = sorted(tests.keys() - self.kept.get(test, {}).get("tests", tests).keys())
        self.kept[test] = {"digest": digest(test), "tests": tests, "fresh": fresh}
        self.path.write_text(json.dumps(self.kept), encoding="utf-8")

    def covering(self, test: str, file: str, line: int) -> dict[str, float]:
        """The tests in it that come to this line, with their seconds."""
        tests = self.kept[test]["tests"]
        return {
            name: one["seconds"]
            for name, one in tests.items()
            if line in one["lines"].get(file, ())
        }

    def fresh(self, test: str) -> list[str]:
        """Its tests that were not there when it was recorded before: survivors may fall to them."""
        return self.kept[test].get("fresh", [])

    def seconds(self, test: str) -> float:
        """Of CPU time, of all the tests in it."""
        return sum(one["seconds"] for one in self.kept[test]["tests"].values())


def digest(test: str) -> str:
    """Of a file of tests and of the files of the package that it is for."""
    (path, *_), *_ = arguments((test,))
    found = hashlib.sha256((ROOT / path).read_bytes())
    for file, (_, tests) in files().items():
        if test in tests:
            found.update((ROOT / "src/ergodax" / file).read_bytes())
    return found.hexdigest()[:16]
