"""An equation, its density and its probability current, tabulated on a grid."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ergodax.verify.equation import Equation, divergence, residual_at
from ergodax.verify.grid import Axis, cell_volume, check_semidefinite, mesh, tabulate


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


def matrix_at(equation: Equation, z: Float[Array, " d"]) -> Float[Array, "d d"]:
    """D(z)."""
    columns = jax.vmap(equation.diffusion, in_axes=(None, 0), out_axes=1)
    return columns(z, jnp.eye(z.size, dtype=z.dtype))


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
            matrix_at(equation, z),
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
