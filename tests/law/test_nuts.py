"""The step of NUTS in whitened coordinates: three leapfrogs on a normal law, or the usual rule."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.target.base import AbstractTarget
from ergodax.tune import Coordinates
from ergodax.tune.decisions import error_table
from ergodax.tune.nuts import THREE_LEAPFROGS, turning_step, warm_up

KEY = jax.random.key(20261121)
DIMENSION = 10


class Funnel(AbstractTarget):
    """u[0] ~ N(0, 1) and the others N(0, exp(-2 narrowing u[0])): a normal law where it is 0."""

    narrowing: jax.Array = eqx.field(converter=jnp.asarray)

    def potential(self, position):
        """U."""
        log_scale = -self.narrowing * position[0]
        rest = 0.5 * jnp.sum((position[1:] * jnp.exp(-log_scale)) ** 2)
        return 0.5 * position[0] ** 2 + rest + (DIMENSION - 1) * log_scale


@pytest.mark.parametrize(
    ("adapted", "dimension", "step"),
    [
        (0.7, 10, THREE_LEAPFROGS),
        (1.3, 2, THREE_LEAPFROGS),
        (0.55, 10, 0.55),  # rougher than a normal law of 10 dimensions, whose step is 0.7
        (0.7, 2, 0.7),  # likewise of 2, whose step is 1.04
        (0.43, 100, 0.43),
        (0.6, 31, 0.6),
    ],
)
def test_the_rule(adapted, dimension, step):
    assert turning_step(adapted, dimension) == step


@pytest.mark.slow
def test_three_leapfrogs_sample_a_normal_law_and_a_funnel_keeps_its_step():
    starts = jax.random.normal(KEY, (4, DIMENSION))
    normal, funnel = Funnel(0.0), Funnel(1.0)
    plain = Coordinates(jnp.zeros(DIMENSION), jnp.eye(DIMENSION))
    warm = warm_up(normal, plain, starts, key=KEY)
    assert float(warm.kernel.step_size) == pytest.approx(THREE_LEAPFROGS)
    samples = ex.sample(
        warm.kernel,
        positions=warm.ends,
        num_steps=1_000,
        key=KEY,
        progress=False,
        collect=warm.coordinates.position,
    )
    assert np.mean(samples.info.evaluations) < 3.5
    assert 0.4 < np.mean(samples.info.acceptance) < 0.9
    # Ten means and ten sds within 5.5 of their errors: one false alarm in a million.
    table = error_table(samples)
    assert (np.abs(table["mean"]) < 5.5 * table["mcse_mean"] * table["sd"]).all()
    assert (np.abs(table["sd"] - 1) < 5.5 * table["mcse_sd"] * table["sd"]).all()
    assert (table["mcse_mean"] < 0.05).all() and (table["mcse_sd"] < 0.05).all()
    # The negative control: the same program, a law that is not normal.
    rough = warm_up(funnel, plain, starts, key=KEY).kernel
    assert float(rough.step_size) < DIMENSION**-0.25
