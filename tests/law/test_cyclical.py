"""What the cycles of `cyclical` sample: each mode as it is, in weights that are not its mass."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex

from . import normals

PERIOD, INITIAL, STARTS = 40, 0.5, 2.0
LINE = ex.FullGradient(ex.targets.gaussian(np.zeros(1), np.ones(1)))


def cyclical(gradient=LINE, exploration=0.5, **more):
    return ex.cyclical(
        ex.sgld, gradient, INITIAL, period=PERIOD, exploration=exploration, temperature=0.7, **more
    )


def by_the_code(kernel, steps):
    """Means and variances along a run on a Gaussian, from the code's own affine steps."""
    state = normals.start(kernel, np.full(1, STARTS))

    def step(t, x, xi):
        with normals.dealt(xi):
            return kernel.step(normals.key(), ex.State(x, {}, None, None, t))[0].position

    times, zero = jnp.arange(steps, dtype=jnp.int32), jnp.zeros(normals.count(kernel, state))
    each = jax.jit(jax.vmap(jax.jacfwd(step, argnums=(1, 2)), in_axes=(0, None, None)))
    slopes, noises = (np.asarray(m)[:, 0, 0] for m in each(times, jnp.zeros(1), zero))
    return propagated(slopes, noises**2)


def by_theory(steps, exploration):
    """x+ = (1 - h) x + N(0, 2 h T), T = 0 in the first part of a cycle."""
    place = (np.arange(steps) % PERIOD) / PERIOD
    h = 0.5 * INITIAL * (np.cos(np.pi * place) + 1.0)
    return propagated(1.0 - h, 2.0 * h * np.where(place < exploration, 0.0, 0.7))


def propagated(slopes, noises):
    rows, mean, variance = [], STARTS, 0.0
    for a, b in zip(slopes, noises, strict=True):
        mean, variance = a * mean, a**2 * variance + b
        rows.append((mean, variance))
    return np.array(rows)


@pytest.mark.parametrize("exploration", [0.0, 0.3, 0.5])
def test_the_law_along_the_cycles(exploration, x64):
    code = by_the_code(cyclical(exploration=exploration), 3 * PERIOD)
    np.testing.assert_allclose(code, by_theory(3 * PERIOD, exploration), rtol=1e-10, atol=1e-14)
    assert not np.allclose(code, by_theory(3 * PERIOD, exploration + 0.1), rtol=1e-3)


@pytest.mark.slow
def test_weights_are_those_of_the_basins(key):
    """As the docstring warns: modes of mass 0.9 and 0.1 get what the starts gave them."""
    target = ex.targets.mixture([[-7.0], [7.0]], 1.0, [0.9, 0.1])
    starts = np.where(np.arange(64) < 32, -4.0, 4.0).astype(np.float32)[:, None]
    run = ex.sample(
        cyclical(ex.FullGradient(target)),
        positions=starts,
        num_steps=10 * PERIOD,
        num_chains=64,
        key=key,
        progress=False,
    )
    x = run.sampling_stage().position[:, :, 0]
    assert x.shape[1] == 5 * PERIOD
    # A chain crosses a barrier of 24.5 with a rate of about 1e-10.
    assert (x[:32] < 0.0).all() and (x[32:] > 0.0).all()
    assert np.abs(np.mean(np.abs(x)) - 7.0) < 0.1
    # Exploring draws sit at the modes without spread; they would not do as draws.
    everything = run.position[:, PERIOD:, 0]
    assert np.abs(everything).std() < 0.9 * np.abs(x).std()
