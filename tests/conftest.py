"""A hostile setting for every test: shapes checked, no silent promotion, warnings are errors."""

import gc
import os
import tempfile
from pathlib import Path

for threads in ("NPROC", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):  # of XLA, NumPy and SciPy
    os.environ.setdefault(threads, "1")  # one a worker: xdist has the other cores
if "PYTEST_XDIST_WORKER" not in os.environ:
    # A program that one test compiled is there for the others, and for the workers and other
    # processes that inherit these variables; the folder is empty at first and goes at the end.
    PROGRAMS = tempfile.TemporaryDirectory(prefix="programs", ignore_cleanup_errors=True)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = PROGRAMS.name
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"

from jaxtyping import install_import_hook  # noqa: E402

install_import_hook(["ergodax", "experiments"], "beartype.beartype")

import jax  # noqa: E402
import pytest  # noqa: E402

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")


MOST_MAPS = 25_000  # of the 65,530 memory maps that Linux gives a process


def pytest_collection_finish():
    """What has been imported stays: the garbage collector need not look at it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def samples_for_long(item) -> bool:
    """Whether a test runs for longer than it compiles: those marked `law` do."""
    if item.path.parent.parts[-2:] == ("slow", "experiments"):
        return True
    return item.path.parent.name == "law" and item.get_closest_marker("law") is not None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Programs that run for a moment are compiled in haste."""
    jax.config.update("jax_disable_most_optimizations", not samples_for_long(item))


@pytest.fixture(autouse=True, scope="module")
def compilation():
    """Programs are dropped when they are too many.

    Each takes memory maps, and a process that runs out of them is killed.
    """
    yield
    maps = Path("/proc/self/maps")
    if not maps.exists() or len(maps.read_bytes().splitlines()) > MOST_MAPS:
        jax.clear_caches()


@pytest.fixture
def x64():
    """Double precision for tests of numerics."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def key():
    return jax.random.key(20261121)
