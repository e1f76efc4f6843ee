"""Microcanonical Langevin dynamics: the flow, the sphere's law, the energy, and batches' noise."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import ergodax as ex
from ergodax.sampler.microcanonical import energy_error, scatter, turn

CHAINS, STEPS = 4000, 3000


def gaussian(curvature: float | tuple[float, ...] = 1.0):
    return ex.Target(lambda x: 0.5 * jnp.sum(jnp.asarray(curvature, x.dtype) * x**2))


def test_the_turn_is_the_flow_of_its_equation(x64):
    rng = np.random.default_rng(0)
    force, u = 30.0 * rng.normal(size=4), rng.normal(size=4)
    u /= np.linalg.norm(u)

    def slope(_, z):
        return np.append((force - z[:4] * (z[:4] @ force)) / 3.0, z[:4] @ force)

    right = solve_ivp(slope, (0.0, 0.7), np.append(u, 0.0), rtol=1e-11, atol=1e-11).y[:, -1]
    found, kinetic = turn(jnp.asarray(u), jnp.asarray(force), 0.7)
    np.testing.assert_allclose(found, right[:4], atol=1e-8)
    np.testing.assert_allclose(kinetic, right[4], rtol=1e-8)
    still, nothing = turn(jnp.asarray(u), jnp.zeros(4), 0.7)
    np.testing.assert_allclose(still, u, atol=1e-15)
    assert nothing == 0.0


def test_a_force_of_any_size_leaves_a_direction():
    for size in (1e-30, 1e8, 1e18):
        turned, kinetic = turn(jnp.array([-1.0, 0.0, 0.0]), jnp.array([size, 0.0, size]), 0.1)
        assert np.isfinite(kinetic)
        np.testing.assert_allclose(jnp.linalg.norm(turned), 1.0, rtol=1e-6)


@pytest.mark.parametrize(
    ("size", "length", "time", "cosine"),
    [(2, 2.0**0.5, 0.1, 0.9591689293), (10, 10.0**0.5, 0.25, 0.9293747032)],
)
def test_directions_are_forgotten_at_the_exact_rate(size, length, time, cosine, key):
    """The mean cosine of a million turns within five standard errors."""
    u = jnp.zeros(size).at[0].set(1.0)
    keys = jax.random.split(key, 1_000_000)
    found = np.asarray(jax.jit(jax.vmap(lambda k: scatter(k, u, time / length)[0]))(keys))
    error = found.std() / 1e3
    assert abs(found.mean() - cosine) < 5.0 * error
    assert abs(np.exp(-time / length) - cosine) > 20.0 * error, "1 / length is not the rate"


def test_the_energy_is_kept_on_average_over_the_target(x64):
    """E exp(-W) = 1 over exp(-U) and the uniform law: by quadrature, for a step of any size."""
    x = np.linspace(-9.0, 9.0, 121)  # of sds; the sum over equal steps converges exponentially
    angles = np.linspace(0.0, 2.0 * np.pi, 128, endpoint=False)
    kernel = ex.microcanonical(ex.FullGradient(gaussian((1.0, 3.0))), 0.5, 1.0)

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(0, None, None))
    @functools.partial(jax.vmap, in_axes=(None, 0, None))
    @functools.partial(jax.vmap, in_axes=(None, None, 0))
    def errors(a, b, angle):
        position = jnp.stack([a, b / jnp.sqrt(3.0)])
        u = jnp.stack([jnp.cos(angle), jnp.sin(angle)])
        state = ex.State(position, {"direction": u}, None, None, jnp.int32(0))
        bare = 0.0  # W without the kinetic part
        for sign, place in ((-1, position), (1, kernel.step(jax.random.key(0), state)[0].position)):
            bare += sign * kernel.gradient.target.potential(place)
        return energy_error(kernel, jax.random.key(0), state), bare

    w, bare = errors(jnp.asarray(x), jnp.asarray(x), jnp.asarray(angles))
    weight = np.exp(-0.5 * x**2)
    law = weight[:, None] * weight / weight.sum() ** 2
    kept, wrong = (np.sum(law * np.exp(-np.asarray(e)).mean(axis=-1)) for e in (w, bare))
    assert abs(kept - 1.0) < 1e-9
    assert abs(wrong - 1.0) > 0.05, "K counts"


def squares(kernel, size, key):
    """E x_i^2, from independent chains that begin at the target, and its standard error."""

    def chain(key):
        key_start, key_first, key_steps = jax.random.split(key, 3)
        state = kernel.init(key_first, jax.random.normal(key_start, (size,)))

        def step(state, key):
            state, _ = kernel.step(key, state)
            return state, state.position**2

        return jax.lax.scan(step, state, jax.random.split(key_steps, STEPS))[1][500:].mean(axis=0)

    found = np.asarray(jax.jit(jax.vmap(chain))(jax.random.split(key, CHAINS)))
    return found.mean(axis=0), found.std(axis=0) / CHAINS**0.5


@pytest.mark.slow
def test_the_law_with_an_exact_gradient(key):
    """The exact moment of the discrete chain, within five standard errors; 1 is not it."""
    moment = 0.981711915321
    kernel = ex.microcanonical(ex.FullGradient(gaussian()), 1.0, 10.0**0.5)
    found, error = squares(kernel, 10, key)
    found, error = found.mean(), error.mean() / 10.0**0.5
    assert abs(found - moment) < 5.0 * error, (found, moment, error)
    assert abs(1.0 - moment) > 10.0 * error


@pytest.mark.slow
def test_preconditioning_takes_the_noise_s_bias_out(key):
    """k = (1, 4) and noise of covariance diag(1, 4): a bias of order h in x, none in its roots."""
    noisy = ex.NoisyGradient(gaussian((1.0, 4.0)), jnp.array([1.0, 4.0]))
    h, length = 0.1, 2.0**0.5
    raw, error = squares(ex.microcanonical(noisy, h, length), 2, key)
    bias = raw - np.array([1.0, 0.25])
    assert np.abs(bias / error).min() > 10.0, (bias, error)
    freed = ex.microcanonical(noisy, h, length, preconditioner=jnp.array([1.0, 0.25]))
    found, error = squares(freed, 2, key)
    clean = ex.microcanonical(
        ex.FullGradient(gaussian((1.0, 4.0))), h, length, preconditioner=jnp.array([1.0, 0.25])
    )
    exact, other = squares(clean, 2, key)
    # what is left is of second order in h
    assert (
        np.abs(found - exact).max() < 0.2 * np.abs(bias).min() + 5.0 * np.hypot(error, other).max()
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 0.0}, "length must be positive"),
        ({"preconditioner": -1.0}, "preconditioner"),
        ({"preconditioner": ex.LowRank(jnp.ones((1, 3)), 1.0)}, "of low rank"),
        ({"step_size": -1.0}, "step_size"),
    ],
)
def test_bad_settings_are_refused(options, message):
    given = {"step_size": 0.1, "length": 1.0} | options
    with pytest.raises(ValueError, match=message):
        ex.microcanonical(ex.FullGradient(gaussian()), **given)


def test_a_line_is_refused():
    kernel = ex.microcanonical(ex.FullGradient(gaussian()), 0.1, 1.0)
    with pytest.raises(ValueError, match="at least 2 numbers"):
        kernel.init(jax.random.key(0), jnp.ones(1))


def test_a_matrix_is_the_vector_on_its_diagonal(key):
    scales = np.array([1.0, 0.25, 4.0], np.float32)
    gradient = ex.FullGradient(gaussian())
    ends = []
    for preconditioner in (scales, np.diag(scales)):
        kernel = ex.microcanonical(gradient, 0.3, 1.0, preconditioner=preconditioner)
        state = kernel.init(key, jnp.ones(3))
        ends.append(kernel.step(key, state)[0].position)
    np.testing.assert_allclose(*ends, rtol=1e-5)
