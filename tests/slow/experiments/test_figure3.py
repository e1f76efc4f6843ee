"""Figure 3 of Ma, Chen and Fox: its measures on chains whose answer is known."""

import jax
import jax.numpy as jnp
import pytest

import ergodax as ex
from experiments.ma_chen_fox_2015 import figure3

SMALL = figure3.Size(num_chains=100, num_steps=1000, thin=1)


class Lazy(ex.Kernel):
    """Stays with probability 1/2, else a fresh exact draw, stretched in x1: tau = 3."""

    stretch: jax.Array

    def init(self, key, position):
        return ex.State(position, {}, None, None, jnp.int32(0))

    def step(self, key, state):
        key_stay, key_draw = jax.random.split(key)
        fresh = ex.targets.banana().sample(key_draw, 1)[0] * jnp.stack([self.stretch, jnp.ones(())])
        new = jnp.where(jax.random.bernoulli(key_stay), state.position, fresh)
        return ex.State(new, {}, None, None, state.step + 1), None


def test_effective_draws_and_bias_of_a_lazy_chain():
    """rho_t = 2^-t, so that tau = 3 for every quantity; 100,000 draws know it to 2.5%."""
    row = figure3.measure(Lazy(jnp.array(1.0)), 0.1, SMALL, jax.random.key(0))
    for name in figure3.QUANTITIES:
        assert row[f"ess_{name}"] == pytest.approx(1000 / 3, rel=0.15)
    for name in figure3.exact_values():
        assert abs(row[f"bias_{name}"]) < 6 * row[f"bias_{name}_error"] < 0.06
    assert row["bias"] < 0.06


def test_a_wrong_law_is_seen_in_the_bias():
    row = figure3.measure(Lazy(jnp.array(1.1)), 0.1, SMALL, jax.random.key(0))
    assert row["bias_x1²"] == pytest.approx(0.21, abs=0.06)
    assert row["bias"] == row["bias_x1²"] + row["bias_x1²_error"]


def test_a_step_size_that_diverges_in_the_second_run_is_passed_over():
    size = figure3.Size(num_chains=20, num_steps=200, thin=1)
    row = figure3.measure_anew(sgld, [10.0, 0.02, 0.01], size, jax.random.key(0))
    assert row["step_size"] == 0.02
    with pytest.raises(ValueError, match="diverge at every step size"):
        figure3.measure_anew(sgld, [10.0, 20.0], size, jax.random.key(0))


def sgld(h):
    return ex.sgld(ex.FullGradient(ex.targets.banana()), h)


def test_the_grid_ends_where_chains_diverge():
    size = figure3.Size(num_chains=20, num_steps=200, thin=1)
    rows = figure3.try_steps(sgld, size, jax.random.key(0), False)
    assert 3 < len(rows) < len(size.steps)  # stable to about 2 / 16
