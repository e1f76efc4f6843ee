"""Even grids of cells, functions tabulated on them, and laws on their cells."""

import abc
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ergodax.checks import Numbers, callable_function, numbers, plain, whole_number
from ergodax.recipe.operators import as_operator

BATCH = 1 << 15  # points evaluated at once: bounds the memory of derivatives on large grids


@dataclasses.dataclass(frozen=True)
class Axis:
    """Even cells on [low, high]: one axis of a grid.

    A function on the grid is known at the centres of the cells, low + (i + 1/2) width.

    Args:
        low: the lower end.
        high: the upper end.
        points: the number of cells, at least 8.

    Raises:
        ValueError: ends that are not finite and increasing, or too few cells.

    Example:
        >>> Axis(-2.0, 2.0, 8).centres
        array([-1.75, -1.25, -0.75, -0.25,  0.25,  0.75,  1.25,  1.75])
    """

    low: float
    high: float
    points: int

    def __post_init__(self) -> None:
        """Refuse an empty axis."""
        ends = [plain(self.low), plain(self.high)]
        if None in ends or not -np.inf < ends[0] < ends[1] < np.inf:  # pyright: ignore
            raise ValueError(f"Axis needs finite low < high, not {self.low} and {self.high}.")
        whole_number("points", self.points, at_least=8)

    @property
    def width(self) -> float:
        """The width of a cell."""
        return (self.high - self.low) / self.points

    @property
    def centres(self) -> Float[np.ndarray, " points"]:
        """The centres of the cells."""
        return self.low + self.width * (np.arange(self.points) + 0.5)


def as_grid(grid: Axis | Sequence[Axis]) -> tuple[Axis, ...]:
    """One axis or several as a tuple.

    Raises:
        TypeError: anything else.
    """
    several = tuple(grid) if isinstance(grid, tuple | list) else ()
    axes = (grid,) if isinstance(grid, Axis) else several
    if not axes or not all(isinstance(axis, Axis) for axis in axes):
        raise TypeError(f"grid must be an Axis or a sequence of them, not {grid!r}.")
    return axes


def cell_volume(grid: Sequence[Axis]) -> float:
    """The volume of one cell."""
    return float(np.prod([axis.width for axis in grid]))


def mesh(grid: Sequence[Axis]) -> Float[np.ndarray, "..."]:
    """The centres of all cells: the grid's axes, then the coordinates.

    Args:
        grid: an axis for each coordinate.
    """
    places = np.meshgrid(*(axis.centres for axis in grid), indexing="ij")
    return np.stack(places, axis=-1)


def tabulate(function: Callable[..., Any], points: Float[np.ndarray, "..."]) -> Any:
    """`function` at points of shape (..., d), in float64: leading axes as those of the points."""
    return tabulator(function)(points)


def tabulator(function: Callable[..., Any]) -> Callable[[Float[np.ndarray, "..."]], Any]:
    """`tabulate` for one function and many sets of points, compiled once for each shape."""
    # A map in batches compiles the function twice, for the batches and for what remains of them.
    compiled = jax.jit(
        lambda z: (
            jax.vmap(function)(z) if len(z) <= BATCH else jax.lax.map(function, z, batch_size=BATCH)
        )
    )

    def values_at(points: Float[np.ndarray, "..."]) -> Any:
        lead, d = points.shape[:-1], points.shape[-1]
        with jax.enable_x64(True):
            values = compiled(jnp.asarray(points.reshape(-1, d)))
            return jax.tree.map(lambda x: np.asarray(x, float).reshape(*lead, *x.shape[1:]), values)

    return values_at


def as_drift(drift: Callable[..., Any], dimension: int) -> Callable[..., Any]:
    """`drift`, checked to map (d,) to (d,).

    Raises:
        TypeError: not a function.
        ValueError: another shape.
    """
    callable_function("drift", drift)
    shape = jax.eval_shape(
        lambda z: jnp.asarray(numbers("what drift returns", drift(z))), jnp.zeros(dimension)
    ).shape
    if shape != (dimension,):
        raise ValueError(
            f"drift must map a vector of shape ({dimension},) to one like it, but returns shape "
            f"{shape}."
        )
    return lambda z: jnp.asarray(drift(z), z.dtype)


def as_energy(potential: Callable[..., Any], dimension: int) -> Callable[..., Any]:
    """`potential`, checked to map (d,) to a number.

    Raises:
        TypeError: not a function.
        ValueError: it returns something else.
    """
    callable_function("potential", potential)
    shape = jax.eval_shape(lambda z: jnp.asarray(potential(z)), jnp.zeros(dimension)).shape
    if shape != ():
        raise ValueError(
            f"potential must return one number, not shape {shape}. Sum over the dimensions, as in "
            "jnp.sum(...)."
        )
    return lambda z: jnp.asarray(potential(z), z.dtype)


def as_matrix_field(
    diffusion: Callable[..., Any], dimension: int, name: str = "diffusion"
) -> Callable[..., Any]:
    """z -> D(z) of shape (d, d), from a function that returns a number, vector or matrix.

    Raises:
        TypeError: not a function.
        ValueError: it returns a vector or matrix of another size.
    """
    callable_function(name, diffusion)

    def matrix(z: Float[Array, " d"]) -> Float[Array, "d d"]:
        operator = as_operator(diffusion(z), name)
        return jax.vmap(operator.mv, out_axes=1)(jnp.eye(z.size, dtype=z.dtype))

    try:
        jax.eval_shape(matrix, jnp.zeros(dimension))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} must return a number, a vector or a matrix for a position of {dimension} "
            f"numbers: {str(error).splitlines()[0]}"
        ) from error
    return matrix


def check_semidefinite(matrices: Float[np.ndarray, "*cells d d"], name: str = "diffusion") -> None:
    """Refuse a D that is not symmetric positive semidefinite at every point.

    Raises:
        ValueError: it is not finite, not symmetric, or has a negative eigenvalue.
    """
    if not np.isfinite(matrices).all():
        raise ValueError(f"{name} is not finite everywhere on the grid; try a smaller box.")
    scale = np.abs(matrices).max()
    if np.abs(matrices - np.swapaxes(matrices, -1, -2)).max() > 1e-6 * scale:
        raise ValueError(f"{name} must be symmetric; a skew part belongs to Q.")
    least = np.linalg.eigvalsh(matrices).min()
    if least < -1e-6 * scale:
        raise ValueError(
            f"{name} must be positive semidefinite, but its least eigenvalue is {least:.3g}."
        )


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

    def density(self, function: Callable[..., Any]) -> Float[np.ndarray, "*cells"]:
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

    def point_mass(self, where: Numbers) -> Float[np.ndarray, "*cells"]:
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

    def mean(
        self, function: Callable[..., Any], density: Float[np.ndarray, "*cells"] | None = None
    ) -> float:
        """The expectation of a function.

        Args:
            function: of z, shape (d,); returns a number.
            density: shape of the grid; the stationary one by default.
        """
        values = tabulate(_number(function, "function"), self.points)
        p = self.stationary() if density is None else self.checked(density)
        return float(np.sum(values * p) * cell_volume(self.grid))

    def checked(self, density: Numbers) -> Float[np.ndarray, "*cells"]:
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


def _number(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    callable_function(name, function)

    def value(z: Float[Array, " d"]) -> Float[Array, ""]:
        out = jnp.asarray(function(z), z.dtype)
        if out.size != 1:
            raise ValueError(f"{name} must return one number, not shape {out.shape}.")
        return out.reshape(())

    return value
