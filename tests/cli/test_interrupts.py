"""Ctrl-C while the command imports, and where Python ignores exceptions."""

import os
import signal
import subprocess
import sys

import pytest

from ergodax import interrupts

SIGNAL = "import signal; signal.raise_signal(signal.SIGINT)"
# Where the tests run in a shell's background Ctrl-C is ignored, and what they start inherits that.
BEGIN = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); "
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)


def run(*arguments):
    command = [sys.executable, "-c", BEGIN, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize("command", [["ergodax"], ["-m", "ergodax"]], ids=["script", "module"])
def test_while_the_command_imports_it_is_one_line_and_status_130(command, tmp_path, monkeypatch):
    """A library catches everything, so that an exception would be lost."""
    swallowing = f"try:\n    {SIGNAL}\nexcept BaseException:\n    pass\nraise SystemExit(7)\n"
    (tmp_path / "jax.py").write_text(swallowing)
    (tmp_path / "ergodax").write_text("from ergodax.__main__ import main\nmain()\n")
    path = [str(tmp_path), *filter(None, sys.path)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    if command == ["ergodax"]:
        command = [str(tmp_path / "ergodax")]
    assert run(*command, "--version") == (130, f"{interrupts.NOTHING}\n")


def test_other_programs_are_left_alone():
    before = signal.getsignal(signal.SIGINT)
    for words in (
        ["python"],
        ["python", "-c", "import ergodax"],
        ["python", "-m", "ergodax.other"],
    ):
        interrupts.end_command(words)
        assert signal.getsignal(signal.SIGINT) is before


def test_where_it_is_ignored_it_comes_again():
    program = f"""
import gc, sys, time
from ergodax import interrupts
interrupts.end_command(["python", "bin/ergodax"])
interrupts.raise_again()
def callback(phase, info):
    gc.callbacks.remove(callback)
    {SIGNAL}
gc.callbacks.append(callback)
gc.collect()
try:
    time.sleep(20)
except KeyboardInterrupt:
    sys.exit(130)
"""
    assert run("-c", program) == (130, "")
