"""Estimators under enumeration of every batch, on a small curved model, flat or a tree."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import ergodax as ex
from law import batches

N, SIZE = 5, 2
_RNG = np.random.default_rng(3)
X, Y = _RNG.normal(size=(N, 2)), _RNG.normal(size=N)

# The same model twice: three numbers as a vector, or as a tree.
POINTS = {
    "flat": np.array([0.4, -0.3, 0.8]),
    "tree": {"bias": np.array(0.8), "weights": [np.array([0.4]), np.array(-0.3)]},
}
CENTRES = {
    "flat": np.array([0.1, 0.2, 0.5]),
    "tree": {"bias": np.array(0.5), "weights": [np.array([0.1]), np.array(0.2)]},
}


def _coefficients(position):
    if isinstance(position, dict):
        first, second = position["weights"]
        return jnp.stack([first[0], second]), position["bias"]
    return position[:2], position[2]


def log_prior(position):
    w, b = _coefficients(position)
    return -0.5 * jnp.sum(w**2) - jnp.cosh(b)


def log_likelihood(position, example):
    w, b = _coefficients(position)
    x, y = (a.astype(w.dtype) for a in example)
    return -jnp.cosh(y - x @ w - b)


def curved():
    """A posterior whose scores are curved in every direction."""
    return ex.Posterior(log_prior, log_likelihood, (X, Y))


def position(kind: str, where=None):
    """The point of a kind, as the samplers hold it."""
    return jax.tree.map(jnp.asarray, (POINTS if where is None else where)[kind])


def flat(tree) -> jax.Array:
    return ex.tree.ravel(tree)[0]


def matrix(operator, like) -> jax.Array:
    """An operator on trees as a matrix on the raveled tree."""
    return ex.tree.matrix_of(operator.mv, like)


@eqx.filter_jit
def on_every_batch(estimator, state, at, replace: bool):
    """The estimates with each batch in turn, and the states after, leading axis the batches.

    Args:
        estimator: any that draws its rows by a field `batching`, itself or in what it wraps.
        state: the state before.
        at: the position.
        replace: how batches are drawn.
    """
    where = (lambda e: e.batching) if hasattr(estimator, "batching") else _inner

    def one(rows):
        chosen = eqx.tree_at(where, estimator, batches.chosen(rows, replace))
        return chosen.estimate(jax.random.key(0), state, at)

    return jax.vmap(one)(batches.every(estimator.target.num_data, SIZE, replace))


def _inner(estimator):
    return estimator.gradient.batching


def mean(estimates) -> tuple[np.ndarray, np.ndarray]:
    """The mean gradient, raveled, and the mean potential."""
    gradients = jax.vmap(flat)(estimates.gradient)
    return np.asarray(gradients.mean(axis=0)), np.asarray(estimates.potential.mean())


def covariance(estimates) -> np.ndarray:
    """The covariance of the gradients over all batches."""
    return np.cov(np.asarray(jax.vmap(flat)(estimates.gradient)).T, ddof=0)


def assert_unbiased(estimates, at) -> None:
    """Mean gradient and potential over all batches are those of the posterior."""
    gradient, potential = mean(estimates)
    np.testing.assert_allclose(gradient, flat(curved().gradient(at)), rtol=1e-11)
    np.testing.assert_allclose(potential, curved().potential(at), rtol=1e-11)


def assert_covariance_is_known(estimator, state, at, replace: bool) -> None:
    """ScoreCovariance gives the enumerated covariance by all rows, and by a batch in the mean."""
    plain, _ = on_every_batch(estimator, state, at, replace)
    known = covariance(plain)
    assert np.linalg.eigvalsh(known)[-1] > 1e-8, "no noise"
    for rows, structure in (("all", "dense"), ("all", "low rank"), ("batch", "low rank")):
        wrapped = ex.ScoreCovariance(estimator, structure, rows=rows, chunk=2)
        inner = eqx.tree_at(
            lambda s: s.gradient,
            wrapped.init(jax.random.key(0), at),
            state,
            is_leaf=lambda x: x is None,
        )
        estimates, _ = on_every_batch(wrapped, inner, at, replace)
        found = np.asarray(jax.vmap(lambda v: matrix(v, at))(estimates.covariance))
        for each in found if rows == "all" else [found.mean(axis=0)]:
            np.testing.assert_allclose(each, known, rtol=1e-9, atol=1e-12)
        gradients = jax.vmap(flat)(estimates.gradient), jax.vmap(flat)(plain.gradient)
        np.testing.assert_allclose(*gradients, rtol=1e-10)
        np.testing.assert_allclose(estimates.potential, plain.potential, rtol=1e-10)


def assert_gradient_of_potential(estimator, state, at, key) -> None:
    """The estimate of the gradient is the derivative of the estimate of the potential."""
    estimate, _ = estimator.estimate(key, state, at)
    derived = jax.grad(lambda x: estimator.estimate(key, state, x)[0].potential)(at)
    np.testing.assert_allclose(flat(estimate.gradient), flat(derived), rtol=1e-10)
