"""Time rescaling: weighted averages are right to the sampler's order, and unweighted ones wrong.

The state of SA-SGLD in one dimension is two numbers, x and the monitor, so its law is found on a
grid from the kernel's own step; that of SamAdams is three, and is sampled.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.verify import Axis, stationary_law

from .problems import line

AXES = [Axis(-7.0, 7.0, 121), Axis(0.0, 12.0, 121)]
CLOCK = {"bounds": (0.5, 2.0), "power": 1.0}


def psi(zeta):
    return 0.5 * (zeta + 2.0) / (zeta + 0.5)


def kernel(h, centre=0.0):
    gradient = ex.FullGradient(ex.targets.gaussian(np.full(1, centre), 1.0))
    return ex.sa_sgld(gradient, h, rate=4.0, gradient_scale=2.0, **CLOCK)


def second_moments(h):
    """E x^2 over a step from the stationary law: with the weights of Info, and without."""
    law = stationary_law(kernel(h), np.zeros(1), grid=AXES, order=6)
    decay = np.exp(-2.0 * h)

    def after(z):
        weight = psi(decay * z[1] + (1.0 - decay) * z[0] ** 2 / 4.0)
        dt = psi(z[1]) * h
        return weight, (1.0 - dt) ** 2 * z[0] ** 2 + 2.0 * dt

    weighted = law.mean(lambda z: after(z)[0] * after(z)[1]) / law.mean(lambda z: after(z)[0])
    return weighted, law.mean(lambda z: z[0] ** 2)


def test_weighted_averages_are_first_order_and_unweighted_ones_wrong(x64):
    (coarse, plain), (fine, finer) = second_moments(0.1), second_moments(0.05)
    assert np.log2((coarse - 1.0) / (fine - 1.0)) == pytest.approx(1.0, abs=0.05)
    assert abs(2.0 * fine - coarse - 1.0) < 2e-3
    assert 2.0 * finer - plain == pytest.approx(1.217, abs=5e-3), "the limit without weights"


def test_the_step_is_chosen_before_its_batch(x64):
    """Gradients x + 1 or x - 1: with the batch's own gradient in the monitor it is 1.3758."""
    options = {"grid": AXES, "order": 6, "lost": 1.0}
    laws = [stationary_law(kernel(0.2, centre), np.zeros(1), **options) for centre in (-1.0, 1.0)]
    law = stationary_law(lambda p: np.mean([one.step(p) for one in laws], axis=0), **options)
    found = law.mean(lambda z: z[0] ** 2 * psi(z[1])) / law.mean(lambda z: psi(z[1]))
    assert found == pytest.approx(1.3112278685, abs=5e-4)


def test_weight_and_monitor_by_hand(x64):
    inner = ex.langevin(ex.FullGradient(line()), 0.4)
    rescaled = ex.time_rescaled(inner, rate=1.5, gradient_scale=3.0, **CLOCK)
    start = rescaled.init(jax.random.key(0), jnp.full(1, 0.7))
    zeta = float(start.auxiliary["gradient_monitor"])
    assert zeta == pytest.approx((0.7 / 3.0) ** 2)
    state, info = rescaled.step(jax.random.key(1), start)
    assert info.weight is not None
    x, decay = float(state.position[0]), np.exp(-0.3)
    half = decay * zeta + (1.0 - decay) * (x / 3.0) ** 2
    full = decay * half + (1.0 - decay) * (x / 3.0) ** 2
    assert float(info.step_size) == pytest.approx(0.4 * psi(zeta))
    assert float(info.weight) == pytest.approx(0.4 * psi(half))
    assert float(state.auxiliary["gradient_monitor"]) == pytest.approx(full)


@pytest.mark.slow
def test_samadams_is_second_order():
    """4096 chains of 3000 steps; an error of 0.0006 is theirs and that of the expected numbers."""
    chains, steps, burn_in = 4096, 3000, 100

    @jax.jit
    def run(h, key):
        gradient = ex.FullGradient(line())
        one = ex.samadams(gradient, h, **CLOCK)
        key, start = jax.random.split(key)
        state = jax.vmap(lambda k: one.init(k, jnp.zeros(1)))(jax.random.split(start, chains))

        def step(carry, k):
            state, sums = carry
            state, info = jax.vmap(one.step)(jax.random.split(k, chains), state)
            assert info.weight is not None
            square, counts = state.position[:, 0] ** 2, state.step > burn_in
            new = jnp.stack([info.weight * square, info.weight, info.step_size * square, square])
            return (state, sums + jnp.mean(jnp.where(counts, new, 0.0), axis=1)), None

        keys = jax.random.split(key, steps)
        return jax.lax.scan(step, (state, jnp.zeros(4)), keys)[0][1]

    for h, expected in ((0.4, 0.9944), (0.2, 0.9986)):
        weighted, weights, _, plain = np.asarray(run(h, jax.random.key(2)), float)
        assert weighted / weights == pytest.approx(expected, abs=0.003)
        assert plain / (steps - burn_in) == pytest.approx(1.28, abs=0.01)


def test_the_speed_by_hand(x64):
    """psi = m (z^r + M) / (z^r + m), with a power that is not 1."""
    gradient = ex.FullGradient(line())
    found = ex.sa_sgld(gradient, 0.1, rate=4.0, bounds=(0.5, 2.0), power=0.25)._speed(
        jnp.array(16.0)
    )
    assert found == pytest.approx(0.5 * (2.0 + 2.0) / (2.0 + 0.5), rel=1e-12)
