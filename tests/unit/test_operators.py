"""Operators against the matrices that they stand for, on a vector and on a tree."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ergodax import Column, Dense, Diagonal, LowRank, Scalar, tree
from ergodax.recipe.operators.algebra import as_operator, solve_sum

D = 4
VALUES = np.array([0.5, 2.0, 1.5, 3.0])
MATRIX = np.array([[2, 0.5, 0.1, 0], [0.5, 1, 0, 0.2], [0.1, 0, 3, -0.4], [0, 0.2, -0.4, 1.5]])
FACTOR = np.array([[1.0, -1.0, 0.5, 0.0], [0.3, 0.2, 0.0, 2.0]])
NAMES = ("scalar", "diagonal", "dense", "factorised", "low rank")
STRUCTURES = ("scalar", "diagonal", "dense", "low rank")


def shape_like(block: str, vector) -> object:
    """Four numbers as a vector or as a tree."""
    x = jnp.asarray(vector)
    if block in ("vector", "matrix"):
        return x
    return {"a": x[..., :3], "b": (x[..., 3],)}


def make(name: str, block: str = "vector"):
    """The operator and its matrix; inside a test, so that it has the test's precision."""
    if name == "scalar":
        return Scalar(1.7), 1.7 * np.eye(D)
    if name == "diagonal":
        return Diagonal(shape_like(block, VALUES)), np.diag(VALUES)
    if name == "dense":
        return Dense(MATRIX), MATRIX
    if name == "factorised":
        return Dense(MATRIX).factorise(), MATRIX
    return LowRank(shape_like(block, FACTOR), 0.7), 0.7 * np.eye(D) + FACTOR.T @ FACTOR


def columns(function, block: str) -> np.ndarray:
    """The matrix of a linear map on blocks."""
    images = [tree.ravel(function(shape_like(block, e)))[0] for e in np.eye(D)]
    return np.stack(images, axis=1)


@pytest.mark.parametrize("block", ["vector", "tree"])
@pytest.mark.parametrize("name", NAMES)
def test_operator_is_its_matrix(name, block, x64):
    operator, matrix = make(name, block)
    same: dict[str, Any] = {"rtol": 1e-12, "atol": 1e-12}
    np.testing.assert_allclose(columns(operator.mv, block), matrix, **same)
    np.testing.assert_allclose(columns(operator.transpose().mv, block), matrix.T, **same)
    np.testing.assert_allclose(columns(operator.solve, block), np.linalg.inv(matrix), **same)
    root = columns(operator.sqrt_mv, block)
    np.testing.assert_allclose(root @ root.T, matrix, **same)


@pytest.mark.parametrize("block", ["vector", "tree"])
@pytest.mark.parametrize("name", NAMES)
def test_functions_of_the_eigenvalues(name, block, x64):
    operator, matrix = make(name, block)
    values, vectors = np.linalg.eigh(matrix)
    expected = vectors @ np.diag(np.exp(-values)) @ vectors.T
    ours = columns(lambda x: operator.spectral(lambda v: jnp.exp(-v), x), block)
    np.testing.assert_allclose(ours, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("block", ["vector", "tree", "matrix"])
@pytest.mark.parametrize("name", NAMES)
def test_the_block_keeps_its_precision(name, block, x64):
    """A mass in double precision promotes no position in single precision."""
    operator, _ = make(name, block)
    x = jax.tree.map(lambda leaf: leaf.astype("float32"), shape_like(block, VALUES))
    if block == "matrix":  # a vector of numbers for a block of another shape, as a user's mass
        operator, x = Diagonal(jnp.asarray(VALUES)), jnp.ones((2, 2), "float32")
    for function in (operator.mv, operator.solve, operator.sqrt_mv):
        assert {leaf.dtype.name for leaf in jax.tree.leaves(function(x))} == {"float32"}


@pytest.mark.parametrize("name", NAMES)
def test_scaled(name, x64):
    operator, matrix = make(name)
    scaled = operator.scaled(0.3)
    np.testing.assert_allclose(columns(scaled.mv, "vector"), 0.3 * matrix, rtol=1e-12)
    root = columns(scaled.sqrt_mv, "vector")
    np.testing.assert_allclose(root @ root.T, 0.3 * matrix, rtol=1e-11, atol=1e-12)
    inverse = columns(scaled.solve, "vector")
    np.testing.assert_allclose(inverse @ (0.3 * matrix), np.eye(D), atol=1e-12)


@pytest.mark.parametrize("block", ["vector", "tree"])
@pytest.mark.parametrize("second", STRUCTURES)
@pytest.mark.parametrize("first", STRUCTURES)
def test_solving_with_a_sum(first, second, block, x64):
    (a, first_matrix), (b, second_matrix) = make(first, block), make(second, block)
    expected = np.linalg.inv(0.3 * first_matrix + 2.5 * second_matrix)
    ours = columns(lambda x: solve_sum(0.3, a, 2.5, b, x), block)
    np.testing.assert_allclose(ours, expected, rtol=1e-11, atol=1e-12)
    without = columns(lambda x: solve_sum(0.3, a, 0.0, b, x), block)
    np.testing.assert_allclose(without, np.linalg.inv(0.3 * first_matrix), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("second", STRUCTURES)
@pytest.mark.parametrize("first", STRUCTURES)
def test_solving_with_a_sum_keeps_the_precision_of_the_block(first, second, x64):
    x = jax.tree.map(lambda leaf: leaf.astype("float32"), shape_like("tree", VALUES))
    weight = jnp.asarray(0.3)  # double precision, as a step size may be
    solved = solve_sum(weight, make(first, "tree")[0], weight, make(second, "tree")[0], x)
    assert {leaf.dtype.name for leaf in jax.tree.leaves(solved)} == {"float32"}


def test_solving_with_a_low_rank_makes_no_matrix(x64):
    """In 100,000 dimensions, where a matrix would take 80 GB."""
    d = 100_000
    factor = jnp.stack([jnp.ones(d), jnp.linspace(-1.0, 1.0, d)])
    for mass in (Scalar(2.0), Diagonal(jnp.linspace(1.0, 2.0, d))):
        noise, x = LowRank(factor, 0.5), jnp.linspace(0.0, 1.0, d)
        y = jax.jit(lambda m, v, x: solve_sum(1.5, m, 0.1, v, x))(mass, noise, x)
        back = 1.5 * mass.mv(y) + 0.1 * noise.mv(y)
        np.testing.assert_allclose(back, x, atol=1e-9)


def test_low_rank_with_dependent_rows_and_no_base(x64):
    """Rank one in three rows: the Gram matrix is singular."""
    row = np.array([1.0, -2.0, 0.5, 0.0])
    operator = LowRank(jnp.asarray(np.stack([row, 2 * row, 0 * row])), 0.0)
    matrix = 5.0 * np.outer(row, row)
    np.testing.assert_allclose(columns(operator.mv, "vector"), matrix, atol=1e-12)
    root = columns(operator.sqrt_mv, "vector")
    np.testing.assert_allclose(root @ root.T, matrix, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("block", ["vector", "tree"])
def test_column_and_row(block, x64):
    column = Column(shape_like(block, VALUES))
    np.testing.assert_allclose(tree.ravel(column.mv(jnp.asarray(2.0)))[0], 2.0 * VALUES)
    x = np.array([1.0, -1.0, 2.0, 0.5])
    row = column.transpose()
    np.testing.assert_allclose(row.mv(shape_like(block, x)), VALUES @ x)
    np.testing.assert_allclose(
        column.scaled(3.0).transpose().mv(shape_like(block, x)), 3 * VALUES @ x
    )
    assert not row.transpose().row
    for name in ("sqrt_mv", "solve"):
        with pytest.raises(TypeError, match="Column"):
            getattr(column, name)(jnp.asarray(1.0))
    with pytest.raises(TypeError, match="not symmetric"):
        column.spectral(jnp.exp, jnp.asarray(1.0))


def test_transpose_of_a_matrix_that_is_not_symmetric(x64):
    a = np.arange(16.0).reshape(4, 4)
    np.testing.assert_array_equal(columns(Dense(a).transpose().mv, "vector"), a.T)


def test_root_of_a_singular_matrix_without_factors(x64):
    """Cholesky fails there, and the eigenvalues take over."""
    row = np.array([1.0, 2.0, 3.0, 4.0])
    operator = Dense(np.outer(row, row))
    root = columns(jax.jit(lambda x: operator.sqrt_mv(x)), "vector")
    np.testing.assert_allclose(root @ root.T, np.outer(row, row), rtol=1e-6, atol=1e-6)


BAD = {
    "negative number": (lambda: Scalar(-1.0), "mass must not be negative.*-1.0"),
    "not a number": (lambda: Scalar(jnp.nan), "mass must not be negative"),
    "negative entry": (lambda: Diagonal(jnp.array([1.0, -2.0])), "mass must not be negative.*-2.0"),
    "not symmetric": (lambda: Dense(jnp.array([[1.0, 1.0], [0.0, 1.0]])), "mass.*symmetric"),
    "indefinite": (lambda: Dense(jnp.diag(jnp.array([1.0, -2.0]))), "mass.*semidefinite.*-2"),
}


@pytest.mark.parametrize("case", BAD)
def test_factorise_refuses(case):
    make_operator, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        make_operator().factorise("mass")


def test_a_matrix_must_be_square():
    with pytest.raises((ValueError, TypeError)):
        Dense(jnp.ones((2, 3)))


@pytest.mark.parametrize("values", [jnp.ones(1), jnp.ones(3), jnp.ones((2, 2)), {"a": jnp.ones(4)}])
def test_a_diagonal_of_another_size_is_refused_rather_than_broadcast(values):
    x = {"a": jnp.ones(2), "b": jnp.ones((1, 2))} if isinstance(values, dict) else jnp.ones(4)
    with pytest.raises(ValueError, match="Diagonal values must be.*size 4"):
        Diagonal(values).mv(x)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_an_asymmetry_of_rounding_is_none_in_any_unit(scale):
    """An entry of a millionth of the largest, and one of a tenth."""
    Dense(scale * np.array([[1.0, 0.0], [5e-7, 1.0]])).factorise()
    with pytest.raises(ValueError, match="symmetric"):
        Dense(scale * np.array([[1.0, 0.0], [0.1, 1.0]])).factorise()


def test_the_symmetric_root_of_a_low_rank(x64):
    operator, matrix = make("low rank")
    root, itself = operator.factors()
    found = columns(root.mv, "vector")
    np.testing.assert_allclose(found, found.T, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found @ found, matrix, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(columns(itself.mv, "vector"), matrix, rtol=1e-12)


def test_a_tree_without_leaves_is_no_operator():
    with pytest.raises(TypeError, match="mass must be a number, a vector, a matrix or an operator"):
        as_operator({}, "mass")
