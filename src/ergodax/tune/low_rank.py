"""A square matrix that is the identity but for a few directions, so that d may be large."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import numpy as np
import scipy
from jaxtyping import Array, Float

from ergodax.tune.host import on_device

DIRECTIONS = 20  # at most
ACCURACY = 0.05  # of an eigenvalue, as a share of it
RESTARTS = 10  # of Lanczos's method, after which what is accurate is taken
PROBES = 16  # for the diagonal of what is left
SHARP = 2.0  # times the mean curvature of the others, from which a direction is worth its place
UNEVEN = 10.0  # times that mean, which no curvature of a component is believed to differ by


class LowRank(eqx.Module):
    """R = I + left right^T, whose inverse is I + back right^T.

    Attributes:
        left: of R.
        back: of its inverse.
        right: of both.
    """

    left: Float[Array, "d k"]
    back: Float[Array, "d k"]
    right: Float[Array, "d k"]

    def times(self, u: Float[Array, " d"]) -> Float[Array, " d"]:
        """R u."""
        left, right = self.left.astype(u.dtype), self.right.astype(u.dtype)
        return u + left @ (u @ right)

    def solve(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """R^-1 x."""
        back, right = self.back.astype(x.dtype), self.right.astype(x.dtype)
        return x + back @ (x @ right)

    def times_rows(self, rows: Float[np.ndarray, "*rows d"]) -> Float[np.ndarray, "*rows d"]:
        """R of each row, on the host, in double precision."""
        left, right = (np.asarray(x, np.float64) for x in (self.left, self.right))
        return rows + (rows @ right) @ left.T

    def solve_rows(self, rows: Float[np.ndarray, "*rows d"]) -> Float[np.ndarray, "*rows d"]:
        """R^-1 of each row, likewise."""
        back, right = (np.asarray(x, np.float64) for x in (self.back, self.right))
        return rows + (rows @ right) @ back.T

    def row_norms(self) -> Float[np.ndarray, " d"]:
        """The length of each row of R, without R."""
        left, right = (np.asarray(x, np.float64) for x in (self.left, self.right))
        square = 1.0 + np.sum(left * (2.0 * right + left @ (right.T @ right)), axis=1)
        return np.sqrt(np.maximum(square, 0.0))

    def past(self, factor: Float[np.ndarray, " d"]) -> "LowRank":
        """The S for which R diag(factor) = diag(factor) S.

        Args:
            factor: a diagonal.
        """
        column = factor[:, None]
        scaled = self.left / column, self.back / column, self.right * column
        return LowRank(*(on_device(np.asarray(x), self.left.dtype) for x in scaled))


def sharpest(
    product: Callable[[Float[np.ndarray, " d"]], Any],
    dimension: int,
    rng: np.random.Generator,
    *,
    dtype: Any,
    sharp: float = SHARP,
) -> tuple[Float[np.ndarray, " d"], LowRank] | None:
    """A diagonal b and an R with which L = diag(b) R rounds a matrix: L^T H L is about I.

    H is taken for a diagonal and its sharpest directions, D + V S V^T: these by Lanczos's method,
    the diagonal by products with random signs. Curvatures are replaced by their absolute values.

    Args:
        product: H v of a v, H symmetric.
        dimension: d.
        rng: for a start and the signs.
        dtype: of R.
        sharp: the smallest curvature of a direction that is taken, in the mean of the others.

    Returns:
        b and R, of rank 20 at most; None if no direction is so sharp, or H is not finite.
    """
    start = rng.standard_normal(dimension)
    bent = np.asarray(product(start))
    if not (np.isfinite(bent).all() and bent.any()):
        return None
    values, vectors = _largest(product, start)
    signs = rng.choice([-1.0, 1.0], size=(PROBES, dimension))
    trace = np.sum(_diagonal_beside(vectors, product, signs)) + np.sum(values)
    others = (trace - np.cumsum(values)) / (dimension - 1.0 - np.arange(len(values)))
    sharp_ones = np.flatnonzero(values > sharp * others)
    if not len(sharp_ones):
        return None
    count = sharp_ones[-1] + 1
    values, vectors, mean = values[:count], vectors[:, :count], others[count - 1]
    rest = _diagonal_beside(vectors, product, signs) + mean * np.sum(vectors**2, axis=1)
    basis = 1.0 / np.sqrt(np.clip(rest, mean / UNEVEN, mean * UNEVEN))
    # In units of b what is left is I + W W^T, of which R is the inverse root.
    root = basis[:, None] * vectors * np.sqrt(values - mean)
    right, size, _ = np.linalg.svd(root, full_matrices=False)
    stretch = np.sqrt(1.0 + size**2)
    parts = right * (1.0 / stretch - 1.0), right * (stretch - 1.0), right
    return basis, LowRank(*(on_device(x, dtype) for x in parts))


def _diagonal_beside(
    vectors: Float[np.ndarray, "d k"],
    product: Callable[[Float[np.ndarray, " d"]], Any],
    signs: Float[np.ndarray, "probes d"],
) -> Float[np.ndarray, " d"]:
    """The diagonal of P H P, where P takes these directions out."""
    outside = signs - (signs @ vectors) @ vectors.T
    bent = np.array([product(v) for v in outside], np.float64)
    return np.abs(np.mean(signs * (bent - (bent @ vectors) @ vectors.T), axis=0))


def _largest(
    product: Callable[[Float[np.ndarray, " d"]], Any], start: Float[np.ndarray, " d"]
) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, "d k"]]:
    """The largest absolute eigenvalues, in descending order, and their vectors."""
    linear_operator: Any = scipy.sparse.linalg.LinearOperator
    operator = linear_operator(
        (start.size, start.size),
        matvec=lambda v: np.asarray(product(v.ravel()), np.float64),
        dtype=np.float64,
    )
    settings = {
        "k": min(DIRECTIONS, start.size - 1),
        "which": "LM",
        "tol": ACCURACY,
        "maxiter": RESTARTS,
    }
    try:
        values, vectors = scipy.sparse.linalg.eigsh(operator, v0=start, **settings)
    except scipy.sparse.linalg.ArpackNoConvergence as found:
        values, vectors = found.eigenvalues, found.eigenvectors
    order = np.argsort(-np.abs(values))
    return np.abs(values[order]), vectors[:, order]
