"""A wrong argument ends in an error that names it and says what to try.

The messages are read in an interpreter of their own, as users have it: the type checker of
the tests would speak before the library does. With it, the same calls must fail too.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import ergodax
from unit.wrong_calls import CASES
from unit.wrong_calls.case import outcome

SOURCE = Path(ergodax.__file__).parents[1]


@pytest.fixture(scope="module")
def seen_by_users() -> dict[str, tuple[list[str], str]]:
    """What every wrong call ends in, without the type checker."""
    here = Path(__file__).parents[1]
    half_written = "ignore:Error reading persistent compilation cache entry"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", half_written, "-m", "unit.wrong_calls"],
        cwd=here,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (here, SOURCE)))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", CASES)
def test_the_error_names_the_argument_and_says_what_to_try(name, seen_by_users):
    classes, message = seen_by_users[name]
    case = CASES[name]
    assert case.error.__name__ in classes, (classes, message)
    for word in case.words:
        assert word in message, f"{word!r} is missing in: {message}"
    assert len(message) < 500 and "\n" not in message, "a message is a sentence or three"


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("library")])
def test_it_fails_with_the_type_checker_as_well(name):
    classes, message = outcome(CASES[name])
    assert {"TypeError", "ValueError"} & set(classes), message
