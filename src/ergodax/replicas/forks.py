"""Workers that begin at once: forks of a process that has imported all they need.

To import JAX and this library takes a worker longer than to read its program from the cache. A
process that has done so, and has computed nothing yet, is forked in a moment; its memory is shared.
"""

import contextlib
import gc
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

POLL = 0.02  # seconds


class Fork:
    """A worker, as `subprocess.Popen` would show it.

    Args:
        forks: what began it.
        pid: of its process.

    Attributes:
        returncode: its exit status, negative if a signal ended it; None while it runs.
    """

    def __init__(self, forks: "Forks", pid: int) -> None:
        self._forks, self.pid = forks, pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit status, or None while it runs."""
        if self.returncode is None:
            self._forks.hear()
        return self.returncode

    def kill(self) -> None:
        """End it, whatever it does."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


class Forks:
    """The process that is forked, as its parent sees it; begun when the first worker is."""

    def __init__(self) -> None:
        self._connection: Connection | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._running: dict[int, Fork] = {}

    def start(self, program: Path, errors: Path) -> Fork:
        """A worker that reads its task from a file, with a file for what it says of errors."""
        try:
            pid = self._begin(program, errors)
        except (EOFError, OSError):  # it was killed
            self._lost()
            pid = self._begin(program, errors)
        self._running[pid] = worker = Fork(self, pid)
        return worker

    def _begin(self, program: Path, errors: Path) -> int:
        if self._connection is None:
            self._connection, theirs = Pipe()
            command = [sys.executable, "-m", "ergodax.replicas", "--forks", str(theirs.fileno())]
            environment = {"NPROC": "1"} | os.environ
            self._process = subprocess.Popen(command, env=environment, pass_fds=[theirs.fileno()])
            theirs.close()
        self._connection.send((str(program), str(errors)))
        while not isinstance(told := self._connection.recv(), int):
            self._ended(*told)
        return told

    def hear(self) -> None:
        """Note which workers have ended."""
        try:
            while self._connection is not None and self._connection.poll():
                self._ended(*self._connection.recv())
        except (EOFError, OSError):
            self._lost()

    def _ended(self, pid: int, status: int) -> None:
        self._running.pop(pid).returncode = status

    def _lost(self) -> None:
        """The process was killed: nobody would tell how its workers end, so they are ended too."""
        for pid in list(self._running):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            self._ended(pid, -signal.SIGKILL)
        self._bury()

    def _bury(self) -> None:
        if self._connection is not None and self._process is not None:
            self._connection.close()
            self._process.kill()
            self._process.wait()
        self._connection = self._process = None

    def close(self) -> None:
        """End all workers and the process."""
        self.hear()
        for worker in list(self._running.values()):
            worker.kill()
        self._bury()


def serve(descriptor: int, work: Callable[[str], Any]) -> None:
    """Be the process that is forked: begin what is asked for, and tell of what has ended.

    Args:
        descriptor: of the connection to the parent.
        work: is called in each fork, with the path of its task.
    """
    connection = Connection(descriptor)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
    gc.freeze()  # what is imported stays, and the pages that it lies on are shared
    with contextlib.suppress(EOFError, OSError):  # the parent is gone; workers need nobody
        while True:
            while connection.poll(POLL):
                program, errors = connection.recv()
                pid = os.fork()
                if not pid:
                    connection.close()
                    _be_worker(work, program, errors)
                connection.send(pid)
            with contextlib.suppress(ChildProcessError):
                while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                    connection.send((ended[0], os.waitstatus_to_exitcode(ended[1])))


def _be_worker(work: Callable[[str], Any], program: str, errors: str) -> None:
    """Do the work, say what went wrong, and end without what the parent would do at its end."""
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with open(errors, "wb") as file:
            os.dup2(file.fileno(), 2)
        work(program)
        status = 0
    except BaseException:  # its traceback is what the file is for
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
