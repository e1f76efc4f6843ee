"""A density that jumps is told from one that is steep, bent or has several modes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import ergodax as ex
from ergodax.tune.discontinuities import jump_between_draws

CHAINS = 4


def told(potential, draws):
    like = jax.tree.map(lambda x: jnp.asarray(x[0, 0], jnp.float32), draws)
    return jump_between_draws(ex.Target(potential), like, draws)


def threshold_regression(rows):
    """A mean that steps where x passes a threshold."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(rows)
    y = 0.7 * (x > 0.3) + rng.standard_normal(rows)
    x, y = jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)

    def potential(z):
        mean = jnp.where(x > z["tau"], z["rise"], 0.0)
        return 0.5 * jnp.sum((y - mean) ** 2) + 0.5 * z["tau"] ** 2 + 0.5 * z["rise"] ** 2

    return potential


@pytest.mark.parametrize("rows", [100, 20_000])
def test_a_threshold_is_named(rows):
    rng = np.random.default_rng(1)
    draws = {
        "rise": 0.7 + 0.05 * rng.standard_normal((CHAINS, 50)),
        "tau": np.array([-0.5, 0.1, 0.4, 0.9])[:, None] + 0.01 * rng.standard_normal((CHAINS, 50)),
    }
    assert " jumps at tau = " in told(threshold_regression(rows), draws)


def _key_of(x):
    """Another one for each position, as rounding is another."""
    return jax.random.key(jnp.sum(lax.bitcast_convert_type(lax.stop_gradient(x), jnp.uint32)))


SMOOTH = {
    "two modes": lambda x: -jnp.logaddexp(-50.0 * jnp.sum((x - 1.0) ** 2), -50.0 * jnp.sum(x**2)),
    "a neck": lambda x: 0.5 * x[0] ** 2 + x[0] + 0.5 * x[1] ** 2 * jnp.exp(-2.0 * x[0]),
    "a kink": lambda x: 20.0 * jnp.sum(jnp.abs(x)),
    "noise": lambda x: 0.5 * jnp.sum(x**2) + jnp.sum(jax.random.uniform(_key_of(x))),
    "steep": lambda x: 1e3 * jnp.sum(jnp.tanh(1e2 * x)) + 0.5 * jnp.sum(x**2),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_no_jump_is_told_where_there_is_none(name):
    rng = np.random.default_rng(2)
    for _ in range(20):
        draws = 2.0 * rng.standard_normal((CHAINS, 1, 2)) + rng.standard_normal((CHAINS, 50, 2))
        assert told(SMOOTH[name], draws) == ""
    if name == "noise":
        return
    # The control: the same with an edge of its own.
    edge = lambda x: SMOOTH[name](x) + jnp.where(x[0] > 0.1, 3.0, 0.0)  # noqa: E731
    places = np.array([-1.0, -0.5, 0.5, 1.0])[:, None, None] + 0.0 * draws
    assert " jumps at position[0] = 0." in told(edge, places)


@pytest.mark.parametrize(("steepness", "jumps"), [(1e8, False), (1e30, True)])
def test_a_wall_is_followed_down_to_the_last_floats(x64, steepness, jumps):
    rng = np.random.default_rng(3)
    draws = np.array([-1.0, -0.9, 0.9, 1.0])[:, None, None] + 0.01 * rng.normal(
        size=(CHAINS, 50, 2)
    )
    wall = ex.Target(lambda x: 1e3 * jnp.tanh(steepness * x[0]) + 0.5 * jnp.sum(x**2))
    assert bool(jump_between_draws(wall, jnp.zeros(2), draws)) == jumps
