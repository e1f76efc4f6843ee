"""Injected noise has covariance h (2 T D - h P V P^T) exactly, for every mix of structures."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ergodax import Dense, Diagonal, LowRank, Scalar
from ergodax.recipe.compensation import compensated_noise

H, T, SIZE = 0.2, 0.7, 3
VALUES = np.array([1.0, 1.6, 0.8])
MATRIX = np.array([[1.5, 0.2, 0.0], [0.2, 1.0, 0.3], [0.0, 0.3, 1.2]])
FACTOR = np.array([[0.5, -0.4, 0.3]])


def operator(kind: str, scale: float = 1.0):
    """An operator of a structure, and its matrix."""
    if kind == "scalar":
        return Scalar(1.3 * scale), 1.3 * scale * np.eye(SIZE)
    if kind == "diagonal":
        return Diagonal(jnp.asarray(scale * VALUES)), scale * np.diag(VALUES)
    if kind == "dense":
        return Dense(jnp.asarray(scale * MATRIX)), scale * MATRIX
    rows = np.sqrt(scale) * FACTOR
    return LowRank(jnp.asarray(rows), 0.9 * scale), 0.9 * scale * np.eye(SIZE) + rows.T @ rows


def alone(diffusion, column, covariance, normal):
    """The noise where the gradient enters one variable through one operator."""
    columns = {"x": [(1.0, column)]}
    noise, feasible = compensated_noise(
        {"x": diffusion}, columns, covariance, jnp.asarray(H), jnp.asarray(T), {"x": normal}
    )
    return noise["x"], feasible


def covariance_of(diffusion, column, covariance):
    """The noise is linear in the normal numbers: R by its columns, then R R^T."""

    def noise(normal):
        return alone(diffusion, column, covariance, normal)

    root, feasible = jax.vmap(noise, out_axes=(1, 0))(jnp.eye(SIZE))
    return np.asarray(root @ root.T), bool(feasible.all())


KINDS = ("scalar", "diagonal", "dense", "low rank")
MIXES = list(itertools.product(KINDS, ("scalar", "diagonal", "dense"), KINDS))


@pytest.mark.parametrize(("d", "p", "v"), MIXES)
def test_covariance(d, p, v, x64):
    (diffusion, dm), (column, pm), (covariance, vm) = operator(d), operator(p), operator(v)
    ours, feasible = covariance_of(diffusion, column, covariance)
    expected = H * (2 * T * dm - H * pm @ vm @ pm.T)
    assert np.linalg.eigvalsh(expected).min() > 0 and feasible
    np.testing.assert_allclose(ours, expected, rtol=1e-9, atol=1e-12)


def test_a_column_that_is_not_symmetric_enters_as_p_v_p_transposed(x64):
    """Symmetric columns can't tell P V P^T from P^T V P."""
    p = np.array([[1.0, 0.6, 0.0], [0.0, 0.8, 0.0], [0.2, 0.0, 1.1]])
    (diffusion, d), (covariance, v) = operator("scalar"), operator("dense")
    ours, _ = covariance_of(diffusion, Dense(jnp.asarray(p)), covariance)
    np.testing.assert_allclose(ours, H * (2 * T * d - H * p @ v @ p.T), rtol=1e-9, atol=1e-12)
    assert np.abs(p @ v @ p.T - p.T @ v @ p).max() > 0.1


@pytest.mark.parametrize("v", KINDS)
@pytest.mark.parametrize("d", ["scalar", "diagonal", "dense"])
def test_infeasible_directions_are_clipped_and_flagged(d, v, x64):
    (diffusion, dm), (covariance, vm) = operator(d), operator(v, 12.0)
    ours, feasible = covariance_of(diffusion, Scalar(1.0), covariance)
    # A diagonal with a low-rank covariance is clipped in the coordinates that make it round.
    turn = np.eye(SIZE)
    if (d, v) == ("diagonal", "low rank"):
        turn = np.diag(np.sqrt(np.clip(np.diag(H * (2 * T * dm - H * 0.9 * 12.0)), 0, None)))
    flat = np.linalg.pinv(turn)
    values, vectors = np.linalg.eigh(flat @ (H * (2 * T * dm - H * vm)) @ flat)
    assert values.min() < -0.01, "the case must be infeasible"
    assert not feasible
    clipped = turn @ (vectors * np.clip(values, 0, None)) @ vectors.T @ turn
    np.testing.assert_allclose(ours, clipped, rtol=1e-9, atol=1e-9)


def test_exactly_all_of_the_noise_is_feasible():
    """2 T D = h V leaves nothing to inject, and rounding must not call that a fault."""
    d, v = Scalar(1.0), Scalar(2.0 * T / H)
    noise, feasible = alone(d, Scalar(1.0), v, jnp.ones(SIZE))
    assert bool(feasible)
    np.testing.assert_allclose(noise, 0.0, atol=1e-3)


@pytest.mark.parametrize("enters", [True, False])
def test_nothing_is_injected_that_could_be_lowered(enters, x64):
    """D = 0 in a coordinate: feasible only where the gradient's noise does not enter it."""
    factor = FACTOR * np.array([1.0, 1.0, float(enters)])
    diffusion, column = Diagonal(jnp.array([1.0, 1.6, 0.0])), Diagonal(jnp.ones(SIZE))
    found, feasible = covariance_of(diffusion, column, LowRank(jnp.asarray(factor)))
    assert feasible is (not enters)
    expected = 2 * H * T * np.diag([1.0, 1.6, 0.0]) - H**2 * factor.T @ factor
    assert np.allclose(found, expected, atol=1e-12) is (not enters)
