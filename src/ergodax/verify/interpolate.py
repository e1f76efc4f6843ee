"""Quintic B-splines on an even grid: smooth fields from tables, differentiable in JAX."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import scipy
from jax import lax
from jaxtyping import Array, Bool, Float

from ergodax.verify.grid import Axis

DEGREE = 5


class Interpolant(eqx.Module):
    """A spline through values at the centres of cells; constant beyond the outermost centres.

    Four times continuously differentiable inside. It computes in the dtype of its argument.
    """

    coefficients: Float[Array, "..."]  # the grid's axes, padded, then the components
    first: Float[Array, " d"]  # the centre of the first cell
    width: Float[Array, " d"]

    def __call__(self, z: Float[Array, " d"]) -> Float[Array, " components"]:
        """The components at z, shape (d,)."""
        coefficients, first, width = (
            x.astype(z.dtype) for x in (self.coefficients, self.first, self.width)
        )
        shape = coefficients.shape
        last = jnp.asarray([n - DEGREE for n in shape[:-1]], z.dtype)
        place = jnp.clip((z - first) / width, jnp.zeros_like(last), last)
        cell = jnp.minimum(jnp.floor(place), last - 1.0)
        corner = [*cell.astype(int), jnp.zeros((), int)]
        block = lax.dynamic_slice(
            coefficients, corner, (*(DEGREE + 1 for _ in shape[:-1]), shape[-1])
        )
        for weights in _basis(place - cell):
            block = jnp.tensordot(weights, block, axes=1)
        return block


def _basis(t: Float[Array, " d"]) -> Float[Array, "d degree"]:
    """The B-splines that are not zero at offset t of a cell: Cox and de Boor's recursion."""
    weights = [jnp.ones_like(t)]
    for k in range(1, DEGREE + 1):
        left, right = [0.0 * t, *weights], [*weights, 0.0 * t]
        weights = [((t + (k - j)) * left[j] + ((1 + j) - t) * right[j]) / k for j in range(k + 1)]
    return jnp.stack(weights, axis=-1)


def interpolant(
    values: Float[np.ndarray, "..."], known: Bool[np.ndarray, "..."], grid: Sequence[Axis]
) -> Interpolant:
    """The spline through `values` where they are known, and the nearest known value elsewhere.

    Args:
        values: the grid's axes, then the components.
        known: which cells to trust; shape of the grid.
        grid: the axes.
    """
    widths = [axis.width for axis in grid]
    nearest: Any = scipy.ndimage.distance_transform_edt(
        ~known, sampling=widths, return_distances=False, return_indices=True
    )
    extended = values[tuple(nearest)]
    padded = [
        np.pad(
            scipy.ndimage.spline_filter(component, DEGREE, mode="mirror"),
            DEGREE // 2,
            mode="reflect",
        )
        for component in np.moveaxis(extended, -1, 0)
    ]
    first = [axis.centres[0] for axis in grid]
    arrays = np.stack(padded, axis=-1), np.array(first), np.array(widths)
    return Interpolant(*map(jnp.asarray, arrays))
