"""Kernels under JAX's own transformations, where one kernel says enough."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from conformance.positions import minibatch, tree_positions
from conformance.registry import H
from conformance.run import numbers, untyped
from ergodax.gradient.saga import PASSES


def stacked(*trees):
    return jax.tree.map(lambda *x: jnp.stack(x), *trees)


def check_mapped(step, states, keys, tolerance=1e-5):
    """Chains mapped together are each what they are alone."""
    together = jax.vmap(step)(stacked(*keys), stacked(*states))
    for chain, (key, state) in enumerate(zip(keys, states, strict=True)):
        alone = step(key, state)
        one = jax.tree.map(lambda x, c=chain: x[c], together)
        assert jax.tree.structure(alone) == jax.tree.structure(one)
        np.testing.assert_allclose(numbers(one), numbers(alone), rtol=tolerance, atol=tolerance)


@pytest.mark.slow
def test_saga_sums_its_table_anew_in_any_phase(key):
    estimator = ex.SAGA(minibatch().target, 4)
    kernel = ex.sgld(estimator, H)
    early = kernel.init(key, tree_positions()["dict"])
    every = PASSES * -(-estimator.target.num_data // 4)
    table = jax.tree.map(lambda x: x + 1.0, early.gradient.sum)  # so that the new sum shows
    early = eqx.tree_at(lambda s: s.gradient.sum, early, table)
    late = eqx.tree_at(lambda s: s.gradient.step, early, jnp.int32(every - 1))
    keys = jax.random.split(key)
    check_mapped(kernel.step, (early, late), keys)
    sums = [
        kernel.step(k, s)[0].gradient.sum.value for k, s in zip(keys, (early, late), strict=True)
    ]
    assert abs(float(sums[0] - sums[1])) > 0.5, "one is due, the other is not"


def test_a_kernel_is_told_apart_by_identity():
    kernel, other = untyped(ex.sgld(minibatch(), H)), untyped(ex.sgld(minibatch(), H))
    assert kernel.step == kernel.step and hash(kernel.step) == hash(kernel.step)
    assert kernel.step != kernel.init and kernel.step != other.step and kernel != other
    assert len({kernel, other, kernel}) == 2


def test_compiled_inside_a_program_that_is_given_the_kernel(key):
    """Where its leaves are traced, they can't be compared."""
    kernel = ex.sgld(minibatch(), H)
    state = kernel.init(key, tree_positions()["vector"])

    @eqx.filter_jit
    def two(kernel, key, state):
        first, second = jax.random.split(key)
        state, _ = jax.jit(kernel.step)(first, state)
        return jax.jit(kernel.step)(second, state)[0]

    first, second = jax.random.split(key)
    expected = kernel.step(second, kernel.step(first, state)[0])[0]
    np.testing.assert_allclose(numbers(two(kernel, key, state)), numbers(expected), rtol=1e-5)


FIRST = {
    "SAGA": lambda: ex.sgld(ex.SAGA(minibatch().target, 4), H),
    "shampoo": lambda: ex.shampoo_sgld(minibatch(), H),
    "accumulate": lambda: ex.online.accumulate(
        ex.sgld(minibatch(), H), moments=ex.online.Moments()
    ),
    "hmc": lambda: ex.hmc(minibatch().target, H),
}


@pytest.mark.parametrize("name", FIRST)
def test_a_first_state_can_be_donated(name, key):
    """No buffer of it is there twice, and none is the caller's own."""
    kernel, position = FIRST[name](), tree_positions()["dict"]
    state = kernel.init(key, position)
    expected = kernel.step(key, state)
    found = jax.jit(kernel.step, donate_argnums=1)(key, state)
    np.testing.assert_allclose(numbers(found), numbers(expected), rtol=1e-4, atol=1e-5)
    assert jax.tree.leaves(state.position)[0].is_deleted()
    assert not any(x.is_deleted() for x in jax.tree.leaves((kernel, position)) if eqx.is_array(x))
