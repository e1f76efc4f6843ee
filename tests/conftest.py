"""A hostile setting for every test: shapes checked, no silent promotion, warnings are errors."""

import os

os.environ.setdefault("NPROC", "1")  # one XLA thread a worker: xdist has the other cores

from jaxtyping import install_import_hook

install_import_hook("ergodax", "beartype.beartype")

import jax  # noqa: E402
import pytest  # noqa: E402

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")


@pytest.fixture(autouse=True, scope="module")
def programs_of_one_module():
    """Thousands of compiled programs in one process exhaust its memory maps and kill it."""
    yield
    jax.clear_caches()


@pytest.fixture
def x64():
    """Double precision for tests of numerics."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def key():
    return jax.random.key(20261121)
