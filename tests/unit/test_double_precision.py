"""Double precision for a while: no program is lost for it, and no constant is found wrong."""

import gc
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ergodax.tune.background import double_precision
from tests.unit.test_traced import compilations

INDEX, NUMBERS, TENTH = np.array([0, 2, 1]), np.array([0.1, 0.2, 0.3]), np.array(0.1)
MODELS = {
    "an index": lambda w: jnp.sum(w[INDEX] ** 3),
    "numbers": lambda w: jnp.sum(w * NUMBERS),
    "one number": lambda w: jnp.sum(w * TENTH),
}
KEPT: list[Any] = []  # JAX keeps a constant no longer than the function that has it


def value(name: str, dtype: Any) -> Any:
    """Of a model in a function of its own, with the same constants."""
    KEPT.append(lambda w: MODELS[name](w))
    return np.asarray(jax.jit(KEPT[-1])(np.ones(3, dtype)))


@pytest.fixture(autouse=True)
def listed():
    """No constants at first, and objects that are listed, as in a user's process."""
    gc.unfreeze()
    KEPT.clear()
    gc.collect()
    yield
    gc.freeze()


@pytest.fixture
def mine():
    function = jax.jit(lambda x: x @ x)
    function(jnp.ones((7, 7)))
    return lambda: function(jnp.ones((7, 7)))


def test_programs_survive(mine):
    """All of the process were compiled again, the user's too."""
    with double_precision():
        inside = jax.jit(lambda x: 0.1 * x)(np.ones(3))
    assert inside.dtype == np.float64
    assert compilations(mine) == 0


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("single_first", [True, False])
def test_the_same_array_in_both_precisions(name, single_first):
    expected = MODELS[name](np.ones(3)) if name == "an index" else np.sum(0.1 * np.ones(3))
    expected = 0.1 + 0.2 + 0.3 if name == "numbers" else expected
    for _ in range(2):
        if single_first:
            assert value(name, np.float32).dtype == np.float32
        with double_precision():
            double = value(name, np.float64)
        assert double.dtype == np.float64
        np.testing.assert_allclose(double, expected, rtol=1e-15)
        assert value(name, np.float32).dtype == np.float32


def test_programs_are_lost_where_they_must_be(mine):
    """Else an index by a NumPy array fails afterwards."""
    with double_precision():
        value("an index", np.float64)
    assert compilations(mine) > 0


def test_programs_are_lost_where_none_can_tell(mine, monkeypatch):
    monkeypatch.setattr(weakref, "getweakrefcount", lambda x: 0)
    with double_precision():
        pass
    assert compilations(mine) > 0


def test_programs_are_lost_where_objects_are_not_listed(mine):
    gc.freeze()
    with double_precision():
        pass
    assert compilations(mine) > 0


def test_nothing_is_lost_where_it_is_double_already():
    with jax.enable_x64(True):
        function = jax.jit(lambda x: x @ x)
        function(jnp.ones((8, 8)))
        value("an index", np.float64)
        with double_precision():
            value("an index", np.float64)
        assert compilations(lambda: function(jnp.ones((8, 8)))) == 0
