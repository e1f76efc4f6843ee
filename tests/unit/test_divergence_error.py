"""A chain that leaves the finite numbers stops the run; nothing drawn is lost."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex

START = jnp.ones(2)


class Doomed(ex.Kernel):
    """Counts its steps in `position`, and fails at step `at` in the chains that start above 0."""

    at: jax.Array
    bad: jax.Array

    def init(self, key, position):
        return ex.State(position, {}, None, None, jnp.int32(0))

    def step(self, key, state):
        fails = (state.step == self.at) & (state.position[0] > 0)
        moved = state.position + jnp.sign(state.position) + 0 * jax.random.normal(key, (2,))
        position = jnp.where(fails, self.bad, moved)
        return ex.State(position, {}, None, None, state.step + 1), {"fails": fails}


def doomed(at: int, bad: float = jnp.nan) -> Doomed:
    return Doomed(jnp.int32(at), jnp.float32(bad))


def fail(kernel, steps=40, **options) -> ex.DivergenceError:
    with pytest.raises(ex.DivergenceError) as caught:
        ex.sample(kernel, START, steps, key=jax.random.key(0), **options)
    return caught.value


@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf])
def test_step_state_and_samples(bad):
    error = fail(doomed(17, bad))
    assert (error.step, error.chain) == (17, 0)
    assert error.state.position.shape == (1, 2), "the states of all chains, chain axis first"
    np.testing.assert_array_equal(error.state.position, 18.0)
    assert int(error.state.step[0]) == 17
    np.testing.assert_array_equal(error.samples.position[0, :, 0], np.arange(2.0, 19.0))
    np.testing.assert_array_equal(error.samples.final_state.position, error.state.position)
    for words in ("chain 0", "step 17", "Try a step size ten times smaller", "17 draws"):
        assert words in str(error)


@pytest.mark.parametrize(("at", "draws"), [(17, 5), (18, 6), (19, 6), (20, 6), (21, 7)])
def test_with_thinning_only_whole_draws_count(at, draws):
    """Draw k is the state after 3 (k + 1) steps: one is complete once step 3 k + 2 is finite."""
    error = fail(doomed(at), thin=3)
    assert error.step == at and error.samples.num_draws == draws
    np.testing.assert_array_equal(
        error.samples.position[0, :, 0], 1.0 + 3.0 * np.arange(1, draws + 1)
    )


def test_in_burn_in_there_are_no_samples():
    error = fail(doomed(4), burn_in=10)
    assert error.step == 4 and error.samples is None
    np.testing.assert_array_equal(error.state.position, 5.0)
    assert "0 draws" in str(error)


def test_steps_are_counted_from_the_start_of_burn_in():
    error = fail(doomed(14), burn_in=10)
    assert error.step == 14 and error.samples.num_draws == 4


def test_in_the_first_step_and_before_it():
    error = fail(doomed(0))
    assert error.step == 0 and error.samples is None
    np.testing.assert_array_equal(error.state.position, START[None])


def test_in_the_steps_after_the_last_draw():
    error = fail(doomed(21), steps=22, thin=20)
    assert error.step == 21 and error.samples.num_draws == 1


@pytest.mark.slow
def test_one_chain_of_three():
    """The others are stopped at the same step, finite."""
    starts = jnp.array([[-1.0, -1.0], [1.0, 1.0], [-5.0, -5.0]])
    with pytest.raises(ex.DivergenceError) as caught:
        ex.sample(
            doomed(6), positions=starts, num_steps=10, key=jax.random.key(0), num_chains=3, thin=2
        )
    error = caught.value
    assert (error.step, error.chain) == (6, 1)
    np.testing.assert_array_equal(error.state.position[:, 0], [-7.0, 7.0, -11.0])
    np.testing.assert_array_equal(error.state.step, 6)
    assert error.samples.position.shape == (3, 3, 2)
    assert np.isfinite(error.samples.position).all()


@pytest.mark.slow
@pytest.mark.parametrize("chains", [1, 3])
def test_the_draws_are_those_of_a_shorter_run(chains, key):
    """A real divergence: SGLD on a quartic, from far out."""
    kernel = ex.sgld(ex.FullGradient(ex.Target(lambda x: jnp.sum(x**4))), 0.11)
    with pytest.raises(ex.DivergenceError) as caught:
        ex.sample(kernel, START, 5_000, key=key, num_chains=chains)
    error = caught.value
    assert "The step size was 0.11; try a step size ten times smaller" in str(error)
    assert 0 < error.step < 5_000 and error.samples.num_draws == error.step
    assert bool(ex.tree.all_finite(eqx.filter(error.state, eqx.is_inexact_array)))
    short = ex.sample(kernel, START, error.step, key=key, num_chains=chains)
    np.testing.assert_array_equal(error.samples.position, short.position)
    np.testing.assert_array_equal(error.state.position, short.final_state.position)
    with pytest.raises(ex.DivergenceError) as caught:
        ex.sample(kernel, START, error.step + 1, key=key, num_chains=chains)
    assert caught.value.step == error.step


@pytest.mark.slow
def test_an_infeasible_compensation_says_so(key):
    """Not the advice about step sizes alone: the noise is more than the sampler injects."""
    noisy = ex.NoisyGradient(ex.Target(lambda x: 0.5 * jnp.sum(x**2)), 100.0)
    with pytest.raises(ex.DivergenceError, match="negative variance.*clip=True"):
        ex.sample(ex.sgld(noisy, 0.1, compensate=True), START, 5, key=key)
    clipped = ex.sample(ex.sgld(noisy, 0.1, compensate=True, clip=True), START, 5, key=key)
    assert clipped.info.clipped.all()
