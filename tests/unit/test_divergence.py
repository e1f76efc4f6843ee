"""Gamma, block by block: exact where promised, unbiased for every field."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ergodax import Dense, Diagonal, LowRank, Scalar, tree
from ergodax.graph import depends_on
from ergodax.recipe import recipe

POINT = np.array([0.3, -0.7, 1.1])


def block_divergence(field, at, key) -> Any:
    """As the library's; None where there is nothing to compute."""
    return recipe.block_divergence(field, at, key)


def scalar_field(z):
    return Scalar(1.0 + jnp.sum(z**2) * z[0])


def separable_field(z):
    return Diagonal(jnp.sin(z) + z**2)


def coupled_field(z):
    return Diagonal(jnp.sin(z * jnp.roll(z, 1)) + 2.0)


def dense_field(z):
    return Dense(jnp.outer(jnp.sin(z), z) + jnp.diag(z * z[0]))


def low_rank_field(z):
    return LowRank(jnp.stack([jnp.sin(z), z * z[1]]), 1.0 + z[2] ** 2)


def exact(field) -> np.ndarray:
    """sum over j of d A_ij / d z_j by the whole Jacobian of the matrix."""

    def matrix(z):
        return jax.vmap(field(z).mv, out_axes=1)(jnp.eye(3))

    return np.einsum("ijj->i", jax.jacfwd(matrix)(jnp.asarray(POINT)))


@pytest.mark.parametrize("field", [scalar_field, separable_field, dense_field])
def test_exact_for_any_key(field, x64):
    for seed in range(3):
        ours = block_divergence(field, jnp.asarray(POINT), jax.random.key(seed))
        np.testing.assert_allclose(ours, exact(field), rtol=1e-12)


@pytest.mark.parametrize("field", [coupled_field, low_rank_field, dense_field])
def test_the_probe_is_unbiased(field, x64, monkeypatch):
    """The mean over all 2^d vectors of signs, each as likely as the others."""
    monkeypatch.setattr("ergodax.recipe.operators.matrices.EXACT_DIVERGENCE", 0)
    values = []
    for signs in itertools.product([-1.0, 1.0], repeat=3):
        monkeypatch.setattr(tree, "rademacher_like", lambda key, at, s=signs: jnp.asarray(s))
        values.append(block_divergence(field, jnp.asarray(POINT), jax.random.key(0)))
    np.testing.assert_allclose(np.mean(values, axis=0), exact(field), rtol=1e-12)
    assert np.ptp(values, axis=0).max() > 0.01, "this field needs the mean: one probe is not exact"


def test_on_a_tree_it_is_that_of_the_vector(x64):
    at = {"a": jnp.asarray(POINT[:2]), "b": jnp.asarray(POINT[2:])}

    def field(z):
        return dense_field(tree.ravel(z)[0])

    ours = block_divergence(field, at, jax.random.key(0))
    np.testing.assert_allclose(tree.ravel(ours)[0], exact(dense_field), rtol=1e-12)


def test_large_dense_blocks_use_one_probe(key):
    """Beyond 64 coordinates: exact in expectation, one derivative instead of d."""
    at = jnp.linspace(0.0, 1.0, 65)

    def field(z):
        return Dense(jnp.diag(z**2))  # separable, so that the probe is exact too

    np.testing.assert_allclose(block_divergence(field, at, key), 2.0 * at, rtol=1e-5)
    program = str(jax.make_jaxpr(lambda z: block_divergence(field, z, key))(at))
    assert "65,65,65" not in program


CONSTANT = jnp.array([1.0, 2.0, 3.0])
DEPENDS = {
    "constant": (lambda z: Diagonal(CONSTANT), False),
    "constant with work": (lambda z: Diagonal(jnp.exp(CONSTANT)), False),
    "only its shape": (lambda z: Diagonal(jnp.ones(z.shape)), False),
    "zeros like it": (lambda z: Diagonal(jnp.zeros_like(z)), False),
    "itself": (lambda z: Diagonal(z), True),
    "through a loop": (lambda z: Diagonal(jax.lax.fori_loop(0, 3, lambda k, x: x * z, z)), True),
    "one entry of it": (lambda z: Scalar(z[1]), True),
}


@pytest.mark.parametrize("case", DEPENDS)
def test_dependence_is_read_off_the_graph(case, key):
    field, expected = DEPENDS[case]
    assert depends_on(field, jnp.asarray(POINT)) is expected
    assert (block_divergence(field, jnp.asarray(POINT), key) is not None) is expected


def test_a_constant_block_adds_nothing_to_the_program(key):
    program = jax.make_jaxpr(lambda z: block_divergence(lambda y: Diagonal(CONSTANT), z, key))(
        jnp.asarray(POINT)
    )
    assert program.eqns == []
