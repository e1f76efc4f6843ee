"""`init(key, position)` makes a State, `step(key, state)` the next one and an Info."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from conformance.positions import tree_positions
from conformance.registry import KERNELS, H
from conformance.run import two_steps


@pytest.mark.parametrize("name", KERNELS)
def test_signature(name):
    kernel = KERNELS[name](H)
    assert isinstance(kernel, ex.Kernel)
    assert list(inspect.signature(kernel.init).parameters) == ["key", "position"]
    assert list(inspect.signature(kernel.step).parameters) == ["key", "state", "batch"]
    public = {name for name in dir(type(kernel)) if not name.startswith("_")}
    methods = {name for name in public if callable(getattr(type(kernel), name))}
    assert methods == {"init", "step"}, "a kernel is these two methods and nothing else"


@pytest.mark.parametrize("name", KERNELS)
def test_state_and_info(name, key):
    state, info, _ = two_steps(KERNELS[name](H), key, tree_positions()["dict"])
    assert isinstance(state, ex.State) and isinstance(info, ex.Info)
    assert int(state.step) == 2
    for field, value in vars(info).items():
        assert value is None or (isinstance(value, jax.Array) and value.shape == ()), field
    assert bool(info.finite)
    assert int(info.evaluations) > 0
    assert 0.0 < float(info.step_size) <= H + 1e-6
    has_momentum = "momentum" in state.auxiliary or "hmc" in name
    assert (info.kinetic_temperature is not None) == has_momentum


@pytest.mark.parametrize("name", KERNELS)
def test_chains_from_one_start_part_and_the_same_key_repeats(name):
    kernel, start = KERNELS[name](H), tree_positions()["vector"]
    _, _, one = two_steps(kernel, jax.random.key(1), start)
    _, _, two = two_steps(kernel, jax.random.key(2), start)
    _, _, again = two_steps(kernel, jax.random.key(1), start)
    assert (one != two).all(), "every coordinate has noise of its own"
    np.testing.assert_array_equal(one, again)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", KERNELS)
def test_the_dtype_of_the_position_is_kept(name, dtype, key, x64):
    """Also single precision where double is on: step sizes and masses must not promote it."""
    kernel, start = KERNELS[name](H), tree_positions(jnp.dtype(dtype))["dict"]
    state, _, _ = two_steps(kernel, key, start)
    moving = (state.position, state.auxiliary, state.estimate and state.estimate.gradient)
    assert {leaf.dtype.name for leaf in jax.tree.leaves(moving)} == {dtype}
