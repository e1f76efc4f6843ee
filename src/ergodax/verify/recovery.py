"""From a current to a usable Q: the field, its errors, and the refusals."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ergodax.verify.equation import Equation, divergence
from ergodax.verify.fourier import by_fourier
from ergodax.verify.grid import Axis, cell_volume, mesh, tabulate
from ergodax.verify.interpolate import Interpolant, interpolant
from ergodax.verify.line_integral import by_line_integrals
from ergodax.verify.linear import Linear
from ergodax.verify.table import Table, matrix_at, tabulated

METHODS = {"closed form": by_line_integrals, "fourier": by_fourier}

TRUSTED = 1e-11  # Q = A / p is kept where p > 1e-11 max p, and continued from there
TESTED = 1e-6  # the drift is compared where p > 1e-6 max p
TESTED_SLOW = 1e-3  # where A decays more slowly than p
FLOOR = 1e-7
MOST_TESTED = 10_000  # points
STATIONARY = 1e-6  # relative size of div J, or of the mean of J, that counts as zero
DECAYED = 1e-12  # of max p, at the edge of a box
RESOLVED = 1e-3  # relative error of div(Q p) above which a grid is too coarse

ADVICE = (
    "Check the signs, that the noise is sqrt(2 T D) dW, and that the drift has the terms from "
    "derivatives of D."
)


class Constant(eqx.Module):
    """The same matrix everywhere."""

    matrix: Float[Array, "d d"]

    def __call__(self, z: Float[Array, " d"]) -> Float[Array, "d d"]:
        """The matrix, in the dtype of z."""
        return self.matrix.astype(z.dtype)


class Interpolated(eqx.Module):
    """A skew matrix whose entries below the diagonal are splines."""

    below: Interpolant

    def __call__(self, z: Float[Array, " d"]) -> Float[Array, "d d"]:
        """The matrix at z."""
        lower = jnp.zeros((z.size, z.size), z.dtype)
        lower = lower.at[np.tril_indices(z.size, -1)].set(self.below(z))
        return lower - lower.T


class Quotient(eqx.Module):
    """Q = A / p, with A a spline and p exact, for an A that decays more slowly than p.

    Where p is below `FLOOR` of its largest value Q goes to zero instead of to infinity.
    """

    below: Interpolant
    energy: Callable
    least: Float[Array, ""]
    temperature: Float[Array, ""]

    def __call__(self, z: Float[Array, " d"]) -> Float[Array, "d d"]:
        """The matrix at z."""
        least, temperature = self.least.astype(z.dtype), self.temperature.astype(z.dtype)
        p = jnp.exp((least - self.energy(z)) / temperature)
        return Interpolated(self.below)(z) * (p / (p**2 + FLOOR**2))


Field = Constant | Interpolated | Quotient


class Figures(NamedTuple):
    """How well a Q was found; the attributes of `Curl` say what each is."""

    divergence_error: float
    skewness_error: float
    drift_error: float
    mean_current: float
    tested: float


def from_constant(equation: Equation, found: Linear) -> tuple[Constant, Figures]:
    """The field and figures of a linear equation.

    Raises:
        ValueError: the matrix is not skew: p is not stationary.
    """
    matrix = found.curl
    diffusion = tabulate(lambda z: matrix_at(equation, z), found.points[:1])[0]
    asymmetry = ratio(np.abs(matrix + matrix.T).max(), np.abs(matrix + diffusion).max())
    if asymmetry > STATIONARY:
        raise ValueError(
            "exp(-H / T) is not stationary: B L^-1 - D should be skew, and its symmetric part is "
            f"{0.5 * asymmetry:.1e} of B L^-1. {ADVICE}"
        )
    field = Constant(jnp.asarray(0.5 * (matrix - matrix.T)))
    relative, absolute = compare(equation, field, found.points)
    return field, Figures(relative, asymmetry, absolute, 0.0, TESTED)


def from_grid(equation: Equation, grid: tuple[Axis, ...], method: str) -> tuple[Field, Figures]:
    """The field and figures of any equation in three dimensions or fewer.

    Raises:
        ValueError: p is not stationary, the mean current is not zero, the box cuts p, or the
            grid is too coarse.
    """
    table = tabulated(equation, grid)
    check_stationary(table)
    mean_current = check_mean_current(table)
    check_edges(table)
    product = METHODS[method](table) / equation.temperature
    slow = (method, len(grid)) == ("fourier", 3)
    field, asymmetry = build(table, product, equation if slow else None)
    tested = TESTED_SLOW if slow else TESTED
    corners = mesh(grid) + 0.5 * np.array([axis.width for axis in grid])
    points = corners[table.density > tested * table.density.max()]
    points = points[:: 1 + len(points) // MOST_TESTED]
    relative, absolute = compare(equation, field, points)
    if not relative <= RESOLVED:
        raise ValueError(
            f"the grid is too coarse: div(Q p) misses J by {relative:.1e} of the largest |f| p. "
            f"Try points={2 * grid[0].points}, or a smaller box."
        )
    return field, Figures(relative, asymmetry, absolute, mean_current, tested)


def build(
    table: Table, product: Float[np.ndarray, "d d *cells"], slow: Equation | None = None
) -> tuple[Field, float]:
    """Q = A / p as a smooth field, and the skewness error of A.

    Args:
        table: for p.
        product: A = Q p as a method computed it.
        slow: the equation, if A decays more slowly than p.
    """
    d = len(table.grid)
    if d == 1:
        return Constant(jnp.zeros((1, 1))), 0.0
    transposed = np.swapaxes(product, 0, 1)
    size = np.abs(product).max() + (table.diffusion * table.density).max()
    asymmetry = ratio(np.abs(product + transposed).max(), size)
    rows, columns = np.tril_indices(d, -1)
    below = 0.5 * (product - transposed)[rows, columns]
    if slow is not None:
        peak = mesh(table.grid).reshape(-1, d)[table.density.argmax()]
        least = float(slow.energy(jnp.asarray(peak)))
        values = np.moveaxis(below / table.density.max(), 0, -1)
        spline = interpolant(values, np.full(table.density.shape, True), table.grid)
        parts = jnp.asarray(least), jnp.asarray(slow.temperature)
        return Quotient(spline, slow.energy, *parts), asymmetry
    trusted = table.density > TRUSTED * table.density.max()
    values = np.moveaxis(below / np.where(trusted, table.density, 1.0), 0, -1)
    return Interpolated(interpolant(values, trusted, table.grid)), asymmetry


def compare(
    equation: Equation, field: Field, points: Float[np.ndarray, "n d"]
) -> tuple[float, float]:
    """The largest p |f - f recovered| relative to the largest p |f|, and |f - f recovered|.

    The first is the error of T div(Q p) = J as well, since T div(Q p) - J = p (f recovered - f).
    """

    def at(z: Float[Array, " d"]) -> tuple[Array, Array, Array]:
        given = equation.drift(z)
        error = given - recovered_drift(equation, field, z)
        return equation.energy(z), jnp.linalg.norm(given), jnp.linalg.norm(error)

    energy, size, error = tabulate(at, points)
    weights = np.exp((energy.min() - energy) / equation.temperature)
    return ratio((weights * error).max(), (weights * size).max()), float(error.max())


def recovered_drift(equation: Equation, field: Field, z: Float[Array, " d"]) -> Float[Array, " d"]:
    """-(D + Q) grad H + T div(D + Q)."""

    def total(z: Float[Array, " d"], v: Float[Array, " d"]) -> Float[Array, " d"]:
        return equation.diffusion(z, v) + field(z) @ v

    return equation.temperature * divergence(total, z) - total(z, equation.force(z))


def check_stationary(table: Table) -> None:
    """Refuse a density that the equation does not leave invariant.

    Raises:
        ValueError: div J is not zero.
    """
    found = ratio(table.mean(np.abs(table.residual)), table.mean(table.terms))
    if not found <= STATIONARY:
        worst = np.argmax(np.abs(table.residual) * table.density)
        where = np.array2string(mesh(table.grid).reshape(-1, len(table.grid))[worst], precision=3)
        raise ValueError(
            f"exp(-H / T) is not stationary: div J is {found:.1e} of the size of its terms on "
            f"average, and largest at z = {where}. {ADVICE}"
        )


def check_mean_current(table: Table) -> float:
    """The mean current relative to the mean |f|.

    Raises:
        ValueError: it is not zero, so that no Q makes it.
    """
    cells = tuple(range(1, 1 + len(table.grid)))
    mean = table.current.sum(axis=cells) * cell_volume(table.grid)
    found = ratio(np.linalg.norm(mean), table.mean(table.drift))
    if not found <= STATIONARY:
        raise ValueError(
            f"the mean current is {np.array2string(mean, precision=3)}, {found:.1e} of the mean "
            "|f|, and T div(Q p) has mean zero. On a torus there is no Q. If the density lives on "
            f"R^d, the box cuts it ({_edge(table)}): try a wider one, or leave `grid` out."
        )
    return found


def check_edges(table: Table) -> None:
    """Refuse a box with density at its edge.

    Raises:
        ValueError: there is some.
    """
    if not _edge_density(table) <= DECAYED:
        raise ValueError(
            f"the box cuts the density: {_edge(table)}. Try a wider one, or leave `grid` out."
        )


def _edge_density(table: Table) -> float:
    faces = [np.take(table.density, [0, -1], axis=i).max() for i in range(len(table.grid))]
    return float(max(faces) / table.density.max())


def _edge(table: Table) -> str:
    return f"at its edge p is up to {_edge_density(table):.1e} of max p"


def ratio(part: float, whole: float) -> float:
    """part / whole, and 0 for 0 / 0."""
    return float(part) / float(whole) if whole else float(part)
