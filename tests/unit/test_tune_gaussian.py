"""The Gaussian whose precision is the Hessian averaged over it: exact where the average is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.tune import curvature
from ergodax.tune.curvature import _geometric_mean, averaged_gaussian

KEY = jax.random.key(5)


def posterior(potential, size=8):
    """The potential as a likelihood whose examples all say the same; the prior is flat."""
    data = jnp.zeros(size)
    return ex.Posterior(
        lambda w: 0.0 * jnp.sum(w), lambda w, x: -(potential(w) + 0.0 * x) / size, data
    )


def quartic(weak):
    """weak x^2 / 2 + (x - 1)^4 / 4 about 1: the averaged Hessian is weak + 3 / H."""
    return lambda w: jnp.sum(0.5 * weak * (w - 1.0) ** 2 + 0.25 * (w - 1.0) ** 4)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("weak", [1e-2, 1.0])
def test_a_quartic_does_not_oscillate(weak):
    """At the mode the curvature is `weak`; without the geometric mean two rounds lead back to it.

    The averaged Hessian is exact, since each coordinate's draws have mean square 1.
    """
    exact = 0.5 * (weak + np.sqrt(weak**2 + 12.0))
    found = averaged_gaussian(posterior(quartic(weak)), jnp.ones(2), key=KEY, num_rounds=6)
    np.testing.assert_allclose(found.hessian, exact * np.eye(2), atol=0.02 * exact)
    np.testing.assert_allclose(found.centre, 1.0, atol=1e-6)
    # The negative control: where the undamped iteration is after six rounds.
    undamped = weak
    for _ in range(6):
        undamped = weak + 3.0 / undamped
    assert abs(undamped / exact - 1.0) > (0.5 if weak < 0.1 else 0.02)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("num_pairs", [1, 4])
def test_a_gaussian_is_found_at_once(num_pairs, monkeypatch):
    monkeypatch.setattr(curvature, "PAIRS", num_pairs)
    matrix = np.array([[2.0, 0.9], [0.9, 5.0]])
    target = posterior(lambda w: 0.5 * (w - 1.0) @ jnp.asarray(matrix) @ (w - 1.0))
    found = averaged_gaussian(target, jnp.ones(2), key=KEY, num_rounds=1)
    np.testing.assert_allclose(found.hessian, matrix, rtol=1e-10)
    np.testing.assert_allclose(found.centre, 1.0, rtol=1e-10)
    np.testing.assert_allclose(found.basis.T @ matrix @ found.basis, np.eye(2), atol=1e-10)


@pytest.mark.usefixtures("x64")
def test_some_of_the_rows_stand_for_all(monkeypatch):
    """Half of them give the Hessian to a few percent and leave the centre where it was."""
    monkeypatch.setattr(curvature, "SOME", 2000)
    rng = np.random.default_rng(3)
    x = rng.normal(size=(4000, 4)) @ np.diag([1.0, 3.0, 0.3, 1.0])
    y = x @ rng.normal(size=4) + rng.normal(size=4000)
    model = ex.Posterior(
        lambda w: -0.5 * jnp.sum(w**2), lambda w, row: -0.5 * (row[1] - row[0] @ w) ** 2, (x, y)
    )
    precision = x.T @ x + np.eye(4)
    mean = np.linalg.solve(precision, x.T @ y)
    found = averaged_gaussian(model, jnp.asarray(mean), key=KEY)
    np.testing.assert_allclose(np.diag(found.basis.T @ precision @ found.basis), 1.0, atol=0.2)
    offset = np.linalg.cholesky(precision).T @ (found.centre - mean)
    assert np.abs(offset).max() < 1e-6


@pytest.mark.usefixtures("x64")
def test_the_centre_of_a_cubic_moves_to_the_mean_of_the_gaussian():
    """U = x^2 / 2 + c x^3: E[U'] = m + 3 c (m^2 + 1 / H) = 0 with H = 1 + 6 c m, solved here."""
    c, m, h = 0.05, 0.0, 1.0
    for _ in range(200):
        m, h = -3.0 * c * (m**2 + 1.0 / h), 1.0 + 6.0 * c * m
    target = posterior(lambda w: jnp.sum(0.5 * w**2 + c * w**3))
    found = averaged_gaussian(target, jnp.zeros(1), key=KEY, num_rounds=12)
    np.testing.assert_allclose(found.centre, m, rtol=1e-3)
    np.testing.assert_allclose(found.hessian, h, rtol=1e-3)
    assert abs(m) > 0.1, "the mode is not the centre"


def test_the_geometric_mean_is_the_one_between():
    rng = np.random.default_rng(2)
    a, b = (x @ x.T + np.eye(3) for x in rng.normal(size=(2, 3, 3)))
    mean = _geometric_mean(a, b)
    np.testing.assert_allclose(mean, mean.T, rtol=1e-10)
    np.testing.assert_allclose(mean @ np.linalg.solve(a, mean), b, rtol=1e-9)  # Riccati's equation
    np.testing.assert_allclose(_geometric_mean(a, a), a, rtol=1e-10)
    np.testing.assert_allclose(_geometric_mean(b, a), mean, rtol=1e-9)


def test_a_saddle_is_refused():
    with pytest.raises(ValueError, match="not positive definite"):
        averaged_gaussian(posterior(lambda w: w[0] ** 2 - w[1] ** 2), jnp.zeros(2), key=KEY)
