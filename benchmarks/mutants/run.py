"""Mutants one after the other: applied to a copy of the package, tested in a process of its own.

The libraries are imported once, the package is not: each call of pytest is a fork that imports it
from the copy. The checks of shapes in signatures are off, which saves a third of the time, and may
let a mutant survive that they would have noticed, never the reverse.
"""

import contextlib
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.mutants.mutant import ROOT, Mutant
from benchmarks.mutants.places import arguments, files

SECONDS = 240  # of CPU time for one call of pytest: a loop without end is found out
# Not BlackJAX: its import starts the threads of JAX, and a fork has none of them.
LIBRARIES = (
    *("numpy", "scipy.stats", "scipy.optimize", "scipy.linalg", "scipy.integrate", "pandas", "jax"),
    *("jax.numpy", "jax.scipy.stats", "equinox", "optax", "jaxtyping", "beartype"),
    *("arviz_base", "arviz_stats", "rich.progress", "zarr", "filelock", "pytest"),
)


QUIET = ("-W", "ignore::pytest.PytestAssertRewriteWarning")  # plugins are libraries too


class Outcome(NamedTuple):
    """What became of a mutant.

    Attributes:
        verdict: killed, survived, too long, or stale where its line isn't in the file.
        by: the test that failed first, "" where none did.
        seconds: of CPU time.
    """

    verdict: str
    by: str
    seconds: float


def prepare(cache: Path) -> None:
    """Import the libraries as tests/conftest.py would have them; to be called once, early."""
    os.chdir(ROOT)
    os.environ["ERGODAX_CACHE"] = str(cache)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(ROOT / ".cache" / "programs")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    for threads in ("NPROC", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ[threads] = "1"
    for name in LIBRARIES:
        with contextlib.suppress(ImportError):
            __import__(name)


@contextlib.contextmanager
def copied() -> Iterator[Path]:
    """A copy of src that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        yield Path(shutil.copytree(ROOT / "src", Path(folder) / "src"))


def _forget(path: Path) -> None:
    """Let go of the compiled file: its time and length may be those of the one before."""
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()


def _call(source: Path, options: list[str], log: Path) -> tuple[int, float]:
    """Exit status of pytest in a fork, negative for a signal, and its CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of JAX about forks: it has no threads yet
        child = os.fork()
    if child == 0:
        status = 70
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for number in (1, 2):
                os.dup2(output, number)
            sys.path.insert(0, str(source))
            os.environ["PYTHONPATH"] = str(source)
            import jaxtyping
            import pytest

            jaxtyping.install_import_hook = lambda *names: None
            status = int(pytest.main(["-x", "-q", "-m", "not slow", "--tb=line", *QUIET, *options]))
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(status)
    try:
        _, ended = os.waitpid(child, 0)
    except BaseException:
        os.kill(child, signal.SIGKILL)
        raise
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return os.waitstatus_to_exitcode(ended), seconds


def tested(source: Path, tests: tuple[str, ...]) -> Outcome:
    """What the tests say of the package in this copy.

    Raises:
        RuntimeError: pytest has found no test, or was called wrongly.
    """
    log, spent = source.parent / "log.txt", 0.0
    for options in arguments(tests):
        status, seconds = _call(source, options, log)
        spent += seconds
        text = log.read_text(encoding="utf-8", errors="replace")
        if status > 2:  # 1: a test has failed; 2: the package can't be imported
            raise RuntimeError(f"pytest {' '.join(options)} ended with {status}:\n{text[-2000:]}")
        if status < 0 and seconds > SECONDS - 5:
            return Outcome("too long", "", spent)
        if status:
            failed = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", text, re.MULTILINE)
            return Outcome("killed", failed[0] if failed else "the import", spent)
    return Outcome("survived", "", spent)


def outcome(source: Path, mutant: Mutant) -> Outcome:
    """Of one mutant; the copy is afterwards as it was."""
    path = source / "ergodax" / mutant.file
    text = path.read_text(encoding="utf-8")
    try:
        changed = mutant.applied(text)
    except LookupError:
        return Outcome("stale", "", 0.0)
    _forget(path)
    path.write_text(changed, encoding="utf-8")
    try:
        return tested(source, files()[mutant.file][1])
    finally:
        path.write_text(text, encoding="utf-8")
        _forget(path)
