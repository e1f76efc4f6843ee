"""The bridges import nothing before it is used, and say what to install where it is missing."""

import json
import subprocess
import sys

import pytest

from ergodax import bridge

LIBRARIES = {"torch", "numpyro", "blackjax"}


def run(program):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_the_bridges_imports_no_library():
    program = "import sys, json, ergodax.bridge, ergodax.convert; print(json.dumps([*sys.modules]))"
    assert not LIBRARIES & set(json.loads(run(program)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "library, call",
    [("torch", "bridge.torch"), ("numpyro", "bridge.numpyro(lambda: None)")],
)
def test_a_missing_library_is_named(library, call):
    program = f"""
import sys
from ergodax import bridge
sys.modules["{library}"] = None
try:
    {call}
except ImportError as error:
    print(error)
"""
    assert f"pip install 'ergodax[{library}]'" in run(program)


def test_an_unknown_bridge():
    with pytest.raises(AttributeError, match="has no attribute 'pymc'"):
        bridge.__getattr__("pymc")
