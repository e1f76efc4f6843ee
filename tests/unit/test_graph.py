"""What a traced graph says: dependence entry by entry, and the divergences that rest on it."""

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ergodax import Dense, Diagonal, LowRank, Scalar, tree
from ergodax.graph import is_elementwise
from ergodax.recipe import recipe

POINT = np.array([0.3, -0.7, 1.1])
TWO = {"a": POINT, "b": 2.0 * POINT}
MATRIX = np.array([[1.0, 0.2, 0.0], [0.2, 1.0, 0.3], [0.0, 0.3, 1.0]])

ELEMENTWISE = {
    "itself": lambda x: x,
    "arithmetic": lambda x: 1.0 / (1.0 + x**2) - 3.0 * x,
    "where": lambda x: jnp.where(x > 0.0, jnp.exp(x), 1.0 + x),
    "softplus": jax.nn.softplus,
    "sigmoid": jax.nn.sigmoid,
    "tanh, clipped": lambda x: jnp.clip(jnp.tanh(x), -0.5, 0.5),
    "compiled inside": jax.jit(lambda x: jnp.sqrt(1.0 + x**2)),
    "with constants of its shape": lambda x: jnp.arange(3.0) * x + jnp.ones(3),
    "constant": lambda x: jnp.arange(3.0),
    "only its shape": jnp.ones_like,
}

NOT_ELEMENTWISE = {
    "roll": lambda x: x * jnp.roll(x, 1),
    "reversed": lambda x: x[::-1],
    "sum": lambda x: x + jnp.sum(x),
    "one entry": lambda x: jnp.full(3, 1.0) * x[0],
    "one entry for all": lambda x: jnp.where(x[1] > 0.0, x, -x),
    "cumulative sum": jnp.cumsum,
    "sorted": jnp.sort,
    "matrix product": lambda x: jnp.asarray(MATRIX, x.dtype) @ x,
    "softmax": jax.nn.softmax,
    "compiled inside": jax.jit(lambda x: x * jnp.roll(x, 1)),
    "another shape": lambda x: jnp.concatenate([x, x]),
    "a scatter": lambda x: x.at[0].set(x[1]),
}

ON_TREES = {
    "each its own": (lambda z: {"a": z["a"] ** 2, "b": jnp.sin(z["b"])}, True),
    "one constant": (lambda z: {"a": jnp.ones(3), "b": jnp.sin(z["b"])}, True),
    "two leaves mixed": (lambda z: {"a": z["a"] * z["b"], "b": z["b"]}, False),
    "two leaves exchanged": (lambda z: {"a": z["b"], "b": z["a"]}, False),
    "another structure": (lambda z: (z["a"], z["b"]), False),
}


@pytest.mark.parametrize("case", ELEMENTWISE)
def test_elementwise(case):
    assert is_elementwise(ELEMENTWISE[case], jnp.asarray(POINT))


@pytest.mark.parametrize("case", NOT_ELEMENTWISE)
def test_not_elementwise(case):
    assert not is_elementwise(NOT_ELEMENTWISE[case], jnp.asarray(POINT))


@pytest.mark.parametrize("case", ON_TREES)
def test_on_trees(case):
    function, expected = ON_TREES[case]
    assert is_elementwise(function, jax.tree.map(jnp.asarray, TWO)) is expected


@pytest.mark.parametrize("case", [*ELEMENTWISE, *NOT_ELEMENTWISE])
def test_the_verdict_is_that_of_the_jacobian(case):
    """True is never said where the Jacobian has an entry off its diagonal."""
    for table, verdict in ((ELEMENTWISE, True), (NOT_ELEMENTWISE, False)):
        if case in table:
            jacobian = np.asarray(jax.jacfwd(table[case])(jnp.asarray(POINT)))
            diagonal = jacobian.shape == (3, 3) and np.allclose(
                jacobian, np.diag(np.diag(jacobian))
            )
            # A branch chosen by another entry has the same Jacobian, and yet is not elementwise.
            assert diagonal is verdict or case == "one entry for all"


# --- Divergences ------------------------------------------------------------------------------


def block_divergence(field, at, key) -> Any:
    """As the library's; None where there is nothing to compute."""
    return recipe.block_divergence(field, at, key)


def exact(field, at) -> np.ndarray:
    """sum over j of d A_ij / d z_j by the whole Jacobian of the matrix."""

    def matrix(z):
        return jax.vmap(field(z).mv, out_axes=1)(jnp.eye(at.size))

    return np.einsum("ijj->i", jax.jacfwd(matrix)(jnp.asarray(at)))


SEPARABLE = [name for name in ELEMENTWISE if name not in ("constant", "only its shape")]


@pytest.mark.slow
@pytest.mark.parametrize("case", SEPARABLE)
def test_a_separable_diagonal_needs_no_randomness(case, x64, monkeypatch):
    def never(key, like):
        raise AssertionError("a probe was drawn")

    def field(z):
        return Diagonal(ELEMENTWISE[case](z))

    monkeypatch.setattr(tree, "rademacher_like", never)
    ours = block_divergence(field, jnp.asarray(POINT), jax.random.key(0))
    np.testing.assert_allclose(ours, exact(field, POINT), rtol=1e-12)


def rotated(z):
    return jnp.outer(jnp.sin(z), z) + jnp.diag(z * z[0])


COUPLED = {
    "Diagonal": lambda z: Diagonal(jnp.sin(z * jnp.roll(z, 1)) + jnp.sum(z)),
    "Dense": lambda z: Dense(rotated(z)),
    "LowRank": lambda z: LowRank(jnp.stack([jnp.sin(z), z * z[1]]), 1.0 + z[2] ** 2),
    "sign of another entry": lambda z: Diagonal(jnp.where(z[1] > 0.0, z, -(z**2))),
}


@pytest.mark.parametrize("case", COUPLED)
def test_a_probe_is_unbiased(case, x64, monkeypatch):
    """The mean over all 2^d vectors of signs is the divergence; a single one need not be."""
    monkeypatch.setattr("ergodax.recipe.operators.matrices.EXACT_DIVERGENCE", 2)
    values = []
    for signs in itertools.product([-1.0, 1.0], repeat=3):
        probe = functools.partial(lambda s, key, like: jnp.asarray(s, like.dtype), signs)
        monkeypatch.setattr(tree, "rademacher_like", probe)
        values.append(block_divergence(COUPLED[case], jnp.asarray(POINT), jax.random.key(0)))
    np.testing.assert_allclose(np.mean(values, axis=0), exact(COUPLED[case], POINT), rtol=1e-12)


def test_a_probe_of_ones_where_the_graph_is_coupled_is_wrong(x64):
    """What `is_elementwise` prevents."""
    ones = jnp.ones(3)
    field = COUPLED["Diagonal"]
    wrong = jax.jvp(lambda z: field(z).mv(ones), (jnp.asarray(POINT),), (ones,))[1]
    assert np.abs(wrong - exact(field, POINT)).max() > 0.1


def test_a_large_dense_block_is_unbiased_over_pairs_of_signs(x64, monkeypatch):
    """Beyond 64 coordinates, where only two of them couple: four probes are all there are."""
    at = jnp.linspace(-1.0, 1.0, 65)

    def field(z):
        corner = jnp.zeros((65, 65)).at[0, 1].set(jnp.sin(z[0] * z[1])).at[1, 0].set(z[0] * z[1])
        return Dense(corner + jnp.diag(z**2))

    values = []
    for first, second in itertools.product([-1.0, 1.0], repeat=2):
        signs = jnp.ones(65).at[0].set(first).at[1].set(second)
        monkeypatch.setattr(tree, "rademacher_like", lambda key, like, s=signs: s)
        values.append(block_divergence(field, at, jax.random.key(0)))
    np.testing.assert_allclose(np.mean(values, axis=0), exact(field, at), atol=1e-12)
    assert np.ptp(values, axis=0).max() > 0.1


@pytest.mark.parametrize("seed", [0, 1])
def test_a_number_is_exact_for_any_key(seed, x64):
    def field(z):
        return Scalar(1.0 + jnp.sum(z**2) * z[0])

    ours = block_divergence(field, jnp.asarray(POINT), jax.random.key(seed))
    np.testing.assert_allclose(ours, exact(field, POINT), rtol=1e-12)
