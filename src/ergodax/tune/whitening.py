"""Whitened coordinates u, where the posterior has mean 0 and scale 1: position = centre + L u."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ergodax import tree
from ergodax.checks import Numbers
from ergodax.target.base import AbstractTarget, Target
from ergodax.target.posterior import Posterior
from ergodax.tune.host import on_device

WHITE = 0.75, 1.33  # sds of draws, between which their coordinates need no correction


class LowRank(eqx.Module):
    """R = I + left right^T and R^-1 = I + back right^T: the identity but for few directions."""

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

    def transposed(self, x: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
        """R^T x, likewise."""
        left, right = (np.asarray(part, np.float64) for part in (self.left, self.right))
        return x + right @ (left.T @ x)

    def solve_rows(self, rows: Float[np.ndarray, "*rows d"]) -> Float[np.ndarray, "*rows d"]:
        """R^-1 of each row, likewise."""
        back, right = (np.asarray(x, np.float64) for x in (self.back, self.right))
        return rows + (rows @ right) @ back.T

    def row_norms(self) -> Float[np.ndarray, " d"]:
        """The length of each row of R, without R."""
        left, right = (np.asarray(x, np.float64) for x in (self.left, self.right))
        square = 1.0 + np.sum(left * (2.0 * right + left @ (right.T @ right)), axis=1)
        return np.sqrt(np.maximum(square, 0.0))

    @property
    def log_volume(self) -> float:
        """log |det R|, by the small matrix that has the same determinant."""
        left, right = (np.asarray(x, np.float64) for x in (self.left, self.right))
        return float(np.linalg.slogdet(np.eye(left.shape[1]) + right.T @ left)[1])

    def past(self, factor: Float[np.ndarray, " d"]) -> "LowRank":
        """The S for which R diag(factor) = diag(factor) S."""
        column = factor[:, None]
        scaled = self.left / column, self.back / column, self.right * column
        return LowRank(*(on_device(np.asarray(x), self.left.dtype) for x in scaled))


class Coordinates(eqx.Module):
    """The map position = centre + L u.

    Args:
        centre: a position, where u = 0.
        basis: L: a matrix, shape (d, d), or its diagonal, shape (d,), on the raveled position.
        low_rank: R, for a basis that is a diagonal: then L = diag(basis) R.
    """

    centre: PyTree
    basis: Float[Array, "d d"] | Float[Array, " d"]
    low_rank: LowRank | None = None

    @property
    def dimension(self) -> int:
        """d."""
        return self.basis.shape[0]

    @property
    def scales(self) -> Float[np.ndarray, " d"]:
        """The sd of each component of the position where u is standard normal."""
        basis = np.asarray(self.basis, np.float64)
        if basis.ndim == 2:
            return np.linalg.norm(basis, axis=1)
        return np.abs(basis) * (1.0 if self.low_rank is None else self.low_rank.row_norms())

    @property
    def log_volume(self) -> float:
        """log |det L|."""
        basis = np.asarray(self.basis, np.float64)
        if basis.ndim == 2:
            return float(np.linalg.slogdet(basis)[1])
        with np.errstate(divide="ignore"):
            volume = float(np.sum(np.log(np.abs(basis))))
        return volume + (0.0 if self.low_rank is None else self.low_rank.log_volume)

    def position(self, u: Float[Array, " d"]) -> PyTree:
        """The position at u, as the user wrote it."""
        flat, unravel = tree.ravel(tree.freeze(self.centre, "centre"))
        basis = self.basis.astype(u.dtype)
        inner = u if self.low_rank is None else self.low_rank.times(u)
        step = basis @ inner if basis.ndim == 2 else basis * inner
        return tree.thaw(unravel(flat + step.astype(flat.dtype)))

    def of(self, position: PyTree) -> Float[Array, " d"]:
        """The u of a position."""
        flat, _ = tree.ravel(tree.freeze(position))
        offset = flat - tree.ravel(tree.freeze(self.centre, "centre"))[0]
        if self.basis.ndim == 2:
            return jnp.linalg.solve(self.basis, offset)
        inner = offset / self.basis
        return inner if self.low_rank is None else self.low_rank.solve(inner)

    def of_rows(self, positions: PyTree) -> Float[np.ndarray, "rows d"]:
        """The u of positions along a leading axis, on the host, in double precision."""
        leaves = [np.asarray(x, np.float64) for x in jax.tree.leaves(tree.freeze(positions))]
        sizes = [int(np.prod(x.shape[1:])) for x in leaves]
        return self.of_flats(
            np.concatenate(
                [x.reshape(len(x), size) for x, size in zip(leaves, sizes, strict=True)], axis=1
            )
        )

    def of_flats(self, flats: Float[np.ndarray, "rows d"]) -> Float[np.ndarray, "rows d"]:
        """The u of raveled positions, likewise."""
        offsets = flats - flattened(self.centre)
        basis = np.asarray(self.basis, np.float64)
        if basis.ndim == 2:
            return np.linalg.solve(basis, offsets.T).T
        inner = offsets / basis
        return inner if self.low_rank is None else self.low_rank.solve_rows(inner)

    def flat_at(self, u: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
        """The raveled position at u, on the host, in double precision."""
        return self.flats_at(u[None])[0]

    def flats_at(self, rows: Float[np.ndarray, "rows d"]) -> Float[np.ndarray, "rows d"]:
        """The raveled positions at rows of u, likewise."""
        basis = np.asarray(self.basis, np.float64)
        if basis.ndim == 2:
            return flattened(self.centre) + rows @ basis.T
        inner = rows if self.low_rank is None else self.low_rank.times_rows(rows)
        return flattened(self.centre) + basis * inner

    def pulled_back(self, gradient: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
        """L^T of a gradient on the raveled position: that on u, likewise."""
        basis = np.asarray(self.basis, np.float64)
        if basis.ndim == 2:
            with np.errstate(invalid="ignore"):  # NaN beside an edge
                return basis.T @ gradient
        inner = basis * gradient
        return inner if self.low_rank is None else self.low_rank.transposed(inner)

    def of_chains(self, positions: PyTree) -> Float[np.ndarray, "chains draws d"]:
        """Likewise of positions with two leading axes."""
        frozen = tree.freeze(positions)
        chains, draws = jax.tree.leaves(frozen)[0].shape[:2]
        rows = jax.tree.map(lambda x: np.asarray(x).reshape(chains * draws, *x.shape[2:]), frozen)
        return self.of_rows(rows).reshape(chains, draws, self.dimension)

    def moved(self, mean: Numbers, factor: Numbers) -> "Coordinates":
        """The coordinates whose 0 is at u = mean and whose unit steps are the columns of L factor.

        Args:
            mean: the new centre in the present coordinates, shape (d,).
            factor: shape (d, d), or (d,) for a diagonal one.
        """
        basis, mean, factor = (np.asarray(x, np.float64) for x in (self.basis, mean, factor))
        low_rank, kept = self.low_rank, None
        if basis.ndim == factor.ndim == 1:
            new = basis * factor
            step = basis * (mean if low_rank is None else low_rank.times_rows(mean))
            kept = None if low_rank is None else low_rank.past(factor)
        else:
            own, other = self._matrix(), factor if factor.ndim == 2 else np.diag(factor)
            new, step = own @ other, own @ mean
        centre = unflattened(self.centre, flattened(self.centre) + step)
        return Coordinates(centre, on_device(new, self.basis.dtype), kept)

    def _matrix(self) -> Float[np.ndarray, "d d"]:
        """L, on the host, in double precision."""
        basis = np.asarray(self.basis, np.float64)
        if basis.ndim == 2:
            return basis
        inner = np.eye(len(basis))
        return basis[:, None] * (
            inner if self.low_rank is None else self.low_rank.times_rows(inner).T
        )


def flattened(position: PyTree) -> Float[np.ndarray, " d"]:
    """A position as one vector, on the host."""
    leaves = jax.tree.leaves(tree.freeze(position))
    return np.concatenate([np.asarray(x, np.float64).ravel() for x in leaves])


def unflattened(position: PyTree, flat: Float[np.ndarray, " d"]) -> PyTree:
    """A position of the same structure, shapes and dtypes, with the numbers of `flat`."""
    leaves, structure = jax.tree.flatten(tree.freeze(position))
    ends = np.cumsum([leaf.size for leaf in leaves])
    parts = [
        on_device(flat[end - leaf.size : end].reshape(leaf.shape), leaf.dtype)
        for leaf, end in zip(leaves, ends, strict=True)
    ]
    return tree.thaw(structure.unflatten(parts))


class _Composed(eqx.Module):
    """A function of the position, and of an example where there is one, as a function of u."""

    function: Callable[..., Any]
    coordinates: Coordinates

    def __call__(self, u: Float[Array, " d"], *example: Any) -> Any:
        return self.function(self.coordinates.position(u), *example)


def as_given(target: AbstractTarget, coordinates: Coordinates) -> Callable[[Any], PyTree]:
    """The function of u that gives the position as the user wrote it, constraints and all."""
    constrain = getattr(target, "constrain", None)
    return coordinates.position if constrain is None else _Composed(constrain, coordinates)


def as_sampled(target: AbstractTarget, draws: PyTree) -> PyTree:
    """Draws as the user wrote the position, as the target's own numbers: constraints undone."""
    constrain = getattr(target, "constrain", None)
    return draws if constrain is None else constrain.inverse(draws)


def in_coordinates(target: AbstractTarget, coordinates: Coordinates) -> AbstractTarget:
    """The same target as a function of u; a Posterior keeps its data.

    Args:
        target: of the position.
        coordinates: the map to u.

    Example:
        >>> import ergodax as ex, jax.numpy as jnp
        >>> target = ex.targets.gaussian(jnp.ones(2), jnp.array([4.0, 100.0]))  # variances
        >>> white = ex.tune.Coordinates(jnp.ones(2), jnp.array([2.0, 10.0]))  # mean and sds
        >>> inside, u = ex.tune.in_coordinates(target, white), jnp.array([1.0, -3.0])
        >>> bool(jnp.allclose(inside.gradient(u), u))  # as of a standard normal law
        True
    """
    if isinstance(target, Posterior):
        return posterior_in(target, coordinates)
    _check_unconstrained(target)
    return Target(_Composed(target.potential, coordinates))


def posterior_in(posterior: Posterior, coordinates: Coordinates) -> Posterior:
    """`in_coordinates` of a posterior."""
    _check_unconstrained(posterior)
    functions = [_Composed(f, coordinates) for f in (posterior.log_prior, posterior.log_likelihood)]
    # Not by the constructor, which would copy the data.
    return eqx.tree_at(lambda p: (p.log_prior, p.log_likelihood), posterior, tuple(functions))


def _check_unconstrained(target: AbstractTarget) -> None:
    if getattr(target, "constraints", None) is not None:
        raise ValueError(
            "the target has constraints, and these coordinates are of unconstrained numbers. Pass "
            "what ergodax.target.unconstrained(target, position) returns."
        )


def are_white(draws: Float[np.ndarray, "draws d"]) -> bool:
    """Whether the sds of draws in whitened coordinates are about 1."""
    sds = draws.std(axis=0)
    return bool(WHITE[0] < sds.min() and sds.max() < WHITE[1])
