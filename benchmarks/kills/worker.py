"""A process that starts copies of itself, which run, and are killed: `python -m` this module.

It has imported everything but used nothing of it, so that a copy begins to sample at once. For
each line on standard input it forks one, and says on standard output `begun` and its number, and at
its end `ended` and its status. A copy that stops in a write says `in` and where.
"""

import os
import selectors
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import jax
import pandas  # noqa: F401  these are imported here so that the copies need not
import pyarrow.parquet  # noqa: F401
import zarr  # noqa: F401

import ergodax as ex
from benchmarks.kills import runs
from benchmarks.kills.kinds import KINDS
from benchmarks.kills.stops import Stop
from ergodax.learn import topics  # noqa: F401

FINISHED, FAILED, REFUSED = 0, 1, 3  # how a copy ends
PATIENCE = 120.0  # seconds, after which a run hangs


def serve(kind: str, data: Path, folder: Path) -> None:
    """Fork a run whenever asked; a line has the operation to stop in, and a seed, or nothing."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _live(kind, data, folder, line.split())
        _say(f"begun {child}")
        _, status = os.waitpid(child, 0)
        _say(f"ended {os.waitstatus_to_exitcode(status)}")


def _say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def _live(kind: str, data: Path, folder: Path, stop: list[str]) -> None:
    """The life of a copy: resume, run to the end, leave."""
    code = FAILED
    try:
        jax.config.update("jax_compilation_cache_dir", str(data / "programs"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        if stop:
            number, seed = map(int, stop)
            Stop(folder / runs.RUN, number, seed, lambda where: _say(f"in {where}"))
        KINDS[kind].go_on(data, folder)
        code = FINISHED
    except ex.CheckpointError as error:
        code = REFUSED
        print(error, file=sys.stderr)
    except Exception:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


class Worker:
    """The process whose copies are killed.

    Args:
        kind: which run.
        data: the folder of its data, and of the programs that were compiled.
        folder: of the run.
    """

    def __init__(self, kind: str, data: Path, folder: Path) -> None:
        for each in (data, folder):
            each.mkdir(parents=True, exist_ok=True)
        self.command = [sys.executable, "-m", __name__, kind, str(data), str(folder)]
        self.errors = folder.with_name(f"{folder.name}.errors")
        self.rest = b""

    def __enter__(self) -> "Worker":
        with open(self.errors, "ab") as errors:
            self.process: Any = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                cwd=runs.ROOT, bufsize=0,
            )  # fmt: skip
        return self

    def __exit__(self, *exception: object) -> None:
        self.process.kill()
        self.process.communicate()

    def begin(self, *stop: int) -> int:
        """Start a copy, which may be told to stop in a write; its number."""
        self.process.stdin.write(f"{' '.join(map(str, stop))}\n".encode())
        word, number = (self.line(PATIENCE) or "nothing").split()
        assert word == "begun", word
        return int(number)

    def line(self, seconds: float) -> str | None:
        """The next line that the worker or a copy says; None if there is none for so long."""
        end = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while b"\n" not in self.rest:
                left = end - time.monotonic()
                if left <= 0 or not selector.select(left):
                    return None
                more = os.read(self.process.stdout.fileno(), 4096)
                if not more:
                    raise RuntimeError(f"the process that is to be killed can't run:\n{self.said}")
                self.rest += more
        line, _, self.rest = self.rest.partition(b"\n")
        return line.decode()

    def kill(self, copy: int) -> int:
        """Kill a copy; how it ended, which it may have done before."""
        # The number is still its own: the worker, which says when it has ended, has not yet asked
        # for its end, or says so in the next line.
        try:
            os.kill(copy, signal.SIGKILL)
        except ProcessLookupError:
            pass
        return self.end(PATIENCE)

    def end(self, seconds: float) -> int:
        """How a copy ended.

        Raises:
            TimeoutError: it has not, after so long.
        """
        while (line := self.line(seconds)) is not None:
            if line.startswith("ended "):
                return int(line.split()[1])
        raise TimeoutError

    @property
    def said(self) -> str:
        """The last words of a copy that failed."""
        return self.errors.read_text(errors="replace")[-2000:].strip()


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
