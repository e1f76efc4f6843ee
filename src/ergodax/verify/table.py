"""A density and its probability current, tabulated in a box that holds the density."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Bool, Float, Int

from ergodax.verify.equation import Equation, divergence, matrix, residual_at
from ergodax.verify.grid import Axis, cell_volume, check_semidefinite, mesh, tabulate, tabulator

LEVEL = 37.0  # exp(-37) is below the rounding of 1
RESOLUTION = {1: 400, 2: 60, 3: 24}  # cells an axis of the search grid


class Table(NamedTuple):
    """What is known at the centres of a grid's cells."""

    grid: tuple[Axis, ...]
    density: Float[np.ndarray, "*cells"]  # p, integrates to 1
    diffusion: Float[np.ndarray, "*cells"]  # the largest |D_ij|
    drift: Float[np.ndarray, "*cells"]  # |f|
    velocity: Float[np.ndarray, "*cells d"]  # J / p
    residual: Float[np.ndarray, "*cells"]  # div J / p
    terms: Float[np.ndarray, "*cells"]  # the size of the terms of the residual

    @property
    def current(self) -> Float[np.ndarray, "d *cells"]:
        """J, component by component."""
        return np.moveaxis(self.velocity * self.density[..., None], -1, 0)

    def mean(self, values: Float[np.ndarray, "*cells"]) -> float:
        """The expectation of a tabulated function."""
        return float(np.sum(values * self.density) * cell_volume(self.grid))


def velocity(equation: Equation, z: Float[Array, " d"]) -> Float[Array, " d"]:
    """J / p = f - T div D + D grad H."""
    spread = equation.temperature * divergence(equation.diffusion, z)
    return equation.drift(z) - spread + equation.diffusion(z, equation.force(z))


def tabulated(equation: Equation, grid: Sequence[Axis]) -> Table:
    """Density, drift and current at the centres of the cells.

    Raises:
        ValueError: D is not symmetric positive semidefinite, or a function is not finite.
    """

    def at(z: Float[Array, " d"]) -> tuple[Any, ...]:
        residual = residual_at(equation, z)
        return (
            equation.energy(z) / equation.temperature,
            matrix(equation.diffusion, z),
            jnp.linalg.norm(equation.drift(z)),
            velocity(equation, z),
            residual.value,
            residual.scale,
        )

    energy, diffusion, *fields = tabulate(at, mesh(grid))
    check_semidefinite(diffusion)
    if not np.isfinite(energy.min()):
        raise ValueError("potential must be finite somewhere, and nowhere NaN or -inf.")
    density = np.exp(energy.min() - energy)
    density /= density.sum() * cell_volume(grid)
    names = ("drift", "drift, diffusion or potential's gradient", "second derivative", "derivative")
    for name, field in zip(names, fields, strict=True):
        if not np.isfinite(field[density > 0]).all():
            raise ValueError(f"a {name} is not finite where the density is not zero.")
    # Where the density underflows a function may overflow; it does not count there.
    finite = (np.nan_to_num(field, posinf=0.0, neginf=0.0) for field in fields)
    return Table(tuple(grid), density, np.abs(diffusion).max(axis=(-2, -1)), *finite)


def mode(potential: Callable[..., Any], dimension: int) -> Float[np.ndarray, " d"]:
    """A minimum of the potential, searched from the origin.

    Raises:
        ValueError: the search diverges.
    """
    with jax.enable_x64(True):
        slope = jax.jit(jax.value_and_grad(potential))

        def value(z: np.ndarray) -> tuple[float, np.ndarray]:
            energy, gradient = slope(jnp.asarray(z))
            return float(energy), np.asarray(gradient, float)

        found = scipy.optimize.minimize(value, np.zeros(dimension), jac=True, method="BFGS")
    if not np.isfinite(found.x).all() or np.abs(found.x).max() > 1e8:
        raise ValueError(
            "potential has no minimum that a search from the origin finds, so there is no box "
            "to put a grid on. Check that exp(-H / T) is a density, or give `grid`."
        )
    return found.x


def find_box(
    potential: Callable[..., Any], dimension: int, temperature: float, points: int
) -> tuple[Axis, ...]:
    """The smallest even box outside which p < 1e-16 max p, as far as a coarse grid sees.

    Raises:
        ValueError: the density does not decay.
    """
    centre = mode(potential, dimension)
    energies = tabulator(potential)
    ends = np.stack([centre - 8.0, centre + 8.0], axis=1)
    for _ in range(40):
        search = [Axis(low, high, RESOLUTION[dimension]) for low, high in ends]
        energy = energies(mesh(search)) / temperature
        inside = energy < np.nanmin(energy) + LEVEL
        if not inside.any():
            break
        new = np.array([_ends(axis, _shadow(inside, i)) for i, axis in enumerate(search)])
        settled = np.abs(new - ends).max(axis=1) <= 0.1 * (ends[:, 1] - ends[:, 0])
        ends = new
        if settled.all():
            return tuple(Axis(float(low), float(high), points) for low, high in ends)
    raise ValueError(
        f"exp(-H / T) does not decay within {np.ptp(ends):.1e} of its mode, so no box holds it: a "
        "constant or periodic potential has no density on R^d. Check the potential, or give `grid`."
    )


def _shadow(inside: Bool[np.ndarray, "..."], i: int) -> Int[np.ndarray, " k"]:
    """The cells of axis i over which the level set lies."""
    others = tuple(j for j in range(inside.ndim) if j != i)
    return np.flatnonzero(inside.any(axis=others))


def _ends(axis: Axis, cells: Int[np.ndarray, " k"]) -> tuple[float, float]:
    """A margin of one cell where the level set ends inside, of half the axis where it is cut."""
    cut = 0.5 * axis.points
    below = -cut if cells[0] == 0 else cells[0] - 1
    above = axis.points + cut if cells[-1] == axis.points - 1 else cells[-1] + 2
    return axis.low + below * axis.width, axis.low + above * axis.width
