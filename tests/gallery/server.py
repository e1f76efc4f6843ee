"""A server in a process of its own."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

GALLERY = "from ergodax.gallery.serve import serve; serve(0, open_browser=False)"


@contextmanager
def started(program: str = GALLERY) -> Iterator[tuple[subprocess.Popen, str]]:
    """The process, and the address that it prints when it listens; it does not outlive the block.

    Args:
        program: in Python.
    """
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://\S+", process.stdout.readline())
            assert found, "the server did not start"
            yield process, found.group().rstrip("/")
        finally:
            process.kill()


def interrupted(process: subprocess.Popen) -> int:
    """The status with which it ends after Ctrl-C."""
    process.send_signal(signal.SIGINT)
    return process.wait(60)


@contextmanager
def running(program: str = GALLERY) -> Iterator[str]:
    """The address of a server, which is interrupted at the end."""
    with started(program) as (process, address):
        yield address
        interrupted(process)
