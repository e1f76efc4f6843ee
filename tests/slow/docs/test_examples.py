"""Every example runs, and the claims that it asserts hold."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def test_there_are_a_dozen_short_ones():
    assert len(EXAMPLES) == 12
    for path in EXAMPLES:
        text = path.read_text()
        assert len(text.splitlines()) < 120, path.name
        assert f"Example: python examples/{path.name}" in text, path.name


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(path, tmp_path):
    found = subprocess.run(
        [sys.executable, str(path)], cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    assert found.returncode == 0, found.stderr[-2_000:]
    assert found.stdout.strip()
