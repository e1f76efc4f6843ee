"""`freeze` makes a position of arrays only; `thaw` gives the rest back."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax import tree


class Pair(NamedTuple):
    left: object
    right: object


POSITIONS = {
    "number": 1.5,
    "numpy": np.arange(3.0),
    "dict with a flag and a name": {"x": jnp.ones(2), "flag": True, "name": "relu"},
    "named tuple with None": Pair(jnp.ones(2), None),
    "network": eqx.nn.MLP(2, 1, 3, 1, key=jax.random.key(0)),
}


@pytest.mark.parametrize("kind", POSITIONS)
def test_there_and_back(kind):
    position = POSITIONS[kind]
    frozen = tree.freeze(position)
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(frozen))
    back = tree.thaw(frozen)
    assert jax.tree.structure(back) == jax.tree.structure(position)
    for ours, theirs in zip(jax.tree.leaves(back), jax.tree.leaves(position), strict=True):
        assert ours is theirs or np.array_equal(ours, theirs)


def test_freezing_twice_changes_nothing():
    once = tree.freeze(POSITIONS["network"])
    assert jax.tree.structure(tree.freeze(once)) == jax.tree.structure(once)


def test_a_thawed_network_computes():
    network = POSITIONS["network"]
    frozen = tree.freeze(network)
    x = jnp.ones(2)
    np.testing.assert_array_equal(tree.thaw(frozen)(x), network(x))
    gradient = jax.grad(lambda p: jnp.sum(tree.thaw(p)(x)))(frozen)
    assert jax.tree.structure(gradient) == jax.tree.structure(frozen)


@pytest.mark.parametrize("value", [3, np.arange(3), jnp.array([True]), 1j, jax.random.key(0)])
def test_what_has_no_gradient_is_refused_by_its_path(value):
    with pytest.raises(TypeError, match=r"position\['layer'\]\[1\].*must be floating point"):
        tree.freeze({"layer": [jnp.ones(1), value]})


@pytest.mark.parametrize("empty", [{}, (), None, {"activation": jnp.tanh}])
def test_nothing_to_sample(empty):
    with pytest.raises(ValueError, match="start holds no floating-point array"):
        tree.freeze(empty, "start")


def test_static_leaves_compare_by_value():
    one, two = (tree.freeze({"x": 1.0, "f": name}) for name in ("a", "b"))
    assert jax.tree.structure(one) != jax.tree.structure(two)


def test_a_weak_type_is_made_a_full_one():
    """It is lost in the first step, and a chunk of each type would be a program of its own."""
    weak = jnp.full(2, 0.0)
    assert weak.weak_type
    assert not tree.freeze({"w": weak})["w"].weak_type


def aligned(size):
    """Zeros at an address from which JAX may go on to use them."""
    held = np.zeros(size + 64, np.float32)
    first = (-held.ctypes.data // 4) % 16
    return held[first : first + size]


def test_what_is_written_into_numpy_arrays_later_is_not_seen(key):
    given = aligned(1024)
    shared = np.asarray(jnp.asarray(given, jnp.float32))
    assert np.shares_memory(shared, given), "else this would see nothing"
    frozen = tree.freeze({"w": given})
    model = ex.Posterior(jnp.sum, lambda w, x: -0.5 * jnp.sum((x - w) ** 2), jnp.ones((50, 1024)))
    gradient = ex.ControlVariate(model, 10, given)
    state = ex.sgld(gradient, 1e-3).init(key, given)
    given[:] = 5.0
    for seen in (frozen["w"], gradient.expansion.centre, state.position):
        np.testing.assert_array_equal(seen, 0.0)
