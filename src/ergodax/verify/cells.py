"""Laws on the cells of a grid: what the grid solvers share."""

import abc
import dataclasses
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from ergodax.verify.grid import Axis, cell_volume, mesh, tabulate


@dataclasses.dataclass(frozen=True)
class Cells(abc.ABC):
    """A process on a grid. Densities are one number a cell, NumPy arrays of the grid's shape.

    Args:
        grid: the axes.
    """

    grid: tuple[Axis, ...]

    @abc.abstractmethod
    def stationary(self) -> Float[np.ndarray, "*cells"]:
        """The density that the process leaves as it is."""

    @property
    def points(self) -> Float[np.ndarray, "..."]:
        """The centres of the cells: the grid's axes, then the d coordinates."""
        return mesh(self.grid)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a density."""
        return tuple(axis.points for axis in self.grid)

    def density(self, function: Callable) -> Float[np.ndarray, "*cells"]:
        """A function at the centres of the cells, normalised to mass 1.

        Args:
            function: of z, shape (d,), not negative: a density up to a constant.

        Raises:
            ValueError: a value is negative or not finite, or all are zero.
        """
        values = tabulate(_number(function, "function"), self.points)
        if not (np.isfinite(values).all() and values.min() >= 0 and values.max() > 0):
            raise ValueError(
                "function must be finite, not negative, and not zero on the whole grid; its values "
                f"lie between {values.min():.3g} and {values.max():.3g}."
            )
        return values / (values.sum() * cell_volume(self.grid))

    def point_mass(self, where: ArrayLike) -> Float[np.ndarray, "*cells"]:
        """Mass 1 in the cell that holds a point.

        Args:
            where: shape (d,).

        Raises:
            ValueError: not a point of the box.
        """
        z = np.asarray(where, float)
        low, high, width = np.array([(a.low, a.high, a.width) for a in self.grid]).T
        if z.shape != low.shape or not ((z >= low) & (z <= high)).all():
            raise ValueError(
                f"where must be a point of the box, of shape ({low.size},) between {low} and "
                f"{high}, not {where!r}."
            )
        density = np.zeros(self.shape)
        cell = np.minimum(((z - low) / width).astype(int), np.array(self.shape) - 1)
        density[tuple(cell)] = 1.0 / cell_volume(self.grid)
        return density

    def mass(self, density: Float[np.ndarray, "*cells"]) -> float:
        """The integral of a density.

        Args:
            density: shape of the grid.
        """
        return float(self.checked(density).sum() * cell_volume(self.grid))

    def mean(self, function: Callable, density: Float[np.ndarray, "*cells"] | None = None) -> float:
        """The expectation of a function.

        Args:
            function: of z, shape (d,); returns a number.
            density: shape of the grid; the stationary one by default.
        """
        values = tabulate(_number(function, "function"), self.points)
        p = self.stationary() if density is None else self.checked(density)
        return float(np.sum(values * p) * cell_volume(self.grid))

    def checked(self, density: ArrayLike) -> Float[np.ndarray, "*cells"]:
        """`density` as an array.

        Args:
            density: shape of the grid.

        Raises:
            ValueError: another shape, or a negative or infinite value.
        """
        values = np.asarray(density, float)
        if values.shape != self.shape:
            raise ValueError(f"density must have shape {self.shape}, not {values.shape}.")
        if not (np.isfinite(values).all() and values.min() >= 0):
            raise ValueError(
                f"density must be finite and not negative, but its least value is {values.min()}."
            )
        return values


def _number(function: Callable, name: str) -> Callable:
    if not callable(function):
        raise TypeError(f"{name} must be a function of the position, not {function!r}.")

    def value(z: Float[Array, " d"]) -> Float[Array, ""]:
        out = jnp.asarray(function(z), z.dtype)
        if out.size != 1:
            raise ValueError(f"{name} must return one number, not shape {out.shape}.")
        return out.reshape(())

    return value
