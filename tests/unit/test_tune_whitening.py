"""Affine coordinates: there and back, and a target seen through them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax import tree
from ergodax.tune.whitening import Coordinates, LowRank, in_coordinates

_RNG = np.random.default_rng(5)
WIDE = np.tril(_RNG.normal(size=(3, 3))) + 3.0 * np.eye(3)
DIAGONAL = np.array([0.5, 2.0, -3.0])
BASES = {"dense": WIDE, "diagonal": DIAGONAL, "low rank": DIAGONAL}
LEFT, RIGHT = np.array([[0.5], [-1.0], [2.0]]), np.array([[0.3], [0.2], [0.6]])
BACK = -LEFT / (1.0 + np.sum(LEFT * RIGHT))
CENTRES = {
    "vector": np.array([1.0, -2.0, 0.5]),
    "tree": {"b": np.array(1.0), "w": (np.array([-2.0]), np.array([[0.5]]))},
}
U = np.array([0.3, -0.7, 1.1])


def coordinates(centre="vector", basis="dense", dtype=None):
    make = lambda x: jnp.asarray(x, dtype)  # noqa: E731
    low_rank = LowRank(make(LEFT), make(BACK), make(RIGHT)) if basis == "low rank" else None
    return Coordinates(jax.tree.map(make, CENTRES[centre]), make(BASES[basis]), low_rank)


def matrix(basis):
    if basis == "low rank":
        return np.diag(DIAGONAL) @ (np.eye(3) + LEFT @ RIGHT.T)
    return WIDE if basis == "dense" else np.diag(DIAGONAL)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("basis", BASES)
@pytest.mark.parametrize("centre", CENTRES)
def test_there_and_back(centre, basis):
    map_ = coordinates(centre, basis)
    position = map_.position(jnp.asarray(U))
    assert jax.tree.structure(position) == jax.tree.structure(CENTRES[centre])
    moved = tree.ravel(position)[0] - tree.ravel(map_.centre)[0]
    np.testing.assert_allclose(moved, matrix(basis) @ U, rtol=1e-12)
    np.testing.assert_allclose(map_.of(position), U, rtol=1e-12)
    rows = jax.tree.map(lambda x: x[None], position)
    np.testing.assert_allclose(map_.of_rows(rows), U[None], rtol=1e-12)
    np.testing.assert_allclose(map_.scales, np.linalg.norm(matrix(basis), axis=1), rtol=1e-12)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("factor", ["dense", "diagonal"])
@pytest.mark.parametrize("basis", BASES)
def test_moved_is_the_composition(basis, factor):
    map_, mean = coordinates(basis=basis), jnp.array([1.0, 2.0, -1.0])
    new = map_.moved(mean, jnp.asarray(BASES[factor]))
    inner = mean + matrix(factor) @ U
    np.testing.assert_allclose(new.position(jnp.asarray(U)), map_.position(inner), rtol=1e-12)
    assert new.basis.ndim == (2 if "dense" in (basis, factor) else 1)
    assert (new.low_rank is not None) == (basis == "low rank" and factor == "diagonal")


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_the_position_keeps_its_dtype(dtype, x64):
    map_ = coordinates("tree", dtype=dtype)
    for u in (jnp.asarray(U, dtype), jnp.asarray(U, jnp.float32)):
        assert {x.dtype for x in jax.tree.leaves(map_.position(u))} == {jnp.dtype(dtype)}


def test_leaves_that_are_not_arrays_come_back():
    map_ = Coordinates({"act": jnp.tanh, "w": jnp.ones(2)}, jnp.ones(2))
    position = map_.position(jnp.zeros(2))
    assert position["act"] is jnp.tanh
    np.testing.assert_array_equal(map_.of(position), jnp.zeros(2))


def linear_model(batched: bool):
    x, y = _RNG.normal(size=(20, 3)), _RNG.normal(size=20)

    def log_likelihood(w, row):
        return -jnp.cosh(row[1] - row[0] @ w)

    return ex.Posterior(lambda w: -0.5 * w @ w, log_likelihood, (x, y), batched=batched)


def banana():
    return ex.Target(lambda z: 0.5 * jnp.sum(z**2) + (z[0] - z[1] ** 2) ** 2)


TARGETS = {
    "target": banana,
    "posterior": lambda: linear_model(False),
    "batched": lambda: linear_model(True),
}


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("basis", BASES)
@pytest.mark.parametrize("name", TARGETS)
def test_values_are_kept_and_gradients_follow_the_chain_rule(name, basis):
    target, map_ = TARGETS[name](), coordinates(basis=basis)
    inner, u = in_coordinates(target, map_), jnp.asarray(U)
    at = map_.position(u)
    np.testing.assert_allclose(inner.potential(u), target.potential(at), rtol=1e-12)
    expected = matrix(basis).T @ target.gradient(at)
    np.testing.assert_allclose(inner.gradient(u), expected, rtol=1e-10)
    assert np.linalg.norm(expected - target.gradient(at)) > 0.1, "the chain rule matters here"


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", ["posterior", "batched"])
def test_a_posterior_keeps_its_data_and_its_examples(name):
    target, map_ = TARGETS[name](), coordinates()
    inner, u = in_coordinates(target, map_), jnp.asarray(U)
    assert isinstance(inner, ex.Posterior) and inner.batched == target.batched
    for mine, theirs in zip(*map(jax.tree.leaves, (inner.data, target.data)), strict=True):
        assert mine is theirs, "the data are not copied"
    rows = jax.tree.map(lambda x: x[3:8], target.data)
    scores = target.per_example_gradients(map_.position(u), rows)
    np.testing.assert_allclose(inner.per_example_gradients(u, rows), scores @ WIDE, rtol=1e-10)


def test_other_numbers_need_no_new_program():
    traced = []

    @eqx.filter_jit
    def potential(target, u):
        traced.append(1)
        return target.potential(u)

    for target in (banana(), linear_model(False)):
        traced.clear()
        for scale in (1.0, 2.0):
            inner = in_coordinates(target, Coordinates(jnp.full(3, scale), scale * jnp.eye(3)))
            potential(inner, jnp.zeros(3))
        assert len(traced) == 1
