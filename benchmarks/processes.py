"""Several processes of one run on this host, to be watched, killed and frozen."""

import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SECONDS = 120  # at which waiting is given up


def free_port() -> int:
    """A port of this host that nobody listens at.

    Raises:
        OSError: there are no sockets here.
    """
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def environment(**more: str) -> dict[str, str]:
    """Of a process with one CPU device and one thread to compute with."""
    return os.environ | {"JAX_PLATFORMS": "cpu", "NPROC": "1"} | more


class Processes:
    """A command started several times, as the processes of one run; all are gone after the `with`.

    Args:
        command: and its arguments.
        folder: for what they print, and for `found-NUMBER.json`, what each has found.
        count: how many.
    """

    def __init__(self, command: list[str], folder: Path, count: int = 2) -> None:
        self.folder, self.running = folder, []
        address = f"127.0.0.1:{free_port()}"
        for number in range(count):
            own = environment(
                ERGODAX_COORDINATOR=address,
                ERGODAX_PROCESSES=str(count),
                ERGODAX_PROCESS_ID=str(number),
            )
            with open(folder / f"output-{number}.txt", "w", encoding="utf-8") as output:
                self.running.append(
                    subprocess.Popen(command, env=own, stdout=output, stderr=subprocess.STDOUT)
                )

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *exception: object) -> None:
        for process in self.running:
            process.kill()
            process.wait()

    def output(self, number: int) -> str:
        """What one has printed."""
        return (self.folder / f"output-{number}.txt").read_text(encoding="utf-8")

    def found(self) -> list[Any]:
        """What all have found, when all have ended well.

        Raises:
            RuntimeError: one has not; with what it has printed.
        """
        for number, process in enumerate(self.running):
            if process.wait(SECONDS):
                raise RuntimeError(self.output(number))
        files = [self.folder / f"found-{k}.json" for k in range(len(self.running))]
        return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def wait_for(condition: Callable[[], Any], process: subprocess.Popen | None = None) -> None:
    """Return as soon as the condition holds.

    Args:
        condition: asked every hundredth of a second.
        process: that has to be running until then.

    Raises:
        RuntimeError: the process has ended, or it takes too long.
    """
    until = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > until or (process is not None and process.poll() is not None):
            raise RuntimeError("what was waited for has not come")
        time.sleep(0.01)


def child(launcher: int, number: int) -> int:
    """The process with this number that `ergodax launch` has started.

    Args:
        launcher: the process of `launch`.
        number: of the one that is looked for.

    Raises:
        RuntimeError: there is none.
    """
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = re.search(r"PPid:\t(\d+)", (entry / "status").read_text())
            own = (entry / "environ").read_bytes()
        except OSError:
            continue
        if parent and int(parent[1]) == launcher:
            if f"ERGODAX_PROCESS_ID={number}\0".encode() in own + b"\0":
                return int(entry.name)
    raise RuntimeError(f"{launcher} has no process {number}")
