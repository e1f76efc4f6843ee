"""Replica exchange: what changes places, what is told, and that data are not copied."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.data import ShuffledEpochs
from ergodax.sampler.replica_exchange import (
    Replicas,
    differences_on,
    energies_for,
    neighbours,
)
from ergodax.schedule import Phases, Polynomial

TARGET = ex.targets.gaussian(jnp.zeros(2), 1.0)
FULL = ex.FullGradient(TARGET)
ROWS = np.linspace(-1.0, 1.0, 40, dtype=np.float32)


def posterior():
    return ex.Posterior(
        lambda x: -0.5 * jnp.sum(x**2),
        lambda x, e: -0.5 * (e.astype(x.dtype) - jnp.sum(x)) ** 2,
        ROWS,
    )


def exchange(
    sampler: Any = ex.sgld, gradient: Any = FULL, step_size: Any = 0.1, **options: Any
) -> Any:
    return ex.replica_exchange(sampler, gradient, step_size, **options)


def two_steps(kernel, key, start=(0.5, -0.5)):
    step = eqx.filter_jit(lambda k, s: kernel.step(k, s))
    keys = jax.random.split(key, 3)
    one, first = step(keys[0], kernel.init(keys[2], jnp.asarray(start)))
    two, second = step(keys[1], one)
    return (one, first), (two, second)


@pytest.mark.slow
def test_without_swaps_a_replica_is_its_sampler(key):
    """Before the first round, replica i takes the step of sampler(gradient, h_i, T_i)."""
    temperatures, sizes = (1.0, 2.0, 5.0), (0.1, 0.2, 0.3)
    kernel = exchange(
        ex.sghmc, step_size=sizes, temperatures=temperatures, mass=jnp.array([1, 2.0])
    )
    state = kernel.init(key, jnp.ones(2))
    new, info = kernel.step(key, state)
    moves = jax.random.split(key, 4)
    for i, (t, h) in enumerate(zip(temperatures, sizes, strict=True)):
        alone = ex.sghmc(FULL, h, temperature=t, mass=jnp.array([1, 2.0]))
        momentum = {"momentum": state.auxiliary["momentum"][i]}
        expected, told = alone.step(
            moves[i], ex.State(jnp.ones(2), momentum, None, None, jnp.int32(0))
        )
        position = new.auxiliary["hotter"][i - 1] if i else new.position
        np.testing.assert_allclose(position, expected.position, rtol=1e-6)
        np.testing.assert_allclose(
            new.auxiliary["momentum"][i], expected.auxiliary["momentum"], rtol=1e-6
        )
        if not i:
            np.testing.assert_allclose(
                info.kinetic_temperature, np.asarray(told.kinetic_temperature), rtol=1e-5
            )
    assert float(info.acceptance) == 0.0 and not bool(info.accepted)
    assert int(info.evaluations) == 3


def test_whole_states_change_places():
    """Position, carried gradient and estimator's state together; momenta by sqrt(T_to / T_from)."""
    rows = jnp.arange(3.0)
    held = Replicas(
        {"x": rows[:, None] * jnp.ones((1, 2))}, {"momentum": rows + 1.0}, (rows,), {"g": rows}
    )
    new = held.exchanged(jnp.array([1, 0, 2]), jnp.array([1.0, 4.0, 9.0]))
    np.testing.assert_allclose(new.position["x"][:, 0], [1.0, 0.0, 2.0])
    np.testing.assert_allclose(new.auxiliary["momentum"], [2.0 * 0.5, 1.0 * 2.0, 3.0])
    np.testing.assert_allclose(new.gradient[0], [1.0, 0.0, 2.0])
    np.testing.assert_allclose(new.estimate["g"], [1.0, 0.0, 2.0])


@pytest.mark.slow
def test_the_carried_gradient_follows_its_position(key):
    """After a step with swaps, each replica's gradient is still the one at its position."""
    kernel = exchange(ex.langevin, temperatures=(1.0, 1.1, 1.2), swap_every=1)
    (state, info), _ = two_steps(kernel, key, start=(2.0, -3.0))
    positions = jnp.concatenate([state.position[None], state.auxiliary["hotter"]])
    np.testing.assert_allclose(state.estimate.gradient, positions, rtol=1e-6)
    assert float(info.acceptance) > 0.3


@pytest.mark.parametrize("number, pairs", [(0, [True, False, True]), (1, [False, True, False])])
def test_pairs_take_turns(number, pairs):
    np.testing.assert_array_equal(neighbours(4, jnp.int32(number)), pairs)
    assert neighbours(2, jnp.int32(number)).all(), "two replicas have one pair"


@pytest.mark.slow
def test_a_round_every_so_many_steps(key):
    kernel = exchange(temperatures=(1.0, 1.01, 1.02), swap_every=3)
    run = ex.sample(kernel, jnp.ones(2), 12, key=key, num_chains=2, progress=False)
    due = np.arange(1, 13) % 3 == 0
    np.testing.assert_array_equal(run.info.acceptance > 0.5, [due, due])
    np.testing.assert_array_equal(run.info.evaluations, [3 + 3 * due] * 2)
    # Rounds 0 and 2 are those of the first pair, 1 and 3 of the second.
    each = run.info.acceptance[:, due].reshape(2, 2, 2).mean(axis=1)
    np.testing.assert_allclose(run.final_state.auxiliary["swap_rate"], each, rtol=1e-5)


@eqx.filter_jit
def evaluations(kernel, key):
    """How many of them the first step makes."""
    return kernel.step(key, kernel.init(key, jnp.ones(2)))[1].evaluations


def test_evaluations_with_data(key):
    minibatch = ex.Minibatch(posterior(), 4)
    for gradient, options, swap in (
        (minibatch, {}, 4),
        (ex.ScoreCovariance(minibatch), {}, 4),
        (minibatch, {"swap_batch_size": 10}, 10),
        (minibatch, {"swap_batch_size": 40}, 40),
    ):
        kernel = exchange(gradient=gradient, step_size=1e-3, swap_every=1, **options)
        assert evaluations(kernel, key) == 4 * 4 + 4 * swap
    full = exchange(gradient=ex.FullGradient(posterior()), step_size=1e-3, swap_every=1)
    assert evaluations(full, key) == 8 * 40


def test_all_data_leave_no_noise(x64):
    rows = jnp.asarray(ROWS, float)
    energies = energies_for(ex.Minibatch(posterior(), 40), None, correction=True)
    x = jnp.asarray(np.random.default_rng(0).normal(size=(3, 2)))
    exact, none = energies.differences(jax.random.key(0), x)
    difference, variance = differences_on(posterior(), x, rows)
    np.testing.assert_allclose(difference, exact, rtol=1e-6)
    np.testing.assert_array_equal([none, variance], 0.0)


def test_data_and_mass_are_kept_once(key):
    mass = np.diag(np.linspace(1.0, 2.0, 2))
    kernel = exchange(ex.sghmc, ex.Minibatch(posterior(), 4), 1e-3, mass=mass)
    sizes = [leaf.size for leaf in jax.tree.leaves(eqx.filter(kernel.kernels, eqx.is_array))]
    assert sorted(sizes)[-1] == ROWS.size, "data are not copied"
    held = zip(jax.tree.leaves(eqx.filter(kernel.kernels, eqx.is_array)), kernel.axes, strict=True)
    assert all((axis is None) == (np.ndim(leaf) > 1 or leaf.size == 40) for leaf, axis in held)


@pytest.mark.slow
def test_other_numbers_share_a_program(key):
    traces = []

    @eqx.filter_jit
    def step(kernel, state):
        traces.append(1)
        return kernel.step(key, state)

    def kernel(h, temperatures, friction):
        return exchange(ex.langevin, step_size=h, temperatures=temperatures, friction=friction)

    first = kernel([0.1, 0.2], (1.0, 2.0), 1.0)
    state = first.init(key, jnp.ones(2))
    for made in (first, kernel([0.1, 0.1], (1, 2), 1.0), kernel(0.2, (0.5, 3.0), 2.0)):
        step(made, state)
    assert len(traces) == 1


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [0.1, [0.1, 0.2], [Polynomial(0.1), Polynomial(0.2)]])
def test_step_sizes(sizes, key):
    (_, info), (_, second) = two_steps(exchange(step_size=sizes, temperatures=(1.0, 2.0)), key)
    assert float(info.step_size) == pytest.approx(0.1)
    assert float(second.step_size) <= 0.1 + 1e-6


@pytest.mark.slow
def test_the_gradient_of_a_shuffled_epoch(key):
    gradient = ex.Minibatch(posterior(), 4, batching=ShuffledEpochs())
    _, (state, info) = two_steps(exchange(gradient=gradient, step_size=1e-3, swap_every=1), key)
    np.testing.assert_array_equal(state.gradient[1], 2)
    assert bool(info.finite)


def test_other_variables_are_refused(key):
    for sampler, name in ((ex.sgnht, "thermostat"), (ex.psgld, "second_moment")):
        with pytest.raises(ValueError, match=f"also has .*{name}.*Try ex.sgld"):
            exchange(sampler).init(key, jnp.ones(2))
    state = jax.eval_shape(exchange(ex.langevin).init, key, jnp.ones(2))
    assert "momentum" in state.auxiliary


@pytest.mark.slow
def test_a_hot_replica_that_diverges_ends_the_run(key):
    """Its numbers are not finite, and pass to the cold replica where the run sees them."""
    kernel = exchange(step_size=[0.1, 5.0], temperatures=(1.0, 2.0), swap_every=1)
    with pytest.raises(ex.DivergenceError, match="diverged"):
        ex.sample(kernel, jnp.ones(2), 2_000, key=key, progress=False)


def test_step_sizes_of_one_kind():
    with pytest.raises(TypeError, match="step_size must be of one kind"):
        exchange(step_size=[0.1, Phases([(None, 0.1)])], temperatures=(1.0, 2.0))
