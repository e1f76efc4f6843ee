"""What takes several programs a kernel: trees of every kind, chunks, operations one by one."""

import equinox as eqx
import jax
import numpy as np
import pytest

import ergodax as ex
from conformance.positions import tree_positions
from conformance.registry import KERNELS, H
from conformance.run import numbers, two_steps
from ergodax.driver.progress import Clock

BY_LEAF = "shampoo_sgld"  # its metric is of each leaf as a matrix, so that trees have other draws


@pytest.mark.parametrize("name", sorted(KERNELS.keys() - {BY_LEAF}))
def test_every_tree_gives_the_draws_of_the_flat_vector(name):
    kernel, trees = KERNELS[name](H), tree_positions()
    del trees["constrained"]  # of another density
    _, info, vector = two_steps(kernel, jax.random.key(1), trees.pop("vector"))
    for kind, position in trees.items():
        _, again, rows = two_steps(kernel, jax.random.key(1), position)
        np.testing.assert_allclose(rows, vector, rtol=2e-4, atol=2e-5, err_msg=kind)
        np.testing.assert_allclose(again.potential, info.potential, rtol=2e-4, err_msg=kind)


def test_other_draws_of_a_tree_are_seen():
    kernel, trees = KERNELS[BY_LEAF](H), tree_positions()
    (_, _, vector), (_, _, rows) = (
        two_steps(kernel, jax.random.key(1), trees[kind]) for kind in ("vector", "dict")
    )
    assert not np.allclose(rows, vector, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", KERNELS)
def test_one_program_serves_every_step_and_every_step_size(name, key):
    traces = []

    @eqx.filter_jit
    def step(kernel, key, state):
        traces.append(1)
        return kernel.step(key, state)

    keys = jax.random.split(key, 4)
    kernel = KERNELS[name](H)
    start = kernel.init(keys[0], tree_positions()["dict"])
    one, _ = step(kernel, keys[1], start)
    by_hand, _ = kernel.step(keys[1], start)
    np.testing.assert_allclose(
        numbers(one.position), numbers(by_hand.position), rtol=1e-5, atol=1e-6
    )
    step(kernel, keys[2], one)
    assert len(traces) == 1, "the second step was compiled anew: its state has another type"
    if name != "optax schedule":  # a closure that optax makes anew each time
        step(KERNELS[name](H / 2), keys[3], one)
        assert len(traces) == 1, "another step size was compiled anew"


@pytest.mark.parametrize("name", KERNELS)
def test_the_draws_do_not_depend_on_the_chunks(name, key, x64, monkeypatch):
    kernel, start = KERNELS[name](H), tree_positions("float64")["vector"]
    whole = ex.sample(kernel, start, 5, key=key, num_chains=2)
    monkeypatch.setattr(Clock, "steps", lambda self: 2)
    pieces = ex.sample(kernel, start, 5, key=key, num_chains=2)
    jax.tree.map(np.testing.assert_array_equal, whole, pieces)
    assert whole.position.dtype == np.float64 and whole.position.shape == (2, 5, 5)
    parted = whole.position[0] != whole.position[1]
    # On a lattice they meet, and where the gradient is steep no coin is left to chance.
    assert "lattice" in name or parted.all(), "two chains are two"
