"""Whitened coordinates by curvature, at a point or averaged over a Gaussian, and by draws."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.data.arrays import num_rows
from ergodax.gradient.batches import check_resident
from ergodax.target.base import AbstractTarget
from ergodax.target.posterior import Posterior
from ergodax.tune.host import generator, on_device, some_rows, split_key
from ergodax.tune.whitening import Coordinates, LowRank, flattened, in_coordinates, unflattened

FLAT = (
    "the Hessian at this position is not positive definite, so it is not a mode or the "
    "posterior is flat in some direction; find the mode first or tighten the prior."
)
LARGEST_DENSE = 1024  # dimensions, beyond which no matrix is kept
LARGEST_LOW_RANK = 30_000  # beyond which nothing but a diagonal is
LARGEST_AVERAGED = 512
# Rows that stand for all: 10,000 where it is averaged, and at a point so many a dimension, between
# that and 20,000. In few dimensions they are as many, and so one program serves both.
SOME, OF_EACH, ROWS = 10_000, 800, 20_000
PAIRS = 4  # of draws, in each round of that
WIDEST = 1e8  # the largest unit of a coordinate, in the smallest one
NUMBERS = 2**25  # rows times dimensions of a product with the Hessian
PROBES = 32  # of a diagonal
ROUNDINGS = 8.0  # eigenvalues below so many, as a share of the largest, are raised to them
TOGETHER = 32  # columns of a Hessian: products of matrices are faster than of vectors
# Of the sharpest directions:
DIRECTIONS = 20  # at most
ACCURACY = 0.05  # of an eigenvalue, as a share of it
RESTARTS = 10  # of Lanczos's method, after which what is accurate is taken
PROBES_OF_REST = 16  # for the diagonal of what is left
SHARP = 2.0  # times the mean curvature of the others, from which a direction is worth its place
UNEVEN = 10.0  # times that mean, which no curvature of a component is believed to differ by


def round_coordinates(target: AbstractTarget, mode: PyTree, *, key: PRNGKeyArray) -> Coordinates:
    """Coordinates in which the posterior has mean 0 and scale 1, as far as curvature can tell.

    With data and up to 512 dimensions the curvature is averaged over the Gaussian that it defines,
    since at the mode of a model that fits well it may vanish; otherwise it is that at the mode.

    Args:
        target: with data or without.
        mode: of the target, or near it.
        key: for rows and draws.

    Raises:
        TypeError: data that are a source.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> x = jnp.linspace(-1.0, 3.0, 1000)
        >>> model = ex.Posterior(lambda m: -0.5 * m**2, lambda m, x: -0.5 * (x - m) ** 2, x)
        >>> found = ex.tune.round_coordinates(model, jnp.float32(1.0), key=jax.random.key(0))
        >>> found.scales.round(4).tolist()  # the posterior's sd, one over the root of 1,001
        [0.0316]
    """
    check_resident(target, "tune.round_coordinates", "a subset: source.subset(10_000)")
    small = tree.size(tree.freeze(mode)) <= LARGEST_AVERAGED
    if isinstance(target, Posterior) and small:
        try:
            gaussian = averaged_gaussian(target, mode, key=key)
        except ValueError:  # not positive definite
            return curvature_coordinates(target, mode, key=key)
        basis = on_device(gaussian.basis, tree.result_dtype(tree.freeze(mode)))
        return Coordinates(unflattened(mode, gaussian.centre), basis)
    return curvature_coordinates(target, mode, key=key)


def curvature_coordinates(
    target: AbstractTarget, centre: PyTree, *, key: PRNGKeyArray, max_rows: int | None = None
) -> Coordinates:
    """Coordinates in which the curvature at a point is the identity.

    Up to 1,024 dimensions L L^T is the inverse of the Hessian, taken in units in which its rows are
    alike, with the absolute values of its eigenvalues, so that a saddle has a scale too. Beyond, L
    is diagonal, by the mean square of the scores (the Fisher information) and the prior's
    curvature, but up to 30,000 dimensions for the directions, 20 at most, in which the Hessian is
    much larger than in the others.

    Args:
        target: with data or without.
        centre: where, a mode at best.
        key: for the rows that stand for all the data.
        max_rows: how many of them; by default 800 a dimension, between 10,000 and 20,000.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> target = ex.targets.gaussian(jnp.zeros(2), jnp.array([4.0, 100.0]))  # variances
        >>> found = ex.tune.curvature_coordinates(target, jnp.zeros(2), key=jax.random.key(0))
        >>> found.scales.round(3).tolist()
        [2.0, 10.0]
    """
    centre = tree.freeze(centre, "centre")
    dtype = tree.result_dtype(centre)
    enough = int(np.clip(OF_EACH * tree.size(centre), SOME, ROWS))
    rows = some_rows(target, key, enough if max_rows is None else max_rows)
    if tree.size(centre) > LARGEST_DENSE:
        square = np.asarray(mean_squares(target, centre, rows, key), np.float64)
        basis = 1.0 / np.sqrt(_raised(square, WIDEST**-2))
        coordinates = Coordinates(tree.thaw(centre), on_device(basis, dtype))
        if tree.size(centre) > LARGEST_LOW_RANK:
            return coordinates
        return _sharpened(target, coordinates, rows, key)
    hessian = np.asarray(_derivatives(target, centre, rows)[1])
    return hessian_coordinates(tree.thaw(centre), hessian)


def hessian_coordinates(centre: PyTree, hessian: Float[np.ndarray, "d d"]) -> Coordinates:
    """Coordinates in which the Hessian of U at a position is I, but for its eigenvalues' signs.

    They are not finite where the Hessian is not.
    """
    dtype, hessian = tree.result_dtype(tree.freeze(centre)), hessian.astype(np.float64)
    if not np.isfinite(hessian).all():
        return Coordinates(centre, on_device(np.full(hessian.shape, np.nan), dtype))
    units = _units(hessian)
    values, vectors = np.linalg.eigh(0.5 * (hessian + hessian.T) * np.outer(units, units))
    values = _raised(values, ROUNDINGS * float(jnp.finfo(dtype).eps))
    return Coordinates(centre, on_device(units[:, None] * vectors / np.sqrt(values), dtype))


def _units(hessian: Float[np.ndarray, "d d"]) -> Float[np.ndarray, " d"]:
    """Units of the coordinates in which the largest entry of each row is 1 (equilibration)."""
    units, rows = np.ones(len(hessian)), np.ones(len(hessian))
    for _ in range(30):  # each halves what is left, on a logarithmic scale
        rows = np.max(np.abs(hessian) * np.outer(units, units), axis=1)
        units = units / np.sqrt(np.where(rows > 0, rows, 1.0))
    alive = units[rows > 0]
    if not alive.size:
        return units
    return np.where(rows > 0, np.minimum(units, WIDEST * alive.min()), alive.max())


def _raised(values: Float[np.ndarray, " d"], share: float) -> Float[np.ndarray, " d"]:
    """Absolute values, none below a share of the largest."""
    size = np.abs(values)
    return np.maximum(size, max(share * size.max(), np.finfo(np.float32).tiny))


def draws_coordinates(coordinates: Coordinates, draws: Float[np.ndarray, "draws d"]) -> Coordinates:
    """Coordinates in which these draws have mean 0 and, up to shrinkage, unit covariance.

    Args:
        coordinates: the present ones.
        draws: in the present u. The covariance is shrunk towards its diagonal, the more the fewer
            draws there are a dimension; beyond 1,024 dimensions only the diagonal is used.

    Example:
        >>> import ergodax as ex, jax.numpy as jnp, numpy as np
        >>> draws = np.random.default_rng(0).normal([1.0, 0.0], [2.0, 0.5], size=(1000, 2))
        >>> before = ex.tune.Coordinates(jnp.zeros(2), jnp.ones(2))
        >>> after = ex.tune.draws_coordinates(before, draws)
        >>> after.of_flats(draws).std(axis=0).round(2).tolist()
        [1.0, 1.0]
    """
    mean, count, d = draws.mean(axis=0), *draws.shape
    variance = np.maximum(draws.var(axis=0), 1e-12)
    if d > LARGEST_DENSE:
        factor = np.sqrt(variance)
    else:
        kept = count / (count + 5.0 * d)
        covariance = kept * np.atleast_2d(np.cov(draws.T)) + (1.0 - kept) * np.diag(variance)
        try:
            factor = np.linalg.cholesky(covariance)
        except np.linalg.LinAlgError:  # rounding, where draws hardly differ in a direction
            factor = np.sqrt(variance)
    return coordinates.moved(mean, factor)


def _sharpened(
    target: AbstractTarget, coordinates: Coordinates, rows: PyTree, key: PRNGKeyArray
) -> Coordinates:
    """The coordinates, diagonal so far, but for the sharpest directions."""
    d, dtype, sharp = coordinates.dimension, coordinates.basis.dtype, SHARP
    inner = in_coordinates(target, coordinates)
    if isinstance(target, Posterior):
        few = min(num_rows(rows), NUMBERS // d)
        rows = jax.tree.map(lambda x: x[:few], rows)
        if few < target.num_data:  # whose Hessian has eigenvalues so much larger by chance
            sharp *= (1.0 + np.sqrt(d / few)) ** 2
    product = lambda v: _product(inner, rows, on_device(v, dtype))  # noqa: E731
    found = sharpest(product, d, generator(key), dtype=dtype, sharp=sharp)
    if found is None:
        return coordinates
    basis = on_device(np.asarray(coordinates.basis, np.float64) * found[0], dtype)
    return Coordinates(coordinates.centre, basis, found[1])


def sharpest(
    product: Callable[[Float[np.ndarray, " d"]], Any],
    dimension: int,
    rng: np.random.Generator,
    *,
    dtype: Any,
    sharp: float = SHARP,
) -> tuple[Float[np.ndarray, " d"], LowRank] | None:
    """A diagonal b and an R with which L = diag(b) R whitens a matrix: L^T H L is about I.

    H is taken for a diagonal and its sharpest directions, D + V S V^T: these by Lanczos's method,
    the diagonal by products with random signs. Curvatures are replaced by their absolute values.

    R has rank 20 at most. A direction is taken if its curvature is above `sharp` times the mean of
    the others; None if no direction is, or H is not finite.
    """
    start = rng.standard_normal(dimension)
    bent = np.asarray(product(start))
    if not (np.isfinite(bent).all() and bent.any()):
        return None
    values, vectors = _largest(product, start)
    signs = rng.choice([-1.0, 1.0], size=(PROBES_OF_REST, dimension))
    trace = np.sum(_diagonal_of_rest(vectors, product, signs)) + np.sum(values)
    others = (trace - np.cumsum(values)) / (dimension - 1.0 - np.arange(len(values)))
    sharp_ones = np.flatnonzero(values > sharp * others)
    if not len(sharp_ones):
        return None
    count = sharp_ones[-1] + 1
    values, vectors, mean = values[:count], vectors[:, :count], others[count - 1]
    rest = _diagonal_of_rest(vectors, product, signs) + mean * np.sum(vectors**2, axis=1)
    basis = 1.0 / np.sqrt(np.clip(rest, mean / UNEVEN, mean * UNEVEN))
    # In units of b what is left is I + W W^T, of which R is the inverse root.
    root = basis[:, None] * vectors * np.sqrt(values - mean)
    right, size, _ = np.linalg.svd(root, full_matrices=False)
    stretch = np.sqrt(1.0 + size**2)
    parts = right * (1.0 / stretch - 1.0), right * (stretch - 1.0), right
    return basis, LowRank(*(on_device(x, dtype) for x in parts))


def _diagonal_of_rest(
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


@dataclasses.dataclass(frozen=True)
class AveragedGaussian:
    """N(centre, H^-1)."""

    centre: Float[np.ndarray, " d"]
    hessian: Float[np.ndarray, "d d"]

    @property
    def basis(self) -> Float[np.ndarray, "d d"]:
        """An L with L^T H L = I."""
        return np.linalg.inv(_cholesky(self.hessian)).T


def averaged_gaussian(
    posterior: Posterior, mode: PyTree, *, key: PRNGKeyArray, num_rounds: int = 4
) -> AveragedGaussian:
    """The Gaussian whose precision is the Hessian of the potential averaged over it.

    The curvature at the mode may vanish where a model fits its data well. N(c, H^-1) with
    H = E[Hessian of U] and E[grad U] = 0, expectations over itself, is the fixed point of Gaussian
    variational inference (Opper and Archambeau, 2009). Putting E in place of H in each round need
    not come near it: for U = x^4 / 4, E = 3 / H, and two rounds lead back to where they began. The
    geometric mean of H and E is the fixed point there, in one round; where E does not depend on H a
    round halves what is left, on a logarithmic scale.

    Averages are over antithetic pairs of draws, each coordinate of them scaled to mean
    square 1; for potentials up to the third power one pair is exact. A ValueError tells that the
    Hessian is not positive definite: not a mode, or a flat direction.
    """
    key_rows, key_draws = split_key(key, 2)
    rows, rng = some_rows(posterior, key_rows, SOME), generator(key_draws)

    def at(flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = _derivatives(posterior, tree.freeze(unflattened(frozen, flat)), rows)
        gradient, hessian = (np.asarray(x, np.float64) for x in found)
        return gradient, 0.5 * (hessian + hessian.T)

    frozen = tree.freeze(mode)
    centre = flattened(frozen)
    # The rows are a sample, whose gradient at the mode is not zero as the whole data's is.
    offset, hessian = at(centre)
    for _ in range(num_rounds):
        normal = rng.standard_normal((PAIRS, centre.size))
        normal /= np.sqrt(np.mean(normal**2, axis=0))
        steps = scipy.linalg.solve_triangular(_cholesky(hessian).T, normal.T, lower=False).T
        flats = np.concatenate([centre + steps, centre - steps])
        gradient, averaged = (np.mean(x, axis=0) for x in zip(*map(at, flats), strict=True))
        centre = centre - _step(averaged, gradient - offset)
        hessian = _geometric_mean(hessian, averaged)
    return AveragedGaussian(centre, hessian)


def _step(
    hessian: Float[np.ndarray, "d d"], gradient: Float[np.ndarray, " d"]
) -> Float[np.ndarray, " d"]:
    """Newton's step, no longer than a typical draw: far draws may see slopes without curvature."""
    factor = _cholesky(hessian)
    inside = scipy.linalg.solve_triangular(factor, gradient, lower=True)  # in units of draws
    inside *= min(1.0, np.sqrt(len(gradient)) / max(float(np.linalg.norm(inside)), 1e-300))
    return scipy.linalg.solve_triangular(factor.T, inside, lower=False)


def _geometric_mean(
    a: Float[np.ndarray, "d d"], b: Float[np.ndarray, "d d"]
) -> Float[np.ndarray, "d d"]:
    """A^(1/2) (A^(-1/2) B A^(-1/2))^(1/2) A^(1/2), of positive definite matrices."""
    values, vectors = scipy.linalg.eigh(b, a)  # vectors^T A vectors = I
    if not (values > 0.0).all():  # but for rounding
        raise ValueError(FLAT)
    half = a @ vectors
    return (half * np.sqrt(values)) @ half.T


def _cholesky(hessian: Float[np.ndarray, "d d"]) -> Float[np.ndarray, "d d"]:
    try:
        return np.linalg.cholesky(hessian)
    except np.linalg.LinAlgError as error:
        raise ValueError(FLAT) from error


@eqx.filter_jit
def _derivatives(
    target: AbstractTarget, position: PyTree, rows: PyTree
) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
    """Gradient and Hessian of U on the raveled position, estimated from some rows."""
    flat, unravel = tree.ravel(position)
    gradient = jax.grad(lambda x: _potential(target, unravel(x), rows))

    def column(direction: Float[Array, " d"]) -> Float[Array, " d"]:
        return jax.jvp(gradient, (flat,), (direction,))[1]

    columns = jnp.eye(flat.size, dtype=flat.dtype)
    if flat.size <= TOGETHER:
        return gradient(flat), jax.vmap(column)(columns)
    return gradient(flat), lax.map(column, columns, batch_size=TOGETHER)


def _potential(target: AbstractTarget, position: PyTree, rows: PyTree) -> Float[Array, ""]:
    if isinstance(target, Posterior):
        return target.potential_on(position, rows)
    return target.potential(position)


@eqx.filter_jit
def _product(target: AbstractTarget, rows: PyTree, v: Float[Array, " d"]) -> Float[Array, " d"]:
    """The Hessian at u = 0 times v."""
    gradient = jax.grad(lambda u: _potential(target, u, rows))
    return jax.jvp(gradient, (jnp.zeros_like(v),), (v,))[1]


@eqx.filter_jit
def mean_squares(
    target: AbstractTarget, centre: PyTree, rows: PyTree, key: PRNGKeyArray
) -> Float[Array, " d"]:
    """N times the mean squared score and the prior's curvature, or the potential's diagonal."""
    flat, unravel = tree.ravel(centre)
    signs = jax.random.rademacher(key, (PROBES, *flat.shape), flat.dtype)
    smooth = target.potential
    if isinstance(target, Posterior):
        smooth = lambda x: -target.prior(x)  # noqa: E731
    gradient = jax.grad(lambda x: smooth(unravel(x)))
    curvature = jnp.mean(lax.map(lambda s: jax.jvp(gradient, (flat,), (s,))[1] * s, signs), 0)
    if not isinstance(target, Posterior):
        return jnp.abs(curvature)
    count = jax.tree.leaves(rows)[0].shape[0]

    def add(total: Float[Array, " d"], row: PyTree) -> tuple[Float[Array, " d"], None]:
        single = jax.tree.map(lambda x: x[None], row)
        score = target.per_example_gradients(centre, single)
        return total + tree.ravel(score)[0] ** 2, None

    squares, _ = lax.scan(add, jnp.zeros_like(flat), rows)
    return target.num_data / count * squares + jnp.abs(curvature)
