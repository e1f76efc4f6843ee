"""A hostile setting for every test: shapes checked, no silent promotion, warnings are errors."""

import contextlib
import ctypes
import gc
import importlib
import os
import shutil
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ROOT / ".cache" / "programs"  # compiled ones, kept for the workers and for later runs
MOST_ON_DISK = 2 << 30  # bytes; beyond, a run begins with none

os.environ.setdefault("ERGODAX_CACHE", str(ROOT / ".cache"))  # nothing goes to the user's own
for threads in ("NPROC", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):  # of XLA, NumPy and SciPy
    os.environ.setdefault(threads, "1")  # one a worker: xdist has the other cores
if "PYTEST_XDIST_WORKER" not in os.environ:  # the workers and other processes inherit these
    sizes = [entry.stat().st_size for entry in os.scandir(PROGRAMS)] if PROGRAMS.exists() else []
    if sum(sizes) > MOST_ON_DISK:
        shutil.rmtree(PROGRAMS)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(PROGRAMS)
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"

import jaxtyping  # noqa: E402

# Tests of laws do not check types (below); `make test`, of laws alone, is spared the wrappers,
# which are half of what tracing takes.
if os.environ.get("TYPES", "1") != "0":
    # Beartype records warnings while it writes a check. The records are of the process, so of two
    # threads that do, one may leave the other's in place, where a test's warnings are lost.
    for writer in ("_decor._nontype._wrap._wrapargs", "_decor._nontype._wrap._wrapreturn"):
        module: Any = importlib.import_module(f"beartype.{writer}")
        module.catch_warnings = lambda record: contextlib.nullcontext(())
    jaxtyping.install_import_hook(["ergodax", "experiments", "gallery"], "beartype.beartype")

import jax  # noqa: E402
import pytest  # noqa: E402

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")


SLOW = ROOT / "tests" / "slow"
LONG_RUNS = {"law", "experiments"}  # folders whose slow tests sample long chains
MOST_MEMORY = 700  # MB of a worker, from which on compiled programs are let go
CLEARED = {"memory": 0}  # MB that were left when programs were last let go


def pytest_collection_finish():
    """What has been imported stays: the garbage collector need not look at it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def pytest_collection_modifyitems(config, items):
    """All of tests/slow is slow, and so are the examples in docstrings, which compile anew.

    With SHARE=k/n in the environment only every n-th file of slow tests is run, from number k on,
    but all examples, which any change of a rule may make untrue.
    """
    for item in items:
        if SLOW in item.path.parents or isinstance(item, pytest.DoctestItem):
            item.add_marker(pytest.mark.slow)
    number, _, shares = os.environ.get("SHARE", "0/1").partition("/")
    examples = [item for item in items if isinstance(item, pytest.DoctestItem)]
    rest = [item for item in items if not isinstance(item, pytest.DoctestItem)]
    slow = [item for item in rest if item.get_closest_marker("slow")]
    files = sorted({item.path for item in slow})
    left = set(files) - set(files[int(number) :: int(shares)])
    config.hook.pytest_deselected(items=[item for item in slow if item.path in left])
    fast = [item for item in rest if not item.get_closest_marker("slow")]
    items[:] = fast + [item for item in slow if item.path not in left] + examples


def samples_for_long(item) -> bool:
    """Whether a test runs for longer than it compiles."""
    return item.get_closest_marker("slow") is not None and item.path.parent.name in LONG_RUNS


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Programs that run for a moment are compiled without optimisation.

    Types are checked but in the tests of laws, which call over and over what the others check.
    """
    jax.config.update("jax_disable_most_optimizations", not samples_for_long(item))
    checked: Any = jaxtyping  # whose stubs do not name its settings
    checked.config.update("jaxtyping_disable", item.path.parent.name == "law")


def resident() -> int:
    """Memory of this process in MB; 0 where the system does not tell."""
    path = Path("/proc/self/statm")
    return int(path.read_text().split()[1]) * 4096 >> 20 if path.exists() else 0


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown():
    """Compiled programs are let go when they take too much memory.

    JAX keeps every program, about 5 MB a test, and each takes memory maps, of which Linux gives a
    process 65,530. The C library keeps what was freed unless it is told to give it back.
    """
    if resident() < max(MOST_MEMORY, CLEARED["memory"] + MOST_MEMORY // 4):
        return
    jax.clear_caches()
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    CLEARED["memory"] = resident()


@pytest.fixture
def x64():
    """Double precision for tests of numerics."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def key():
    return jax.random.key(20261121)
