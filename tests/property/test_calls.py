"""Of generated calls, plausible and hostile, next to none ends in a traceback from inside."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ergodax as ex
from property.calls.outcomes import outcome

SOURCE = Path(ex.__file__).parents[1]
MANY = 20_000


def counted(count: int, seed: int) -> tuple[dict, str]:
    """The outcomes of so many calls, without the type checker of the tests."""
    here = Path(__file__).parents[1]
    command = [sys.executable, "-m", "property.calls", "--json"]
    done = subprocess.run(
        [*command, "--count", str(count), "--seed", str(seed)],
        cwd=here,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (here, SOURCE)))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    return found["kinds"], found["report"]


@pytest.mark.slow
def test_generated_calls():
    kinds, report = counted(MANY, seed=1)
    assert kinds.get("hang", 0) == 0, report
    assert kinds.get("inside", 0) <= max(1, MANY / 1000), report
    assert kinds["fine"] > MANY / 10 and kinds["refused"] > MANY / 2, report


def test_each_kind_of_outcome_is_told():
    """A hang, an error from inside, one of ours and a right call."""

    def for_ever():
        while True:
            pass

    assert outcome(for_ever, seconds=0.1).kind == "hang"
    assert outcome(lambda: ex.tree.size([{}, {"a": 1}])).kind == "fine"
    assert outcome(lambda: ex.data.npy(3)).kind == "refused"
    assert outcome(lambda: ex.tree.dot(np.ones(2), np.ones(3))).kind == "inside"
