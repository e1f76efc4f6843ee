"""The scale of a posterior: by its curvature at a point, or by draws."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.data.arrays import num_rows
from ergodax.gradient.batches import check_resident
from ergodax.target.base import AbstractTarget
from ergodax.target.posterior import Posterior
from ergodax.tune.coordinates import Coordinates, in_coordinates, unflattened
from ergodax.tune.gaussian import averaged_gaussian
from ergodax.tune.host import generator, on_device
from ergodax.tune.low_rank import SHARP, sharpest
from ergodax.tune.rows import some_rows

LARGEST_DENSE = 1024  # dimensions, beyond which no matrix is kept
LARGEST_LOW_RANK = 30_000  # beyond which nothing but a diagonal is
LARGEST_AVERAGED = 512
ROWS = 20_000  # that stand for all
WIDEST = 1e8  # the largest unit of a coordinate, in the smallest one
NUMBERS = 2**25  # rows times dimensions of a product with the Hessian
PROBES = 32  # of a diagonal
ROUNDINGS = 8.0  # eigenvalues below so many, as a share of the largest, are raised to them


def round_coordinates(target: AbstractTarget, mode: PyTree, *, key: PRNGKeyArray) -> Coordinates:
    """Coordinates in which the posterior has mean 0 and scale 1, as far as curvature can tell.

    With data and up to 512 dimensions the curvature is averaged over the Gaussian that it defines
    (`tune.gaussian`), since at the mode of a model that fits well it may vanish; otherwise it is
    that at the mode.

    Args:
        target: with data or without.
        mode: of the target, or near it.
        key: for rows and draws.

    Raises:
        TypeError: data that are a source.
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
    target: AbstractTarget, centre: PyTree, *, key: PRNGKeyArray, max_rows: int = ROWS
) -> Coordinates:
    """Coordinates in which the curvature at a point is the identity.

    Up to 1,024 dimensions L L^T is the inverse of the Hessian, taken in units in which its
    rows are alike, with the absolute values of its eigenvalues, so that
    a saddle has a scale too. Beyond, L is diagonal, by the mean square of the scores (the Fisher
    information) and the prior's curvature, but up to 30,000 dimensions for the directions, 20 at
    most, in which the Hessian is much larger than in the others (`low_rank.sharpest`).

    Args:
        target: with data or without.
        centre: where, a mode at best.
        key: for the rows that stand for all the data.
        max_rows: how many of them.
    """
    centre = tree.freeze(centre, "centre")
    dtype = tree.result_dtype(centre)
    rows = some_rows(target, key, max_rows)
    if tree.size(centre) > LARGEST_DENSE:
        square = np.asarray(_mean_squares(target, centre, rows, key), np.float64)
        basis = 1.0 / np.sqrt(_raised(square, WIDEST**-2))
        coordinates = Coordinates(tree.thaw(centre), on_device(basis, dtype))
        if tree.size(centre) > LARGEST_LOW_RANK:
            return coordinates
        return _sharpened(target, coordinates, rows, key)
    return hessian_coordinates(tree.thaw(centre), np.asarray(_hessian(target, centre, rows)))


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


def hessian_coordinates(centre: PyTree, hessian: Float[np.ndarray, "d d"]) -> Coordinates:
    """Coordinates in which a Hessian is the identity, but for the signs of its eigenvalues.

    Args:
        centre: a position.
        hessian: of the potential there, on the raveled position.
    """
    dtype, hessian = tree.result_dtype(tree.freeze(centre)), hessian.astype(np.float64)
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
    """
    mean, count, d = draws.mean(axis=0), *draws.shape
    variance = np.maximum(draws.var(axis=0), 1e-12)
    if d > LARGEST_DENSE:
        factor = np.sqrt(variance)
    else:
        kept = count / (count + 5.0 * d)
        covariance = kept * np.atleast_2d(np.cov(draws.T)) + (1.0 - kept) * np.diag(variance)
        factor = np.linalg.cholesky(covariance)
    return coordinates.moved(mean, factor)


def _potential(target: AbstractTarget, position: PyTree, rows: PyTree) -> Float[Array, ""]:
    if isinstance(target, Posterior):
        return target.potential_on(position, rows)
    return target.potential(position)


@eqx.filter_jit
def _hessian(target: AbstractTarget, centre: PyTree, rows: PyTree) -> Float[Array, "d d"]:
    flat, unravel = tree.ravel(centre)
    gradient = jax.grad(lambda x: _potential(target, unravel(x), rows))
    columns = jax.lax.map(
        lambda e: jax.jvp(gradient, (flat,), (e,))[1], jnp.eye(flat.size, dtype=flat.dtype)
    )
    return columns.T


@eqx.filter_jit
def _product(target: AbstractTarget, rows: PyTree, v: Float[Array, " d"]) -> Float[Array, " d"]:
    """The Hessian at u = 0 times v."""
    gradient = jax.grad(lambda u: _potential(target, u, rows))
    return jax.jvp(gradient, (jnp.zeros_like(v),), (v,))[1]


@eqx.filter_jit
def _mean_squares(
    target: AbstractTarget, centre: PyTree, rows: PyTree, key: PRNGKeyArray
) -> Float[Array, " d"]:
    """N times the mean squared score and the prior's curvature, or the potential's diagonal."""
    flat, unravel = tree.ravel(centre)
    signs = jax.random.rademacher(key, (PROBES, *flat.shape), flat.dtype)
    smooth = target.potential
    if isinstance(target, Posterior):
        smooth = lambda x: -target.prior(x)  # noqa: E731
    gradient = jax.grad(lambda x: smooth(unravel(x)))
    curvature = jnp.mean(jax.lax.map(lambda s: jax.jvp(gradient, (flat,), (s,))[1] * s, signs), 0)
    if not isinstance(target, Posterior):
        return jnp.abs(curvature)
    count = jax.tree.leaves(rows)[0].shape[0]

    def add(total: Float[Array, " d"], row: PyTree) -> tuple[Float[Array, " d"], None]:
        single = jax.tree.map(lambda x: x[None], row)
        score = target.per_example_gradients(centre, single)
        return total + tree.ravel(score)[0] ** 2, None

    squares, _ = jax.lax.scan(add, jnp.zeros_like(flat), rows)
    return target.num_data / count * squares + jnp.abs(curvature)
