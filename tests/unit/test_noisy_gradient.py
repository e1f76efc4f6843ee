"""Gradients with noise of a known law."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex

MATRIX = np.array([[2.0, 0.6], [0.6, 1.0]])
TARGET = ex.Target(lambda x: 0.5 * jnp.sum(x**2))
COVARIANCES = {
    "number": (1.5, 1.5 * np.eye(2)),
    "vector": (np.array([1.0, 2.0]), np.diag([1.0, 2.0])),
    "matrix": (MATRIX, MATRIX),
    "operator": (ex.LowRank(jnp.ones((1, 2)), 0.5), 0.5 * np.eye(2) + 1.0),
    "function": (lambda x: jnp.asarray(MATRIX, x.dtype) * x[0] ** 2, 4.0 * MATRIX),
}
POINT = np.array([2.0, -1.0], "f4")
REPEATS = 40_000


@pytest.mark.parametrize("kind", COVARIANCES)
def test_law_of_the_noise(kind, key):
    """Mean and covariance within 5 standard errors, of which there are 5 numbers."""
    given, expected = COVARIANCES[kind]
    estimator = ex.NoisyGradient(TARGET, given)

    def one(key):
        return estimator.estimate(key, None, jnp.asarray(POINT))[0]

    estimates = jax.vmap(one)(jax.random.split(key, REPEATS))
    noise = np.asarray(estimates.gradient) - POINT
    error = np.sqrt(np.diag(expected) / REPEATS)
    assert (np.abs(noise.mean(0)) < 5 * error).all()
    fourth = np.outer(np.diag(expected), np.diag(expected)) + expected**2
    assert (np.abs(noise.T @ noise / REPEATS - expected) < 5 * np.sqrt(fourth / REPEATS)).all()
    np.testing.assert_allclose(estimates.potential, 2.5)
    assert (estimates.evaluations == 1).all()
    claimed = one(key).covariance
    assert claimed is not None
    columns = np.stack([claimed.mv(jnp.asarray(e, "float32")) for e in np.eye(2)], axis=1)
    np.testing.assert_allclose(columns, expected, rtol=1e-5)


def test_known_covariance_leaves_the_estimate_alone(key):
    inner = ex.NoisyGradient(TARGET, 1.5)
    known = ex.KnownCovariance(inner, MATRIX)
    x = jnp.asarray(POINT)
    ours, _ = known.estimate(key, known.init(key, x), x)
    theirs, _ = inner.estimate(key, None, x)
    np.testing.assert_array_equal(ours.gradient, theirs.gradient)
    assert ours.covariance is not None
    np.testing.assert_allclose(ours.covariance.mv(x), MATRIX @ POINT, rtol=1e-6)
    assert known.target is TARGET
