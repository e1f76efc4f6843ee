"""The scale of a posterior: exact on Gaussians, finite everywhere else."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.tune.curvature import curvature_coordinates, draws_coordinates, round_coordinates
from ergodax.tune.host import some_rows
from ergodax.tune.whitening import Coordinates

KEY = jax.random.key(2)
_RNG = np.random.default_rng(8)


def precision(condition: float, d: int = 4) -> np.ndarray:
    rotation = np.linalg.qr(_RNG.normal(size=(d, d)))[0]
    return rotation @ np.diag(np.geomspace(1.0, condition, d)) @ rotation.T


def gaussian(matrix) -> ex.Target:
    matrix = jnp.asarray(matrix)
    return ex.Target(lambda x: 0.5 * x @ matrix.astype(x.dtype) @ x)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("condition", [1.0, 1e4, 1e8])
def test_identity_curvature_on_a_gaussian(condition):
    matrix = precision(condition)
    found = curvature_coordinates(gaussian(matrix), jnp.zeros(4), key=KEY)
    np.testing.assert_allclose(found.basis.T @ matrix @ found.basis, np.eye(4), atol=1e-6)
    np.testing.assert_array_equal(found.centre, jnp.zeros(4))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_units_do_not_matter(dtype, x64):
    units, close = np.array([1e-3, 1.0, 1e4]), np.full((3, 3), 0.9) + 0.1 * np.eye(3)
    matrix = close / np.outer(units, units)
    found = curvature_coordinates(gaussian(matrix), jnp.zeros(3, dtype), key=KEY)
    assert found.basis.dtype == dtype
    basis = np.asarray(found.basis, np.float64)
    np.testing.assert_allclose(basis.T @ matrix @ basis, np.eye(3), atol=1e-4)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("matrix", [np.diag([4.0, -9.0]), np.array([[0.0, 5.0], [5.0, 0.0]])])
def test_a_saddle_has_a_scale(matrix):
    found = curvature_coordinates(gaussian(matrix), jnp.zeros(2), key=KEY)
    curvature = np.asarray(found.basis.T @ matrix @ found.basis)
    np.testing.assert_allclose(np.sort(np.linalg.eigvalsh(curvature)), [-1.0, 1.0], rtol=1e-10)


@pytest.mark.parametrize("matrix", [np.zeros((2, 2)), np.diag([1.0, 0.0]), np.ones((2, 2))])
def test_a_flat_direction_has_a_finite_scale(matrix):
    found = curvature_coordinates(gaussian(matrix), jnp.zeros(2), key=KEY)
    assert bool(jnp.all(jnp.isfinite(found.basis)))
    assert np.linalg.matrix_rank(np.asarray(found.basis)) == 2


def linear_model(size=60, d=3):
    x = _RNG.normal(size=(size, d)) @ np.diag(np.geomspace(0.1, 10.0, d))
    y = x @ np.ones(d) + _RNG.normal(size=size)

    def log_likelihood(w, row):
        return -0.5 * (row[1] - row[0] @ w) ** 2

    target = ex.Posterior(lambda w: -0.5 * jnp.sum(w**2), log_likelihood, (x, y))
    matrix = x.T @ x + np.eye(d)
    return target, np.linalg.solve(matrix, x.T @ y), matrix


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("make", [round_coordinates, curvature_coordinates])
def test_a_linear_model_is_round(make):
    target, mean, matrix = linear_model()
    found = make(target, jnp.asarray(mean), key=KEY)
    np.testing.assert_allclose(found.centre, mean, rtol=1e-8)
    np.testing.assert_allclose(found.basis.T @ matrix @ found.basis, np.eye(3), atol=1e-8)


def test_round_coordinates_fall_back_where_the_curvature_is_not_positive():
    target = ex.Posterior(
        lambda w: -jnp.sum(w**4), lambda w, x: jnp.sum((w - x) ** 2), jnp.zeros(10)
    )
    found = round_coordinates(target, jnp.zeros(2), key=KEY)
    np.testing.assert_allclose(np.abs(found.basis @ found.basis.T), np.eye(2) / 20.0, atol=1e-5)


@pytest.mark.usefixtures("x64")
def test_beyond_30000_dimensions_the_fisher_information_makes_a_diagonal():
    d, rows = 30_001, 6
    x = _RNG.normal(size=(rows, d))
    target = ex.Posterior(
        lambda w: -0.5 * jnp.sum(w**2), lambda w, x: -0.5 * jnp.sum((x - w) ** 2), x
    )
    found = curvature_coordinates(target, jnp.zeros(d), key=KEY)
    assert found.low_rank is None
    np.testing.assert_allclose(found.basis, 1.0 / np.sqrt((x**2).sum(axis=0) + 1.0), rtol=1e-6)


@pytest.mark.usefixtures("x64")
def test_a_diagonal_stays_one_beyond_1024_dimensions():
    scales = np.linspace(0.5, 2.0, 1025)
    found = curvature_coordinates(gaussian(np.diag(scales**-2)), jnp.zeros(1025), key=KEY)
    assert found.low_rank is None
    np.testing.assert_allclose(found.basis, scales, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("num_data", [4_000, 40_000])
def test_beyond_1024_dimensions_sharp_directions_are_rounded(num_data):
    """Of a linear regression on features that share a factor and differ in scale."""
    d, rng = 1100, np.random.default_rng(20261122)
    scales = np.geomspace(0.01, 100.0, d)
    x = (rng.normal(size=(num_data, d)) + 3.0 * rng.normal(size=(num_data, 1))) * scales
    y = rng.normal(size=num_data)
    target = ex.Posterior(
        lambda w: -0.5 * jnp.sum(w**2),
        lambda w, row: -0.5 * (row[1] - row[0] @ w) ** 2,
        (x.astype(np.float32), y.astype(np.float32)),
    )
    matrix = x.T @ x + np.eye(d)
    found = curvature_coordinates(target, jnp.zeros(d), key=KEY)

    def spread(low_rank):
        """Of the curvatures, but for what the rows' number leaves to chance."""
        inner = np.eye(d) if low_rank is None else low_rank.times_rows(np.eye(d)).T
        factor = np.asarray(found.basis, np.float64)[:, None] * inner
        values = np.linalg.eigvalsh(factor.T @ matrix @ factor)
        return values[-1] / values[0]

    chance = ((1.0 + np.sqrt(d / num_data)) / (1.0 - np.sqrt(d / num_data))) ** 2
    assert found.low_rank is not None and spread(found.low_rank) < 1.5 * chance
    assert spread(None) > 1000.0, "the control: a diagonal alone"


@pytest.mark.usefixtures("x64")
def test_draws_make_coordinates():
    draws = _RNG.normal(size=(400, 3)) @ precision(100.0, 3) + np.array([5.0, -1.0, 0.0])
    old = Coordinates(jnp.ones(3), jnp.asarray([1.0, 2.0, 3.0]))
    new = draws_coordinates(old, draws)
    seen = np.asarray(jax.vmap(lambda u: new.of(old.position(u)))(jnp.asarray(draws)))
    np.testing.assert_allclose(seen.mean(axis=0), 0.0, atol=1e-10)
    kept = 400 / (400 + 15)  # the share of the covariance besides its diagonal
    shrunk = kept * np.cov(draws.T) + (1.0 - kept) * np.diag(draws.var(axis=0))
    basis = np.diag([1.0, 2.0, 3.0])
    np.testing.assert_allclose(new.basis @ new.basis.T, basis @ shrunk @ basis, rtol=1e-8)


def test_fewer_draws_than_dimensions_still_make_coordinates():
    draws = _RNG.normal(size=(5, 20))
    draws[:, 0] = 1.0  # a component that never moved
    new = draws_coordinates(Coordinates(jnp.zeros(20), jnp.ones(20)), draws)
    assert bool(jnp.all(jnp.isfinite(new.basis)))
    assert np.linalg.matrix_rank(np.asarray(new.basis, np.float64)) == 20
    wide = draws_coordinates(Coordinates(jnp.zeros(1025), jnp.ones(1025)), np.eye(3, 1025))
    assert wide.basis.shape == (1025,)


def test_some_rows_are_different_rows():
    rows = jnp.arange(1000)
    target = ex.Posterior(lambda w: w, lambda w, x: w * x, rows)
    few = np.asarray(some_rows(target, KEY, 300))
    assert len(np.unique(few)) == 300 and few.max() < 1000
    np.testing.assert_array_equal(some_rows(target, KEY, 1000), rows)
    assert some_rows(gaussian(np.eye(2)), KEY, 10) is None


def test_data_on_disk_are_refused(tmp_path, key):
    np.save(tmp_path / "x.npy", np.ones((3000, 2), np.float32))
    source = ex.data.npy(tmp_path / "x.npy", block_rows=100)
    posterior = ex.Posterior(lambda w: -w @ w, lambda w, x: -(w @ x), source)
    for refuse in (ex.infer, round_coordinates):
        with pytest.raises(TypeError, match="needs all data in memory, but .* a source"):
            refuse(posterior, jnp.zeros(2), key=key)
