"""The skew matrix Q of an equation whose stationary density is known (Ma, Chen and Fox, 2015)."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ergodax.checks import choice, real_number, whole_number
from ergodax.recipe.operators import Dense
from ergodax.recipe.recipe import Recipe, Variables
from ergodax.verify.curl_methods import (
    Interpolant,
    Linear,
    by_fourier,
    by_line_integrals,
    by_linear_algebra,
    interpolant,
)
from ergodax.verify.equation import Equation, divergence, matrix
from ergodax.verify.grid import (
    Axis,
    as_drift,
    as_energy,
    as_grid,
    as_matrix_field,
    cell_volume,
    mesh,
    tabulate,
)
from ergodax.verify.table import Table, find_box, tabulated

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

POINTS = {1: 256, 2: 256, 3: 64}  # cells an axis, where the caller does not say
FEWEST = 32  # of them: a normal density needs about 40 in a box found for it
GAUGE = {
    1: "none: in one dimension Q = 0, and the current vanishes.",
    2: "none among fields Q p that decay: in two dimensions they are unique.",
    3: "Q + S / p with div S = 0 makes the same drift; here Q p decays and Q_12 is of z_1 and z_2.",
}
LEAST_NORM = "Q + S / p with div S = 0 makes the same drift; this is the Q p of least L2 norm."
LINEAR_GAUGE = "Q + S / p with div S = 0 makes the same drift; this is the only constant Q."


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
    energy: Callable[..., Any]
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


def _from_constant(equation: Equation, found: Linear) -> tuple[Constant, Figures]:
    """The field and figures of a linear equation."""
    q = found.curl
    diffusion = tabulate(lambda z: matrix(equation.diffusion, z), found.points[:1])[0]
    asymmetry = _ratio(np.abs(q + q.T).max(), np.abs(q + diffusion).max())
    if asymmetry > STATIONARY:
        raise ValueError(
            "exp(-H / T) is not stationary: B L^-1 - D should be skew, and its symmetric part is "
            f"{0.5 * asymmetry:.1e} of B L^-1. {ADVICE}"
        )
    field = Constant(jnp.asarray(0.5 * (q - q.T)))
    relative, absolute = _compare(equation, field, found.points)
    return field, Figures(relative, asymmetry, absolute, 0.0, TESTED)


def _from_grid(equation: Equation, grid: tuple[Axis, ...], method: str) -> tuple[Field, Figures]:
    """The field and figures of any equation in three dimensions or fewer."""
    table = tabulated(equation, grid)
    mean_current = _check_current(table)
    product = METHODS[method](table) / equation.temperature
    slow = (method, len(grid)) == ("fourier", 3)
    field, asymmetry = _build(table, product, equation if slow else None)
    tested = TESTED_SLOW if slow else TESTED
    corners = mesh(grid) + 0.5 * np.array([axis.width for axis in grid])
    points = corners[table.density > tested * table.density.max()]
    points = points[:: 1 + len(points) // MOST_TESTED]
    relative, absolute = _compare(equation, field, points)
    if not relative <= RESOLVED:
        raise ValueError(
            f"the grid is too coarse: div(Q p) misses J by {relative:.1e} of the largest |f| p. "
            f"Try points={2 * grid[0].points}, or a smaller box."
        )
    return field, Figures(relative, asymmetry, absolute, mean_current, tested)


def _build(
    table: Table, product: Float[np.ndarray, "d d *cells"], slow: Equation | None = None
) -> tuple[Field, float]:
    """Q = A / p as a smooth field, and the skewness error of A; `slow` if A decays slower."""
    d = len(table.grid)
    if d == 1:
        return Constant(jnp.zeros((1, 1))), 0.0
    transposed = np.swapaxes(product, 0, 1)
    size = np.abs(product).max() + (table.diffusion * table.density).max()
    asymmetry = _ratio(np.abs(product + transposed).max(), size)
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


def _compare(
    equation: Equation, field: Field, points: Float[np.ndarray, "n d"]
) -> tuple[float, float]:
    """The largest p |f - f recovered| relative to the largest p |f|, and |f - f recovered|.

    The first is the error of T div(Q p) = J as well, since T div(Q p) - J = p (f recovered - f).
    """

    def at(z: Float[Array, " d"]) -> tuple[Array, Array, Array]:
        given = equation.drift(z)
        error = given - _recovered_drift(equation, field, z)
        return equation.energy(z), jnp.linalg.norm(given), jnp.linalg.norm(error)

    energy, size, error = tabulate(at, points)
    weights = np.exp((energy.min() - energy) / equation.temperature)
    return _ratio((weights * error).max(), (weights * size).max()), float(error.max())


def _recovered_drift(equation: Equation, field: Field, z: Float[Array, " d"]) -> Float[Array, " d"]:
    """-(D + Q) grad H + T div(D + Q)."""

    def total(z: Float[Array, " d"], v: Float[Array, " d"]) -> Float[Array, " d"]:
        return equation.diffusion(z, v) + field(z) @ v

    return equation.temperature * divergence(total, z) - total(z, equation.force(z))


def _check_current(table: Table) -> float:
    """The mean current over the mean |f|; refuses a density that is not stationary or is cut."""
    found = _ratio(table.mean(np.abs(table.residual)), table.mean(table.terms))
    if not found <= STATIONARY:
        worst = np.argmax(np.abs(table.residual) * table.density)
        where = np.array2string(mesh(table.grid).reshape(-1, len(table.grid))[worst], precision=3)
        raise ValueError(
            f"exp(-H / T) is not stationary: div J is {found:.1e} of the size of its terms on "
            f"average, and largest at z = {where}. {ADVICE}"
        )
    faces = [np.take(table.density, [0, -1], axis=i).max() for i in range(len(table.grid))]
    edge = float(max(faces) / table.density.max())
    at_edge = f"at its edge p is up to {edge:.1e} of max p"
    cells = tuple(range(1, 1 + len(table.grid)))
    mean = table.current.sum(axis=cells) * cell_volume(table.grid)
    found = _ratio(np.linalg.norm(mean), table.mean(table.drift))
    if not found <= STATIONARY:
        raise ValueError(
            f"the mean current is {np.array2string(mean, precision=3)}, {found:.1e} of the mean "
            "|f|, and T div(Q p) has mean zero. On a torus there is no Q. If the density lives on "
            f"R^d, the box cuts it ({at_edge}): try a wider one, or leave `grid` out."
        )
    if not edge <= DECAYED:
        raise ValueError(
            f"the box cuts the density: {at_edge}. Try a wider one, or leave `grid` out."
        )
    return found


def _ratio(part: float, whole: float) -> float:
    """part / whole, and 0 for 0 / 0."""
    return float(part) / float(whole) if whole else float(part)


class Curl(eqx.Module):
    """What `curl` returns: Q as a function and as a recipe, and how well it was found.

    Attributes:
        method: "linear", "closed form" or "fourier".
        divergence_error: the largest |T div(Q p) - J|, relative to the largest |f| p.
        skewness_error: the largest |A + A^T| of A = Q p as computed, before its skew part was
            taken, relative to the largest |A| and |D| p; for the linear method of Q itself.
        drift_error: the largest difference of the drift made from D and this Q by automatic
            differentiation and the drift given.
        mean_current: |integral of J|, relative to the mean of |f|.
        tested: the errors are those where p > tested max p.
        gauge: what else would have made the same drift.
    """

    field: Field
    diffusion: Callable[..., Any]
    method: str = eqx.field(static=True)
    temperature: float = eqx.field(static=True)
    divergence_error: float = eqx.field(static=True)
    skewness_error: float = eqx.field(static=True)
    drift_error: float = eqx.field(static=True)
    mean_current: float = eqx.field(static=True)
    tested: float = eqx.field(static=True)
    gauge: str = eqx.field(static=True)

    def __call__(self, z: Float[Array, " d"]) -> Dense:
        """Q(z), for z of shape (d,)."""
        return Dense(self.field(z))

    def recipe(self) -> Recipe:
        """The recipe in the one variable "position" with this D and Q.

        Run at the same temperature with the gradient of H, `euler_maruyama` discretises the
        equation that Q was found from. Its density is exp(-H / T) exactly, whatever the error
        of Q: that can only change the drift, not what is left invariant.
        """
        return Recipe(self._diffusion, self._curl)

    def _diffusion(self, z: Variables) -> dict[str, Dense]:
        return {"position": Dense(self.diffusion(z["position"]))}

    def _curl(self, z: Variables) -> dict[tuple[str, str], Dense]:
        return {("position", "position"): self(z["position"])}

    def __str__(self) -> str:
        """The figures, one a line."""
        return "\n".join(
            [
                f"Q by the method {self.method!r}, T = {self.temperature:g}",
                f"  div(Q p) against J     {self.divergence_error:.1e} of the largest |f| p",
                f"  skewness               {self.skewness_error:.1e}",
                f"  drift recovered        within {self.drift_error:.1e}",
                f"  tested                 where p > {self.tested:g} max p",
                f"  mean current           {self.mean_current:.1e} of the mean |f|",
                f"  freedom                {self.gauge}",
            ]
        )


def curl(
    drift: Callable[..., Any],
    diffusion: Callable[..., Any],
    potential: Callable[..., Any],
    *,
    dimension: int,
    method: str = "auto",
    temperature: float = 1.0,
    grid: Axis | Sequence[Axis] | None = None,
    points: int | None = None,
) -> Curl:
    """Find the skew-symmetric Q with which a recipe makes a given equation.

    If dz = f dt + sqrt(2 T D) dW leaves p = exp(-H / T) / Z invariant, its current
    J = f p - T div(D p) has no divergence, and a skew Q exists with T div(Q p) = J, so that
    f = -(D + Q) grad H + T div(D + Q). The methods:

    - "linear": f affine, D constant, H quadratic, in any dimension. With f = -B (z - m) and
      L the Hessian of H, Q = B L^-1 - D, to rounding.
    - "closed form": two or three dimensions; line integrals of the current in a box. In three
      dimensions Q is not unique; this one has a Q_12 of z_1 and z_2 alone.
    - "fourier": one to three dimensions; the Q p of least norm, from the Fourier coefficients of
      J. In three dimensions it decays more slowly than p: Q is brought back to zero where
      p < 1e-7 max p, and the drift is right where p is not small.
    - "auto": "linear" where the derivatives at a few points say so, otherwise "fourier", or
      "closed form" in three dimensions.

    Computed in float64. Q is a quintic spline, found where p > 1e-11 max p, and constant beyond.

    Args:
        drift: f, a function of z of shape (d,) that returns shape (d,), in JAX.
        diffusion: D, a function of z that returns a number, a vector (a diagonal) or a symmetric
            positive semidefinite matrix.
        potential: H, a function of z that returns a number, twice differentiable.
        dimension: d.
        method: "auto", "linear", "closed form" or "fourier".
        temperature: T, positive.
        grid: for the grid methods, an axis for each dimension; found from the potential by
            default, such that p < 1e-16 max p outside.
        points: cells an axis of the grid found; 256 by default, 64 in three dimensions.

    Returns:
        A `Curl`: `result(z)` is Q(z), `result.recipe()` the recipe, and `print(result)` shows
        the errors.

    Raises:
        TypeError: an argument that is not a function or an axis.
        ValueError: shapes that disagree; a method that does not apply; a density that is not
            stationary for the equation; a current that does not vanish in the mean, as on a
            torus; a box that cuts the density; a grid that is too coarse.

    Reference:
        Ma, Chen and Fox, A complete recipe for stochastic gradient MCMC, 2015, Theorem 2, with
        the signs of Eq. (28) and of the kernel in Remark 1 corrected.

    Example:
        A rotation in the plane.

        >>> import jax.numpy as jnp, numpy as np
        >>> rotation = np.array([[1.0, -2.0], [2.0, 1.0]])
        >>> found = curl(
        ...     lambda z: -rotation @ z, lambda z: 1.0, lambda z: 0.5 * z @ z, dimension=2
        ... )
        >>> found.method, float(found(jnp.zeros(2)).matrix[1, 0])
        ('linear', 2.0)
    """
    legal = ("auto", "linear", *METHODS)
    choice("method", method, legal)
    dimension = whole_number("dimension", dimension)
    temperature = real_number("temperature", temperature, above=0.0)
    spread, temperature = as_matrix_field(diffusion, dimension), float(temperature)
    equation = Equation(
        as_drift(drift, dimension),
        lambda z, v: spread(z) @ v,
        as_energy(potential, dimension),
        temperature,
    )
    with jax.enable_x64(True):
        constant = by_linear_algebra(equation, dimension) if method in ("auto", "linear") else None
        if constant is None:
            method = _grid_method(method, dimension)
            axes = _grid(equation, dimension, grid, points)
            field, figures = _from_grid(equation, axes, method)
            gauge = LEAST_NORM if (method, dimension) == ("fourier", 3) else GAUGE[dimension]
        else:
            method, (field, figures) = "linear", _from_constant(equation, constant)
            gauge = GAUGE[1] if dimension == 1 else LINEAR_GAUGE
    # Outside of the context, so that the arrays have the precision that JAX is set to.
    arrays, functions = eqx.partition(field, eqx.is_array)
    field = eqx.combine(jax.tree.map(lambda x: jnp.asarray(np.asarray(x)), arrays), functions)
    return Curl(field, spread, method, temperature, *figures, gauge)


def _grid_method(method: str, dimension: int) -> str:
    if method == "linear":
        raise ValueError(
            'method="linear" needs an affine drift, a constant diffusion and a potential '
            'that is quadratic with a minimum. Try method="auto".'
        )
    if dimension not in POINTS:
        raise ValueError(
            f"dimension is {dimension} and the equation is not linear: the grid methods go up to "
            "3. Try the marginal equation of fewer coordinates."
        )
    best = "closed form" if dimension == 3 else "fourier"
    if (method, dimension) == ("closed form", 1):
        raise ValueError(
            f'method="{method}" does not go with dimension {dimension}. Try method="{best}".'
        )
    return best if method == "auto" else method


def _grid(
    equation: Equation, d: int, grid: Axis | Sequence[Axis] | None, points: int | None
) -> tuple[Axis, ...]:
    if grid is None:
        points = POINTS[d] if points is None else points
        if points < FEWEST:
            raise ValueError(f"points must be at least {FEWEST}, not {points}.")
        return find_box(equation.energy, d, equation.temperature, points)
    if points is not None:
        raise ValueError("points is for the grid that is found; an axis of `grid` has its own.")
    axes = as_grid(grid)
    if len(axes) != d:
        raise ValueError(f"grid must have {d} axes, one for each dimension, not {len(axes)}.")
    return axes
