"""A box that holds all of a density that can be seen in double precision."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Bool, Float, Int

from ergodax.verify.grid import Axis, mesh, tabulator

LEVEL = 37.0  # exp(-37) is below the rounding of 1
RESOLUTION = {1: 400, 2: 60, 3: 24}  # cells an axis of the search grid


def mode(potential: Callable, dimension: int) -> Float[np.ndarray, " d"]:
    """A minimum of the potential, searched from the origin.

    Raises:
        ValueError: the search leaves the finite numbers.
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
    potential: Callable, dimension: int, temperature: float, points: int
) -> tuple[Axis, ...]:
    """The smallest even box outside which p < 1e-16 max p, as far as a coarse grid sees.

    Args:
        potential: H.
        dimension: d, at most 3.
        temperature: T.
        points: cells an axis of the grid that is returned.

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
