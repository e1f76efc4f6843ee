"""The cycle: its steps, its temperatures, its stages, its momenta."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.schedule import Phases

TARGET = ex.targets.gaussian(jnp.zeros(2), jnp.array([1.0, 0.5]))
GRADIENT = ex.FullGradient(TARGET)
START = [2.0, -1.0]


def run(kernel, steps, key, **options):
    return ex.sample(kernel, jnp.array(START), steps, key=key, progress=False, **options)


def test_steps_and_stages(key, x64):
    """Ten steps in two cycles: 1, 0.904508, 0.654508, 0.345492, 0.095492, and again."""
    kernel = ex.cyclical(ex.sgld, GRADIENT, 1.0, period=5)
    info = run(kernel, 10, key, num_chains=2).info
    cycle = [1.0, 0.904508497187, 0.654508497187, 0.345491502813, 0.095491502813]
    np.testing.assert_allclose(info.step_size, [cycle * 2] * 2, rtol=1e-10)
    np.testing.assert_array_equal(info.sampling, [[False, False, False, True, True] * 2] * 2)


@pytest.mark.parametrize("exploration, exploring", [(0.0, 0), (0.07, 7), (0.3, 30), (0.999, 100)])
def test_a_step_explores_where_its_place_is_below_the_fraction(exploration, exploring):
    kernel = ex.cyclical(ex.sgld, GRADIENT, 1.0, period=100, exploration=exploration)
    stages = [bool(kernel.stages.sampling(jnp.int32(t))) for t in range(200)]
    assert stages == [t % 100 >= exploring for t in range(200)]


def test_exploring_is_gradient_descent(key, x64):
    samples = run(ex.cyclical(ex.sgld, GRADIENT, 0.3, period=8), 16, key)
    x, h = np.concatenate([[START], samples.position[0]]), samples.info.step_size[0]
    descent = x[:-1] * (1.0 - h[:, None] * np.array([1.0, 2.0]))
    sampling = samples.info.sampling[0]
    np.testing.assert_allclose(x[1:][~sampling], descent[~sampling], rtol=1e-12)
    noise = (x[1:] - descent)[sampling] / np.sqrt(2.0 * h[sampling, None])
    assert (np.abs(noise) > 1e-6).all() and np.abs(noise).max() < 8.0


def test_exploring_is_descent_with_momentum(key, x64):
    """T = 0 from the start: no noise, and the momentum begins at rest."""
    kernel = ex.cyclical(ex.sghmc, GRADIENT, 0.2, period=10, friction=2.0)
    samples = run(kernel, 5, key)
    x, r = np.asarray(START), np.zeros(2)
    for t, h in enumerate(samples.info.step_size[0]):
        r = (1.0 - 2.0 * h) * r - h * x * np.array([1.0, 2.0])
        x = x + h * r
        np.testing.assert_allclose(samples.position[0, t], x, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("sampler", [ex.sghmc, ex.langevin])
def test_momenta_are_refreshed_where_a_cycle_begins(sampler, x64):
    """From N(0, T M) with T of the sampling stage, at steps 0, P, 2P and no others."""
    mass, t, chains = 4.0, 0.25, 20_000
    kernel = ex.cyclical(sampler, GRADIENT, 1e-9, period=3, temperature=t, resample=True, mass=mass)
    kept = ex.cyclical(sampler, GRADIENT, 1e-9, period=3, temperature=t, mass=mass)
    keys = jax.random.split(jax.random.key(5), chains)
    start = kernel.init(keys[0], jnp.array(START))
    before = ex.tree.scale(0.0, start.auxiliary["momentum"])

    @eqx.filter_jit
    def momenta(kernel, step):
        state = ex.State(jnp.array(START), {"momentum": before}, None, start.estimate, step)
        return jax.vmap(lambda k: kernel.step(k, state)[0].auxiliary["momentum"])(keys)

    for step in range(7):
        draws = np.asarray(momenta(kernel, jnp.int32(step)))
        if step % 3 == 0:
            # The variance of a variance from n draws is 2 / n; 5.5 sd are one in 26 million.
            spread = draws.var(axis=0) / (t * mass)
            assert (np.abs(spread - 1.0) < 5.5 * np.sqrt(2.0 / chains)).all()
        else:
            assert np.abs(draws).max() < 1e-3
        assert np.abs(momenta(kept, jnp.int32(step))).max() < 1e-3


def test_temperature_may_follow_a_schedule(key, x64):
    still = Phases([(8, 0.0), (None, 1.0)])
    kernel = ex.cyclical(ex.sgld, GRADIENT, 0.1, period=4, exploration=0.25, temperature=still)
    samples = run(kernel, 12, key)
    x, h = np.concatenate([[START], samples.position[0]]), samples.info.step_size[0]
    quiet = np.isclose(x[1:], x[:-1] * (1.0 - h[:, None] * np.array([1.0, 2.0]))).all(axis=1)
    np.testing.assert_array_equal(quiet, [True] * 9 + [False] * 3)


@pytest.mark.slow
def test_exploring_steps_need_not_be_feasible(key):
    """A compensated sampler has no noise to subtract from at T = 0, nor needs to."""
    noisy = ex.NoisyGradient(TARGET, 1.0)
    samples = run(ex.cyclical(ex.sgld, noisy, 0.1, period=4, compensate=True), 8, key)
    assert samples.info.feasible.all()
    with pytest.raises(ex.DivergenceError, match="negative variance"):
        run(ex.sgld(noisy, 0.1, temperature=0.01, compensate=True), 8, key)


@pytest.mark.parametrize("exploration", [-0.1, 1.0, 1.5])
def test_some_steps_of_a_cycle_sample(exploration):
    with pytest.raises(ValueError, match="exploration"):
        ex.cyclical(ex.sgld, GRADIENT, 1.0, period=100, exploration=exploration)
