"""A hostile setting for every test: shapes checked, no silent promotion, warnings are errors."""

import os
from pathlib import Path

os.environ.setdefault("NPROC", "1")  # one XLA thread a worker: xdist has the other cores

from jaxtyping import install_import_hook

install_import_hook("ergodax", "beartype.beartype")

import jax  # noqa: E402
import pytest  # noqa: E402

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")


MOST_MAPS = 25_000  # of the 65,530 memory maps that Linux gives a process
LONG_RUNS = {"law", "reproduction"}  # folders whose tests sample for longer than they compile


@pytest.fixture(autouse=True, scope="module")
def compilation(request):
    """Programs that run for a moment are compiled in haste, and dropped when they are too many.

    Each compiled program takes memory maps, and a process that runs out of them is killed.
    """
    haste = request.path.parent.name not in LONG_RUNS
    jax.config.update("jax_disable_most_optimizations", haste)
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
