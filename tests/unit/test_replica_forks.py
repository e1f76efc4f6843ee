"""Workers as forks of a process that has imported all: how each ends is known."""

import contextlib
import os
import signal
import sys
import time

import pytest

from ergodax.replicas.forks import Forks

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks are for Linux")


def ended(worker, seconds=60.0):
    until = time.monotonic() + seconds
    while worker.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    return worker.returncode


def test_what_ends_a_worker_is_known_and_another_begins(tmp_path):
    nothing, waits, errors = tmp_path / "nothing", tmp_path / "waits", tmp_path / "errors"
    nothing.touch()
    os.mkfifo(waits)  # whoever reads it waits
    with contextlib.closing(Forks()) as forks:
        wrong = forks.start(nothing, errors)
        killed, other = (forks.start(waits, tmp_path / name) for name in ("killed", "other"))
        assert ended(wrong) == 1 and "EOFError" in errors.read_text()
        assert killed.poll() is None
        killed.kill()
        assert ended(killed) == -signal.SIGKILL and other.poll() is None

        assert forks._process is not None
        forks._process.kill()  # the process itself: its workers end, and there is a new one
        again = forks.start(nothing, errors)
        assert other.returncode == -signal.SIGKILL and ended(again) == 1
        last = forks.start(waits, errors)
    for worker in (other, last):
        with pytest.raises(ProcessLookupError):
            while True:  # until the system has buried it
                os.kill(worker.pid, 0)
                time.sleep(0.01)
