"""Coordinates in which a posterior is round and its gradient noise is diagonal.

Let H be the Hessian of the potential and V the covariance of the minibatch gradient, both
averaged over a Gaussian approximation N(centre, H^-1) of the posterior. The generalised
eigenvectors V w = lambda H w, scaled so that w^T H w = 1, are the columns of a matrix L. In
the coordinates u, position = centre + L u, the averaged Hessian is the identity and the averaged
noise covariance is diag(lambda): one step size suits every direction, and the noise can be
compensated at the cost of an elementwise product.

H and V at the mode alone would not do: where a model fits its data well, both vanish there
and nowhere else. A Gaussian whose precision is the Hessian averaged over it, and at whose
centre the averaged gradient vanishes, is the fixed point of Gaussian variational inference
(Opper and Archambeau, 2009); a few rounds of averaging, begun at the mode, come near it.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.data.arrays import take
from ergodax.data.permutation import Permutation
from ergodax.target.posterior import Posterior

BLOCK = 4096  # examples at a time, which bounds the memory for their gradients


class Whitening(eqx.Module):
    """The affine map position = centre + basis u.

    Attributes:
        centre: the raveled mode, shape (d,).
        basis: L, shape (d, d).
        noise: lambda, shape (d,): the variances of the minibatch gradient in the coordinates u.
    """

    centre: Float[Array, " d"]
    basis: Float[Array, "d d"]
    noise: Float[Array, " d"]


def whiten(
    posterior: Posterior,
    mode: PyTree,
    batch_size: int,
    *,
    key: PRNGKeyArray,
    num_pairs: int = 4,
    num_rounds: int = 4,
    max_rows: int = 10_000,
) -> Whitening:
    """Measure H and V around the posterior's centre and diagonalise both.

    Args:
        posterior: with data. Each draw of each round costs d gradients on `max_rows` rows, so
            this is for d up to some thousands.
        mode: where; the Hessian must be positive definite there.
        batch_size: n of batches drawn without replacement, V = N(N-n)/n S_1.
        key: for the rows and the draws.
        num_pairs: antithetic pairs of draws that the averages are over; on a Gaussian
            posterior one pair is exact.
        num_rounds: how often the Gaussian is improved.
        max_rows: rows that stand for all, where there are more.

    Raises:
        ValueError: the Hessian is not positive definite: not a mode, or a flat direction.
    """
    key_rows, key_draws = jax.random.split(key)
    flat, unravel = tree.ravel(tree.freeze(mode))
    permutation = Permutation(posterior.num_data)
    few = jnp.arange(min(max_rows, posterior.num_data))
    rows = take(posterior.data, permutation(permutation.draw(key_rows), few))
    gaussian = _Gaussian(posterior, unravel, rows, flat)
    for k in range(num_rounds):
        gaussian.improve(jax.random.fold_in(key_draws, k), num_pairs)
    n, total = batch_size, posterior.num_data
    scores = np.mean([score_covariance(posterior, x, rows) for x in gaussian.points], axis=0)
    factor = _cholesky(gaussian.hessian)
    values, basis = scipy.linalg.eigh(total * (total - n) / n * scores, factor @ factor.T)
    noise = np.clip(values, 0.0, None)
    return Whitening(*(jnp.asarray(x, flat.dtype) for x in (gaussian.centre, basis, noise)))


class _Gaussian:
    """N(centre, hessian^-1), and the points that it was last averaged over."""

    def __init__(self, posterior: Posterior, unravel: Any, rows: PyTree, mode: Array) -> None:
        self.posterior, self.unravel, self.rows = posterior, unravel, rows
        self.centre = np.asarray(mode, np.float64)
        self.dtype = mode.dtype
        # The rows are a sample, whose gradient at the mode is not zero as the whole data's is.
        self.offset, self.hessian = self._derivatives(self._point(self.centre))
        self.points: list[PyTree] = []

    def improve(self, key: PRNGKeyArray, num_pairs: int) -> None:
        """Average gradient and Hessian over antithetic draws; take a Newton step with them."""
        normal = np.asarray(jax.random.normal(key, (self.centre.size, num_pairs)), np.float64)
        factor = _cholesky(self.hessian)
        offsets = scipy.linalg.solve_triangular(factor.T, normal, lower=False).T
        self.points = [self._point(self.centre + s * x) for x in offsets for s in (1.0, -1.0)]
        gradients, hessians = zip(*(self._derivatives(x) for x in self.points), strict=True)
        self.hessian = np.mean(hessians, axis=0)
        step = np.mean(gradients, axis=0) - self.offset
        self.centre = self.centre - scipy.linalg.cho_solve((_cholesky(self.hessian), True), step)

    def _point(self, x: np.ndarray) -> PyTree:
        return self.unravel(jnp.asarray(x, self.dtype))

    def _derivatives(self, point: PyTree) -> tuple[np.ndarray, np.ndarray]:
        gradient, hessian = derivatives(self.posterior, point, self.rows)
        return np.asarray(gradient, np.float64), np.asarray(hessian, np.float64)


def _cholesky(hessian: np.ndarray) -> np.ndarray:
    try:
        return np.linalg.cholesky(0.5 * (hessian + hessian.T))
    except np.linalg.LinAlgError as error:
        raise ValueError(
            "the Hessian at this position is not positive definite, so it is not a mode or the "
            "posterior is flat in some direction; find the mode first or tighten the prior."
        ) from error


@eqx.filter_jit
def derivatives(
    posterior: Posterior, position: PyTree, rows: PyTree
) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
    """Gradient and Hessian of U on the raveled position, estimated from some rows."""
    flat, unravel = tree.ravel(position)

    def gradient(x: Float[Array, " d"]) -> Float[Array, " d"]:
        return jax.grad(lambda x: posterior.potential_on(unravel(x), rows))(x)

    def column(direction: Float[Array, " d"]) -> Float[Array, " d"]:
        return jax.jvp(gradient, (flat,), (direction,))[1]

    return gradient(flat), lax.map(column, jnp.eye(flat.size, dtype=flat.dtype))


def score_covariance(posterior: Posterior, position: PyTree, rows: PyTree) -> np.ndarray:
    """S_1, the covariance of the rows' scores with denominator (rows - 1), in blocks."""
    total = jax.tree.leaves(rows)[0].shape[0]
    first: Any = 0.0
    second: Any = 0.0
    for begin in range(0, total, BLOCK):
        block = jax.tree.map(lambda x, b=begin: x[b : b + BLOCK], rows)
        one, two = _score_sums(posterior, position, block)
        first, second = first + np.asarray(one, float), second + np.asarray(two, float)
    return (second - np.outer(first, first) / total) / max(total - 1, 1)


@eqx.filter_jit
def _score_sums(posterior: Posterior, position: PyTree, batch: PyTree) -> tuple[Array, Array]:
    scores = posterior.per_example_gradients(position, batch)
    flat = jax.vmap(lambda score: tree.ravel(score)[0])(scores)
    return jnp.sum(flat, axis=0), flat.T @ flat
