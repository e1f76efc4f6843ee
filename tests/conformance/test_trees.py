"""Any tree of arrays is a position, and gives the draws that the flat vector gives."""

import equinox as eqx
import jax
import numpy as np
import pytest

import ergodax as ex
from conformance.positions import START, tree_positions
from conformance.registry import KERNELS, H
from conformance.run import numbers, two_steps


@pytest.fixture(autouse=True)
def no_key_twice():
    """JAX's checker raises where a key is used a second time."""
    with jax.debug_key_reuse(True):
        yield


@pytest.mark.parametrize("name", KERNELS)
def test_every_tree_gives_the_draws_of_the_flat_vector(name):
    kernel, trees = KERNELS[name](H), tree_positions()
    _, info, vector = two_steps(kernel, jax.random.key(1), trees.pop("vector"))
    for kind, position in trees.items():
        state, again, rows = two_steps(kernel, jax.random.key(1), position)
        frozen = ex.tree.freeze(position)
        assert jax.tree.structure(state.position) == jax.tree.structure(frozen), kind
        np.testing.assert_allclose(rows, vector, rtol=2e-4, atol=2e-5, err_msg=kind)
        np.testing.assert_allclose(again.potential, info.potential, rtol=2e-4, err_msg=kind)
        # What is not an array comes back as it was, so the user's own functions still work.
        ours, theirs = (
            eqx.filter(tree, eqx.is_array, inverse=True)
            for tree in (ex.tree.thaw(state.position), position)
        )
        assert eqx.tree_equal(ours, theirs), kind


def test_the_positions_are_one_point():
    for kind, position in tree_positions().items():
        arrays = eqx.filter(position, eqx.is_array)
        np.testing.assert_array_equal(numbers(arrays), START.astype("f4"), err_msg=kind)


def test_the_checker_sees_a_key_used_twice():
    kernel = KERNELS["sgld"](H)

    class Careless:
        init = staticmethod(kernel.init)

        def step(self, key, state):
            state, info = kernel.step(key, state)
            noise = ex.normal_like(key, state.position)
            return eqx.tree_at(lambda s: s.position, state, noise), info

    with pytest.raises(jax.errors.KeyReuseError):
        two_steps(Careless(), jax.random.key(1), tree_positions()["vector"])
