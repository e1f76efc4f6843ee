"""Affine coordinates u in which a posterior is centred at 0 and has scale 1."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ergodax import tree
from ergodax.target.base import AbstractTarget, Target
from ergodax.target.posterior import Posterior


class Coordinates(eqx.Module):
    """The map position = centre + L u.

    Args:
        centre: a position, where u = 0.
        basis: L: a matrix, shape (d, d), or its diagonal, shape (d,), on the raveled position.
    """

    centre: PyTree
    basis: Float[Array, "d d"] | Float[Array, " d"]

    @property
    def dimension(self) -> int:
        """d."""
        return self.basis.shape[0]

    def position(self, u: Float[Array, " d"]) -> PyTree:
        """The position at u, as the user wrote it."""
        flat, unravel = tree.ravel(tree.freeze(self.centre, "centre"))
        basis = self.basis.astype(u.dtype)
        step = basis @ u if basis.ndim == 2 else basis * u
        return tree.thaw(unravel(flat + step.astype(flat.dtype)))

    def of(self, position: PyTree) -> Float[Array, " d"]:
        """The u of a position."""
        flat, _ = tree.ravel(tree.freeze(position))
        offset = flat - tree.ravel(tree.freeze(self.centre, "centre"))[0]
        if self.basis.ndim == 1:
            return offset / self.basis
        return jnp.linalg.solve(self.basis, offset)

    def moved(self, mean: Float[Array, " d"], factor: Float[Array, "..."]) -> "Coordinates":
        """The coordinates whose 0 is at u = mean and whose unit steps are the columns of L factor.

        Args:
            mean: the new centre in the present coordinates.
            factor: shape (d, d), or (d,) for a diagonal one.
        """
        wide = self.basis.ndim == 2 or factor.ndim == 2
        if not wide:
            return Coordinates(self.position(mean), self.basis * factor)
        own, new = (x if x.ndim == 2 else jnp.diag(x) for x in (self.basis, factor))
        return Coordinates(self.position(mean), own @ new)


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
