"""Conditions under `vmap`: computed only where a chain needs it, and each chain by its own flag."""

from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ergodax import control_flow
from ergodax.control_flow import when

VALUES = jnp.arange(4.0)


def doubled(flag, x):
    return when(flag, lambda: {"x": 2.0 * x}, lambda: {"x": x})["x"]


@pytest.mark.parametrize("flags", [[0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 0, 1]])
@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit])
def test_each_chain_has_what_its_own_flag_says(flags, wrap):
    flags = jnp.array(flags, bool)
    expected = np.where(flags, 2.0 * VALUES, VALUES)
    np.testing.assert_array_equal(wrap(jax.vmap(doubled))(flags, VALUES), expected)
    alone = [wrap(doubled)(flag, x) for flag, x in zip(flags, VALUES, strict=True)]
    np.testing.assert_array_equal(alone, expected)
    nested = wrap(jax.vmap(jax.vmap(doubled)))(flags.reshape(2, 2), VALUES.reshape(2, 2))
    np.testing.assert_array_equal(nested.ravel(), expected)


def test_nothing_is_computed_where_no_flag_is_raised():
    seen = []

    def counted(flag, x):
        def fresh():
            jax.debug.callback(seen.append, x)
            return x

        return when(flag, fresh, lambda: x)

    for flags, times in (([0, 0], 0), ([0, 1], 2)):
        jax.vmap(counted)(jnp.array(flags, bool), VALUES[:2])
        jax.effects_barrier()
        assert len(seen) == times


def test_a_plain_condition_computes_both_branches():
    def has_condition() -> bool:
        return "cond[" in str(jax.make_jaxpr(jax.vmap(doubled))(VALUES > 1.0, VALUES))

    assert has_condition()
    with mock.patch.object(control_flow, "_in_any_chain", lambda flag: flag):
        assert not has_condition()


def test_what_a_chain_makes_of_the_fresh_result():
    """A cheaper way to kept(): it is not computed where some chain needs fresh()."""
    seen = []

    def one(flag, x):
        def kept():
            jax.debug.callback(seen.append, x)
            return x

        return when(flag, lambda: 2.0 * x, kept, lambda new: 0.5 * new)

    flags = jnp.array([False, True])
    np.testing.assert_array_equal(jax.vmap(one)(flags, VALUES[1:3]), [1.0, 4.0])
    jax.effects_barrier()
    assert not seen
