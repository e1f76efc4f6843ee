"""Affine coordinates u in which a posterior is centred at 0 and has scale 1."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ergodax import tree
from ergodax.target.base import AbstractTarget, Target
from ergodax.target.posterior import Posterior
from ergodax.tune.host import on_device
from ergodax.tune.low_rank import LowRank


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
        """The u of many positions, which have a leading axis; on the host, in double precision."""
        leaves = [np.asarray(x, np.float64) for x in jax.tree.leaves(tree.freeze(positions))]
        flat = np.concatenate([x.reshape(len(x), -1) for x in leaves], axis=1)
        offsets = flat - flattened(self.centre)
        basis = np.asarray(self.basis, np.float64)
        if basis.ndim == 2:
            return np.linalg.solve(basis, offsets.T).T
        inner = offsets / basis
        return inner if self.low_rank is None else self.low_rank.solve_rows(inner)

    def moved(self, mean: Any, factor: Any) -> "Coordinates":
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
    """A position like another, with these numbers.

    Args:
        position: for structure, shapes and dtypes.
        flat: the numbers.
    """
    leaves, structure = jax.tree.flatten(tree.freeze(position))
    ends = np.cumsum([leaf.size for leaf in leaves])
    parts = [
        on_device(flat[end - leaf.size : end].reshape(leaf.shape), leaf.dtype)
        for leaf, end in zip(leaves, ends, strict=True)
    ]
    return tree.thaw(structure.unflatten(parts))


class _Composed(eqx.Module):
    """A function of the position, and of an example where there is one, as a function of u."""

    function: Callable
    coordinates: Coordinates

    def __call__(self, u: Float[Array, " d"], *example: Any) -> Any:
        return self.function(self.coordinates.position(u), *example)


def in_coordinates(target: AbstractTarget, coordinates: Coordinates) -> AbstractTarget:
    """The same target as a function of u; a Posterior keeps its data.

    Args:
        target: of the position.
        coordinates: the map to u.
    """
    if not isinstance(target, Posterior):
        return Target(_Composed(target.potential, coordinates))
    functions = [_Composed(f, coordinates) for f in (target.log_prior, target.log_likelihood)]
    # Not by the constructor, which would copy the data.
    return eqx.tree_at(lambda p: (p.log_prior, p.log_likelihood), target, tuple(functions))
