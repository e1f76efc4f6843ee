"""A momentum driven through a dense factor L(x) that is not symmetric, in two dimensions.

D = diag(0, 1), Q[r, x] = L^T: what a symmetric or one-dimensional metric cannot show, the
transpose and the order of indices in Gamma, decides here. Numbers compared: 5.
"""

import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex

from . import faults, sampled
from .test_position_dependent import PAIRS, PLANE, moments, tilted

pytestmark = pytest.mark.slow

T, H = 1.5, 0.05
EXPECTED = moments(lambda x, y: np.exp(-tilted(x, y) / T), PLANE, PAIRS)
SCALE = np.array([EXPECTED[0], 1.0, EXPECTED[2], EXPECTED[3]])


def factor(position):
    x, y = position
    return jnp.stack(
        [
            jnp.stack([1.2 + 0.6 * jnp.tanh(x), 0.9 * jnp.tanh(y)]),
            jnp.stack([-0.3 * jnp.cos(x), 1.0 + 0.5 * jnp.tanh(y)]),
        ]
    )


RECIPE = ex.Recipe(
    auxiliary=lambda key, x: {"momentum": ex.tree.normal_like(key, x)},
    energy=lambda z: 0.5 * ex.tree.dot(z["momentum"], z["momentum"]),
    diffusion=lambda z: {"momentum": ex.Scalar(1.0)},
    curl=lambda z: {("momentum", "position"): ex.Dense(factor(z["position"]).T)},
)


def kernel():
    gradient = ex.FullGradient(ex.Target(lambda p: tilted(p[0], p[1])))
    return ex.euler_maruyama(RECIPE, gradient, H, temperature=T, semi_implicit=True)


def assert_moments(kernel, key):
    """The bias of Euler's scheme at this step is below the resolution."""
    draws = sampled.run(kernel, np.zeros(2, np.float32), 15_000, key)
    x, y = draws[..., 0], draws[..., 1]
    sampled.assert_mean(np.stack([f(x, y) for f in PAIRS], -1) / SCALE, EXPECTED / SCALE, 0.15)
    sampled.assert_mean(y, 0.0, 0.08)


def test_dense_factor_samples_the_target(key):
    assert_moments(kernel(), key)


FAULTS = {
    "no Gamma": faults.GAMMA_DROPPED,
    "no transpose": faults.replacing(ex.Dense, "transpose", lambda matrix: matrix),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_rejected(fault, key):
    with pytest.raises(AssertionError, match="the law differs"):
        assert_moments(faults.Planted(kernel(), FAULTS[fault]), key)
