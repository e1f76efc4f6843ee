"""`ergodax launch`: several processes of one command on this host, started again if one is lost."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from ergodax.cli.output import Json, tell_json

# Kills all processes of its group, itself too, when its standard input ends without "end".
GUARD = """
import os, signal, sys
if sys.stdin.read() != "end":
    os.killpg(0, signal.SIGKILL)
"""
POLL = 0.05  # seconds
GRACE = 2.0  # seconds between asking a process to end and ending it


def launch(
    *command: Annotated[str, Parameter(allow_leading_hyphen=True)],
    processes: int = 2,
    restarts: int = 3,
    json_: Json = False,
) -> int:
    """Start a command several times as the processes of one run, and again if one is lost.

    Each process finds its number in its environment, where ergodax.distributed.start() looks for
    it. A process that is killed or fails ends the others, and all are started again; a program
    that samples with a Checkpoint(resume=True) then goes on where it was. Killed itself, it leaves
    no process behind. The processes find each other at 127.0.0.1, where nobody else can reach them.

    Exit status: that of the command, 128 + n if signal n ended it, 2 wrong use.

    Example: ergodax launch --processes 2 -- python model.py

    Parameters
    ----------
    command
        The command and its arguments, after --.
    processes
        How many.
    restarts
        How often to start again before giving up.
    json_
        Print how the processes ended as JSON; what they print goes to standard error.
    """
    if not command:
        raise ValueError("no command: try ergodax launch --processes 2 -- python model.py")
    if processes < 1 or restarts < 0:
        raise ValueError(
            f"processes={processes} must be positive, restarts={restarts} not negative."
        )
    console = Console(stderr=True)
    failures, attempt, status = [], 0, 0
    for attempt in range(restarts + 1):
        which, status, stopped = _run_once(list(command), processes, 2 if json_ else None)
        status = 128 - status if status < 0 else status
        if status:
            failures.append({"process": which, "status": status})
        if stopped or not status or attempt == restarts:
            break
        console.print(
            f"process {which} of {processes} ended with status {status}; starting all again "
            f"({attempt + 1} of {restarts})",
            highlight=False,
        )
    if json_:
        told = {"status": status, "processes": processes, "starts": attempt + 1}
        tell_json(told | {"failures": failures})
    return status


def _run_once(command: list[str], processes: int, output: int | None) -> tuple[int, int, bool]:
    """The first process that failed, its status (0: none did), and whether we were told to stop."""
    address = f"127.0.0.1:{_free_port()}"
    running: list[subprocess.Popen[bytes]] = []
    with _noted() as came, _guard() as guard:
        try:
            for number in range(processes):
                own = {
                    "ERGODAX_COORDINATOR": address,
                    "ERGODAX_PROCESSES": str(processes),
                    "ERGODAX_PROCESS_ID": str(number),
                }
                running.append(_member(guard, command, os.environ | own, output))
            which, status = _watch(running, came)
            return which, status, bool(came)
        finally:
            _end(running)


@contextlib.contextmanager
def _guard() -> Generator[subprocess.Popen[bytes]]:
    """Another process, which outlives this one if it is killed, and then kills its group."""
    command = [sys.executable, "-S", "-c", GUARD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, process_group=0) as one:
        assert one.stdin is not None
        yield one
        with contextlib.suppress(BrokenPipeError):  # where it has been killed: all have ended
            os.write(one.stdin.fileno(), b"end")  # not by the file, which would try again


def _member(
    guard: subprocess.Popen[bytes],
    command: list[str],
    environment: dict[str, str],
    output: int | None,
) -> subprocess.Popen[bytes]:
    """Start a process in the guard's group, from its first moment on.

    Ctrl-C reaches it once, through us: it is for the group at the terminal, which is ours.
    """
    try:
        return subprocess.Popen(command, env=environment, process_group=guard.pid, stdout=output)
    except OSError:
        if guard.poll() is None:
            raise  # of the command
        raise ChildProcessError(
            f"process {guard.pid}, which would end the others if this one were killed, has itself "
            "been killed, so none was left running. Start again."
        ) from None


@contextlib.contextmanager
def _noted() -> Generator[list[int]]:
    """While active, signals to stop are noted in a list."""
    came: list[int] = []
    both = signal.SIGINT, signal.SIGTERM
    before = {one: signal.signal(one, lambda number, _: came.append(number)) for one in both}
    try:
        yield came
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _watch(running: list[subprocess.Popen[bytes]], came: list[int]) -> tuple[int, int]:
    """Wait until one fails or all end; told to stop, they end of themselves, after one chunk."""
    handed_on = 0
    while True:
        for number in came[handed_on:]:
            handed_on += 1
            for process in running:
                process.send_signal(number)  # to one that has ended it sends none
        ended = [process.poll() for process in running]
        failed = [(k, status) for k, status in enumerate(ended) if status]
        if None not in ended or (failed and not came):
            return failed[0] if failed else (0, 0)
        time.sleep(POLL)


def _end(running: list[subprocess.Popen[bytes]]) -> None:
    for process in running:
        if process.poll() is None:
            process.terminate()
    until = time.monotonic() + GRACE
    for process in running:
        try:
            process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]
