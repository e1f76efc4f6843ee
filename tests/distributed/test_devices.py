"""The tests of `four_devices`, in a process in which the CPU counts as four devices."""

import ast
import os
import subprocess
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
FILE = Path(__file__).with_name("four_devices.py")
NAMES = [
    node.name
    for node in ast.parse(FILE.read_text(encoding="utf-8")).body
    if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """What came of each test, by its function."""
    path = tmp_path_factory.mktemp("devices") / "report.xml"
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", f"--junitxml={path}", str(FILE)],
        env=os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        cwd=FILE.parents[2],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert path.exists(), done.stdout + done.stderr
    return list(xml.parse(path).iter("testcase"))


@pytest.mark.parametrize("name", NAMES)
def test_on_four_devices(name, report):
    cases = [case for case in report if case.get("name", "").partition("[")[0] == name]
    assert cases, "not run"
    faults = [(case.get("name"), child.text) for case in cases for child in case]
    assert not faults, "\n".join(f"{name}: {text}" for name, text in faults)
