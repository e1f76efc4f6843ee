"""Mode finding and whitening against what is known exactly."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.target.mode import find_mode
from ergodax.tune import whiten


def linear_model(size=400, dimension=4, seed=3):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(size, dimension)) @ np.diag([1.0, 3.0, 0.3, 1.0])
    y = x @ rng.normal(size=dimension) + rng.normal(size=size)

    def log_likelihood(w, row):
        return -0.5 * (row[1] - row[0] @ w) ** 2

    posterior = ex.Posterior(lambda w: -0.5 * jnp.sum(w**2), log_likelihood, (x, y))
    precision = x.T @ x + np.eye(dimension)
    return posterior, np.linalg.solve(precision, x.T @ y), precision, x, y


def test_mode_of_a_linear_model(x64):
    posterior, mean, *_ = linear_model()
    mode = find_mode(posterior, jnp.zeros(4), tolerance=1e-9)
    assert bool(mode.converged)
    np.testing.assert_allclose(mode.position, mean, rtol=1e-7)
    np.testing.assert_allclose(mode.potential, posterior.potential(mode.position))


def test_mode_keeps_the_position_s_structure():
    target = ex.Target(lambda z: jnp.sum((z["a"] - 1.0) ** 2) + jnp.sum((z["b"] + 2.0) ** 4))
    mode = find_mode(target, {"a": jnp.zeros(2), "b": jnp.zeros(())})
    np.testing.assert_allclose(mode.position["a"], 1.0, atol=1e-3)
    np.testing.assert_allclose(mode.position["b"], -2.0, atol=0.05)


def test_an_unbounded_potential_does_not_converge():
    mode = find_mode(ex.Target(lambda x: -jnp.sum(x**2)), jnp.ones(2), max_iterations=20)
    assert not bool(mode.converged)


def test_whitening_is_exact_for_a_linear_model(x64):
    # The Hessian is constant, so every draw gives the same one; the noise covariance varies
    # with w, and is compared at one draw's worth of precision.
    posterior, mean, precision, x, y = linear_model()
    result = whiten(posterior, jnp.asarray(mean), 20, key=jax.random.key(1))
    np.testing.assert_allclose(result.centre, mean, rtol=1e-6)
    np.testing.assert_allclose(result.basis.T @ precision @ result.basis, np.eye(4), atol=1e-8)
    scores = x * (y - x @ mean)[:, None]
    noise = 400 * 380 / 20 * np.cov(scores.T)
    rotated = np.asarray(result.basis.T @ noise @ result.basis)
    np.testing.assert_allclose(np.diag(rotated), result.noise, rtol=0.05)
    assert np.all(np.abs(rotated - np.diag(np.diag(rotated))) < 0.05 * rotated.max())


def test_whitening_from_a_sample_of_the_rows(x64):
    posterior, mean, precision, *_ = linear_model(size=4000)
    result = whiten(posterior, jnp.asarray(mean), 20, key=jax.random.key(1), max_rows=2000)
    # Half of the rows give the Hessian to a few percent and leave the centre where it was.
    found = np.asarray(result.basis.T @ precision @ result.basis)
    np.testing.assert_allclose(np.diag(found), 1.0, atol=0.2)
    offset = np.linalg.cholesky(precision).T @ (np.asarray(result.centre) - mean)
    assert np.abs(offset).max() < 1e-6


def test_a_saddle_is_refused():
    posterior = ex.Posterior(
        lambda w: 5.0 * jnp.sum(w**2), lambda w, y: -jnp.sum(w) * y, jnp.ones(9)
    )
    with pytest.raises(ValueError, match="not positive definite"):
        whiten(posterior, jnp.zeros(2), 3, key=jax.random.key(0))
