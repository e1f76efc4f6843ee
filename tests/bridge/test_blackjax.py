"""Kernels as algorithms of BlackJAX, and its algorithms as kernels, bit for bit."""

from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.util import run_inference_algorithm

import ergodax as ex
from ergodax import bridge

pytestmark = pytest.mark.slow

COVARIANCE = np.array([[1.0, 0.6], [0.6, 2.0]])
TARGET = ex.targets.gaussian(np.array([0.5, -1.0]), COVARIANCE)
START = jnp.zeros(2)
X = np.random.default_rng(0).normal(size=60) + 0.7
POSTERIOR = ex.Posterior(lambda m: -0.5 * jnp.sum(m**2), lambda m, x: -0.5 * (x - m) ** 2, X)


def log_density(x):
    return -TARGET.potential(x)


def keys_of(key, num_steps):
    """The keys with which `sample` runs its only chain."""
    key_init, key_run = jax.random.split(key)
    chain = jax.random.fold_in(key_run, 0)
    init = jax.random.fold_in(key_init, 0)
    return init, [jax.random.fold_in(chain, t) for t in range(num_steps)]


def test_our_kernel_in_their_loop_bit_for_bit(key):
    kernel = ex.sghmc(ex.FullGradient(TARGET), 0.1)
    algorithm = bridge.blackjax(kernel)
    assert isinstance(algorithm, blackjax.base.SamplingAlgorithm)
    final, (states, infos) = run_inference_algorithm(key, algorithm, 20, initial_position=START)
    run_key, init_key = jax.random.split(key)

    @jax.jit
    def by_hand(run_key, init_key):
        def step(state, k):
            state, info = kernel.step(k, state)
            return state, (state.position, info.potential)

        return jax.lax.scan(step, kernel.init(init_key, START), jax.random.split(run_key, 20))

    state, (positions, potentials) = by_hand(run_key, init_key)
    np.testing.assert_array_equal(states.position, positions)
    np.testing.assert_array_equal(infos.potential, potentials)
    np.testing.assert_array_equal(final.position, state.position)


def test_their_diagnostics_read_our_draws(key):
    algorithm = bridge.blackjax(ex.sghmc(ex.FullGradient(TARGET), 0.3, 1.0))

    def chain(key):
        return run_inference_algorithm(key, algorithm, 2000, initial_position=START)[1][0].position

    draws = jax.jit(jax.vmap(chain))(jax.random.split(key, 4))
    r_hat = blackjax.diagnostics.potential_scale_reduction(draws)
    ess = blackjax.diagnostics.effective_sample_size(draws)
    assert np.all(np.asarray(r_hat) < 1.2) and np.all(np.asarray(ess) > 100)


@pytest.mark.parametrize("name", ["hmc", "nuts", "mala"])
def test_their_algorithm_in_our_loop_bit_for_bit(name, key):
    algorithm: Any = {
        "hmc": lambda: blackjax.hmc(log_density, 0.4, jnp.ones(2), 5),
        "nuts": lambda: blackjax.nuts(log_density, 0.4, jnp.ones(2)),
        "mala": lambda: blackjax.mala(log_density, 0.3),
    }[name]()
    kernel = bridge.from_blackjax(algorithm, step_size=0.4, num_data=7)
    samples = ex.sample(kernel, START, 2, key=key, progress=False)
    init, steps = keys_of(key, 2)
    ours = kernel.init(init, START)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        theirs = algorithm.init(START, init)
    for t, k in enumerate(steps):
        ours, info = kernel.step(k, ours)
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            theirs, told = algorithm.step(k, theirs)
        np.testing.assert_array_equal(ours.position, theirs.position)
        assert info.acceptance == told.acceptance_rate
        assert info.evaluations == 7 * getattr(told, "num_integration_steps", 1)
        # The compiled loop fuses operations, and may round otherwise.
        np.testing.assert_allclose(samples.position[0, t], theirs.position, rtol=1e-4)
    assert np.all(samples.info.finite) and np.all(samples.info.gradient_norm > 0)


@pytest.mark.parametrize("name", ["sgld", "sghmc", "sgnht"])
def test_their_stochastic_gradients_in_our_loop(name, key):
    estimator = blackjax.sgmcmc.gradients.grad_estimator(
        POSTERIOR.log_prior, POSTERIOR.log_likelihood, POSTERIOR.num_data
    )
    algorithm: Any = {
        "sgld": lambda: blackjax.sgld(estimator),
        "sghmc": lambda: blackjax.sghmc(estimator, 3, 2.0),
        "sgnht": lambda: blackjax.sgnht(estimator, 1.0),
    }[name]()
    kernel = bridge.from_blackjax(
        algorithm, data=X, batch_size=6, step_size=1e-3, temperature=0.5, gradients_per_step=3
    )
    start = jnp.zeros(())
    samples = ex.sample(kernel, start, 8, key=key, num_chains=2, progress=False)
    assert samples.position.shape == (2, 8) and np.all(np.isfinite(samples.position))
    assert not np.array_equal(samples.position[0], samples.position[1])
    assert np.all(samples.info.evaluations == 18)

    state = kernel.init(key, start)
    key_batch, key_step = jax.random.split(key)
    rows, _ = ex.data.WithoutReplacement().draw(key_batch, None, 60, 6)
    theirs = algorithm.step(key_step, state.inner, jnp.asarray(X, float)[rows], 1e-3, 0.5)
    ours, _ = kernel.step(key, state)
    theirs = getattr(theirs, "position", theirs)
    np.testing.assert_allclose(ours.position, theirs, rtol=1e-6)


def test_there_and_back_is_the_kernel_itself(key):
    kernel = ex.sghmc(ex.FullGradient(TARGET), 0.1)
    back = bridge.from_blackjax(bridge.blackjax(kernel))
    options: dict[str, Any] = dict(key=key, num_chains=3, progress=False)
    a = ex.sample(kernel, START, 30, **options)
    b = ex.sample(back, START, 30, **options)
    np.testing.assert_array_equal(a.position, b.position)
    np.testing.assert_array_equal(a.info.kinetic_temperature, b.info.kinetic_temperature)


@pytest.mark.slow
def test_their_nuts_has_the_law_of_the_target(key):
    """The variance of the first coordinate, to 6 standard errors from 64 chains."""
    kernel = bridge.from_blackjax(blackjax.nuts(log_density, 0.7, jnp.ones(2)))
    samples = ex.sample(
        kernel, START, 200, key=key, num_chains=64, burn_in=20, thin=2, progress=False
    )
    squares = (np.asarray(samples.position, np.float64)[..., 0] - 0.5) ** 2
    means = squares.mean(axis=1)
    error = means.std(ddof=1) / 8
    assert abs(means.mean() - COVARIANCE[0, 0]) < 6 * error
    assert abs(means.mean() - 1.2 * COVARIANCE[0, 0]) > 6 * error  # a fault of 20% would be seen


def test_an_algorithm_can_be_compiled(key):
    """As BlackJAX's users do: jax.jit(algorithm.step), and init without a key."""
    kernel = ex.sgld(ex.FullGradient(TARGET), 0.1)
    algorithm = bridge.blackjax(kernel)
    state = jax.jit(algorithm.init)(START)
    assert hash(algorithm.step) == hash(algorithm.step)
    ours, info = jax.jit(algorithm.step)(key, state)
    theirs, _ = kernel.step(key, kernel.init(key, START))
    np.testing.assert_allclose(ours.position, theirs.position, rtol=1e-6)
    assert bool(info.finite)


def test_arguments():
    with pytest.raises(TypeError, match="kernel must have the methods init and step"):
        bridge.blackjax(3)
    with pytest.raises(TypeError, match="init needs a key here"):
        bridge.blackjax(ex.sghmc(ex.FullGradient(TARGET), 0.1)).init(START)
    with pytest.raises(TypeError, match="algorithm must have init and step"):
        bridge.from_blackjax(3)
    algorithm = blackjax.sgld(lambda x, batch: -x)
    with pytest.raises(ValueError, match="needs batch_size and a positive step_size"):
        bridge.from_blackjax(algorithm, data=X, step_size=0.1)
    with pytest.raises(ValueError, match="needs batch_size and a positive step_size"):
        bridge.from_blackjax(algorithm, data=X, batch_size=3)
    with pytest.raises(ValueError, match="batch_size=61"):
        bridge.from_blackjax(algorithm, data=X, batch_size=61, step_size=0.1)


def test_what_does_not_fit_is_refused_where_it_is_given():
    stochastic, whole = blackjax.sgld(lambda x, batch: -x), blackjax.mala(log_density, 0.3)
    with pytest.raises(TypeError, match="step takes .*minibatch.* With data= it is also given"):
        bridge.from_blackjax(stochastic)
    options: dict[str, Any] = dict(data=X, batch_size=3, step_size=0.1)
    with pytest.raises(TypeError, match="would be given .*batch.* Without data= it is given no"):
        bridge.from_blackjax(whole, **options)
    contour = blackjax.csgld(lambda x, batch: -x, lambda x, batch: -x)
    with pytest.raises(TypeError, match="step_size_stoch"):  # whose place the temperature took
        bridge.from_blackjax(contour, **options)
    with pytest.raises(TypeError, match="num_data must be an integer, not True"):
        bridge.from_blackjax(whole, num_data=True)
    with pytest.raises(ValueError, match="gradients_per_step must be at least 1"):
        bridge.from_blackjax(stochastic, gradients_per_step=0, **options)
