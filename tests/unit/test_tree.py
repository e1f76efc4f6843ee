"""Algebra on trees: every function agrees with the same one on the raveled vector."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ergodax import tree

A = {"w": jnp.array([[1.0, 2.0], [3.0, 4.0]]), "b": (jnp.array(5.0), jnp.array([6.0]))}
B = {"w": jnp.array([[0.5, -1.0], [2.0, 0.0]]), "b": (jnp.array(-2.0), jnp.array([3.0]))}


def vector(x):
    return np.asarray(tree.ravel(x)[0])


CASES = {
    "add": (lambda: tree.add(A, B), lambda a, b: a + b),
    "subtract": (lambda: tree.subtract(A, B), lambda a, b: a - b),
    "multiply": (lambda: tree.multiply(A, B), lambda a, b: a * b),
    "scale": (lambda: tree.scale(-2.5, A), lambda a, b: -2.5 * a),
    "add_scaled": (lambda: tree.add_scaled(A, 0.25, B), lambda a, b: a + 0.25 * b),
    "zeros_like": (lambda: tree.zeros_like(A), lambda a, b: 0 * a),
    "map_leaves": (lambda: tree.map_leaves(jnp.maximum, A, B), np.maximum),
}


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_vectors(name):
    ours, reference = CASES[name]
    assert jax.tree.structure(ours()) == jax.tree.structure(A)
    np.testing.assert_allclose(vector(ours()), reference(vector(A), vector(B)), rtol=1e-6)


def test_numbers_of_trees():
    a, b = vector(A), vector(B)
    np.testing.assert_allclose(tree.dot(A, B), a @ b, rtol=1e-6)
    np.testing.assert_allclose(tree.norm(A), np.linalg.norm(a), rtol=1e-6)
    assert tree.size(A) == 6 and tree.result_dtype(A) == jnp.float32
    assert tree.dot(A, B).shape == ()


def test_dot_refuses_trees_of_different_sizes():
    with pytest.raises(ValueError):
        tree.dot(A, {"w": A["w"]})


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_all_finite_sees_one_bad_number_among_integers_and_keys(bad):
    state = {"x": jnp.ones(3), "count": jnp.int32(1), "key": jax.random.key(0)}
    assert bool(tree.all_finite(state))
    assert not bool(tree.all_finite({**state, "y": jnp.array([[0.0, bad]])}))


def test_ravel_is_undone():
    flat, unravel = tree.ravel(A)
    assert flat.shape == (6,)
    jax.tree.map(np.testing.assert_array_equal, unravel(flat), A)


def test_scalars_take_the_dtype_of_each_leaf(x64):
    mixed = {"single": jnp.ones(2, "float32"), "double": jnp.ones(2, "float64")}
    step = jnp.asarray(0.1, "float64")
    for result in (tree.scale(step, mixed), tree.add_scaled(mixed, step, mixed)):
        assert {k: v.dtype.name for k, v in result.items()} == {
            "single": "float32",
            "double": "float64",
        }
    assert tree.result_dtype(mixed) == tree.dot(mixed, mixed).dtype == jnp.float64
    noise = tree.normal_like(jax.random.key(0), mixed)
    assert noise["single"].dtype == jnp.float32 and noise["double"].dtype == jnp.float64


@pytest.mark.parametrize("draw", [tree.normal_like, tree.rademacher_like])
def test_one_draw_serves_the_whole_tree(draw, key):
    flat = draw(key, jnp.zeros(6))
    nested = draw(key, A)
    np.testing.assert_array_equal(vector(nested), flat)
    assert len(set(np.abs(np.asarray(tree.normal_like(key, jnp.zeros(6)))))) == 6
    assert jax.tree.map(jnp.shape, nested) == jax.tree.map(jnp.shape, A)


def test_rademacher_numbers_are_signs(key):
    signs = np.asarray(tree.rademacher_like(key, jnp.zeros(200)))
    assert set(signs) == {-1.0, 1.0} and signs.dtype == np.float32


def test_path_names():
    paths = jax.tree_util.tree_leaves_with_path({"layers": [{"weight": 1}, (2, 3)]})
    assert [tree.path_name(p) for p, _ in paths] == ["layers.0.weight", "layers.1.0", "layers.1.1"]
    assert tree.path_name(()) == ""


def test_is_traced():
    seen = []
    jax.jit(lambda x: seen.append(tree.is_traced(x)))(1.0)
    assert seen == [True] and not tree.is_traced(jnp.ones(2)) and not tree.is_traced(1.0)
