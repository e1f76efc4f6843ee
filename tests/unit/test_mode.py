"""The mode: what it cost."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex


@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_evaluations_are_those_that_were_made(scale):
    """Counted as the program runs; the second potential needs line searches of many steps."""
    count = [0]

    def add(_):
        count[0] += 1

    def potential(x):
        jax.debug.callback(add, x[0])
        return jnp.sum(jnp.cosh(x * jnp.array([1.0, 2.0, 0.5]))) + scale * (x[1] - x[0] ** 2) ** 2

    mode = ex.find_mode(ex.Target(potential), jnp.array([1.5, -1.0, 0.5]))
    jax.effects_barrier()
    assert bool(mode.converged)
    assert int(mode.evaluations) == count[0]
    assert count[0] > int(mode.iterations) + 1 or scale == 1.0
    np.testing.assert_allclose(mode.position, np.zeros(3), atol=1e-2)
