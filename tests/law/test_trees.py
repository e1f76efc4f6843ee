"""A nested position and a flat vector of the same numbers: one law, to the last digit."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import ergodax as ex
from ergodax.verify import affine_step

from .problems import problem

pytestmark = pytest.mark.usefixtures("x64")

P = problem(10, "vector")
NESTED = {"weights": [np.ones((2, 3)), np.ones(())], "bias": (np.ones(2), {"scale": np.ones(1)})}

KERNELS = {
    "sgld": lambda g: ex.sgld(g, 0.05, temperature=2.0),
    "sgld compensated": lambda g: ex.sgld(g, 0.05, compensate=True),
    "sgld preconditioned": lambda g: ex.sgld(g, 0.05, preconditioner=jnp.asarray(P.mass)),
    "sghmc": lambda g: ex.sghmc(g, 0.1, mass=P.mass),
    "sghmc euler, dense mass": lambda g: ex.sghmc(g, 0.1, mass=P.precision, scheme="euler"),
    "sghmc compensated": lambda g: ex.sghmc(g, 0.05, compensate=True),
    "BAOAB": lambda g: ex.langevin(g, 0.3, mass=P.mass),
    "OBABO, dense mass": lambda g: ex.langevin(g, 0.3, mass=P.precision, scheme="OBABO"),
}


@pytest.mark.parametrize("name", KERNELS)
def test_nested_position_has_the_law_of_the_flat_one(name):
    flat, unravel = ravel_pytree(NESTED)
    vector = P.target

    def potential(nested):
        return vector.potential(ravel_pytree(nested)[0])

    v = jnp.asarray(P.modes.noise(P.s2))
    one = affine_step(KERNELS[name](ex.NoisyGradient(vector, v)), flat)
    other = affine_step(KERNELS[name](ex.NoisyGradient(ex.Target(potential), v)), NESTED)
    assert one.rows.keys() == other.rows.keys()
    for field in ("matrix", "noise", "shift"):
        np.testing.assert_allclose(getattr(one, field), getattr(other, field), atol=1e-13)
    wrong = np.roll(other.matrix, 1, axis=0)
    assert np.abs(one.matrix - wrong).max() > 1e-3  # the comparison can see an order of rows
