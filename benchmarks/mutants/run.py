"""Mutants one after the other: applied to a copy of the package, tested in a process of its own.

The libraries are imported once, the package is not: each call of pytest is a fork that imports it
from the copy. The checks of shapes in signatures are off, which saves a third of the time, and may
let a mutant survive that they would have noticed, never the reverse.

A few tests that come to the mutant's line run first: new ones, those that killed others of its
file, the quickest. Where these pass, all the tests of every file of which one test comes to the
line, and then tests of any other file that come to it, the quickest first.
"""

import contextlib
import json
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.mutants.lines import Book, Recorder
from benchmarks.mutants.mutant import ROOT, Mutant
from benchmarks.mutants.places import arguments, files

SLOWER = 4  # times as long as without a mutant, and half a minute: a loop without end is found out
LONGEST = 600  # CPU seconds of a file of tests with nothing changed
FIRST = 12  # tests that run first, at most,
FEW_SECONDS = 10.0  # and for how long
MANY_SECONDS = 8.0  # of the tests of other files, which run last
# Not BlackJAX: its import starts the threads of JAX, and a fork has none of them.
LIBRARIES = (
    *("numpy", "scipy.stats", "scipy.optimize", "scipy.linalg", "scipy.integrate", "pandas", "jax"),
    *("jax.numpy", "jax.scipy.stats", "equinox", "optax", "jaxtyping", "beartype"),
    *("arviz_base", "arviz_stats", "rich.progress", "zarr", "filelock", "pytest"),
)


NONE = 5  # status of pytest where all tests of a file are slow
UNNAMED = 4  # status of pytest where what was named isn't found
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


def _call(
    source: Path, options: list[str], log: Path, limit: float, plugins: Callable[[], list] = list
) -> tuple[int, float]:
    """Exit status of pytest in a fork, negative for a signal, and its CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of JAX about forks: it has no threads yet
        child = os.fork()
    if child == 0:
        status = 70
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (int(limit), int(limit)))
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for number in (1, 2):
                os.dup2(output, number)
            sys.path.insert(0, str(source))
            os.environ["PYTHONPATH"] = str(source)
            import jaxtyping
            import pytest

            jaxtyping.install_import_hook = lambda *names: None
            fixed = ["-x", "-q", "-m", "not slow", "--tb=line", *QUIET]
            status = int(pytest.main([*fixed, *options], plugins=plugins()))
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


def tested(
    source: Path,
    options: list[str],
    limit: float = LONGEST,
    plugins: Callable[[], list] = list,
) -> Outcome:
    """What one call of pytest says of the package in this copy, in so many CPU seconds.

    Raises:
        RuntimeError: pytest has found no test, or was called wrongly.
    """
    log = source.parent / "log.txt"
    status, seconds = _call(source, options, log, limit, plugins)
    text = log.read_text(encoding="utf-8", errors="replace")
    if status == NONE and plugins is not list:
        return Outcome("survived", "", seconds)
    # 1: a test has failed; 2: a file can't be imported; 4: so too, and a test of it was named.
    if status > 2 and not (status == UNNAMED and "ERROR collecting" in text):
        raise RuntimeError(f"pytest {' '.join(options)} ended with {status}:\n{text[-2000:]}")
    if status < 0 and seconds > limit - 5:
        return Outcome("too long", "", seconds)
    if status:
        failed = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", text, re.MULTILINE)
        return Outcome("killed", failed[0] if failed else "the import", seconds)
    return Outcome("survived", "", seconds)


def recorded(source: Path, test: str, book: Book) -> Outcome:
    """Run the tests of a file with nothing changed, and write down the lines they come to."""
    place = source.parent / "lines.json"
    place.unlink(missing_ok=True)
    found = tested(source, *arguments((test,)), plugins=lambda: [Recorder(source, place)])
    if found.verdict == "survived":
        book.add(test, json.loads(place.read_text(encoding="utf-8")))
    return found


def outcome(source: Path, mutant: Mutant, book: Book, killers: Mapping[str, int]) -> Outcome:
    """Of one mutant; the copy is afterwards as it was.

    Args:
        source: the copy.
        mutant: the change.
        book: the lines of all tests named for the file.
        killers: how many mutants of the file each test has killed.
    """
    path = source / "ergodax" / mutant.file
    text = path.read_text(encoding="utf-8")
    try:
        changed, line = mutant.applied(text), mutant.line(text)
    except LookupError:
        return Outcome("stale", "", 0.0)
    _forget(path)
    path.write_text(changed, encoding="utf-8")
    spent = 0.0
    try:
        for options, expected in calls(mutant.file, line, book, killers):
            found = tested(source, options, 30.0 + SLOWER * expected)
            spent += found.seconds
            if found.verdict != "survived":
                return found._replace(seconds=spent)
        return Outcome("survived", "", spent)
    finally:
        path.write_text(text, encoding="utf-8")
        _forget(path)


def calls(
    file: str, line: int, book: Book, killers: Mapping[str, int]
) -> Iterator[tuple[list[str], float]]:
    """What pytest is called with, one call after the other, and how long each takes."""
    tests = files()[file][1]
    near = {test: book.covering(test, file, line) for test in tests}
    seconds = {name: took for each in near.values() for name, took in each.items()}
    first, together = [], 0.0
    fresh = {name for test in tests for name in book.fresh(test)}
    for name in sorted(seconds, key=lambda n: (n not in fresh, -killers.get(n, 0), seconds[n])):
        if len(first) < FIRST and (not first or together + seconds[name] < FEW_SECONDS):
            first.append(name)
            together += seconds[name]
    if first:
        yield first, together
    # A line that no test is seen to come to may be part of a longer statement.
    whole = tuple(test for test in tests if near[test] or not seconds)
    for options in arguments(whole):
        yield options, sum(book.seconds(test) for test in whole)
    far: dict[str, float] = {}
    for test in book.kept.keys() - set(tests):
        far |= book.covering(test, file, line)
    ranked = sorted(far, key=lambda name: (far[name], name))
    together = np.cumsum([far[name] for name in ranked])
    last = ranked[: int(np.searchsorted(together, MANY_SECONDS))]
    if last:
        yield last, float(together[len(last) - 1])
