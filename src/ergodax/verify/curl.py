"""The skew matrix Q of an equation whose stationary density is known (Ma, Chen and Fox, 2015)."""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ergodax.recipe.operators import Dense
from ergodax.recipe.recipe import Recipe, Variables
from ergodax.verify.box import find_box
from ergodax.verify.equation import Equation
from ergodax.verify.grid import Axis, as_drift, as_energy, as_grid, as_matrix_field
from ergodax.verify.linear import by_linear_algebra
from ergodax.verify.recovery import METHODS, Field, from_constant, from_grid

POINTS = {1: 256, 2: 256, 3: 64}  # cells an axis, where the caller does not say
FEWEST = 32  # of them: a normal density needs about 40 in a box found for it

GAUGE = {
    1: "none: in one dimension Q = 0, and the current vanishes.",
    2: "none among fields Q p that decay: in two dimensions they are unique.",
    3: "Q + S / p with div S = 0 makes the same drift; here Q p decays and Q_12 is of z_1 and z_2.",
}
LEAST_NORM = "Q + S / p with div S = 0 makes the same drift; this is the Q p of least L2 norm."
LINEAR_GAUGE = "Q + S / p with div S = 0 makes the same drift; this is the only constant Q."


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
    diffusion: Callable
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
    drift: Callable,
    diffusion: Callable,
    potential: Callable,
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
    - "closed form": two or three dimensions; line integrals of the current on a box that holds
      the density. In three dimensions Q is not unique; this one has a Q_12 of z_1 and z_2 alone,
      that of their marginal, and is the constant one where the equation is linear.
    - "fourier": one to three dimensions; the Fourier coefficients of Q p from those of J: the Q p
      of least norm. In three dimensions that decays more slowly than p, so that Q grows into the
      tails; it is brought back to zero where p < 1e-7 max p, and the drift is right where p is
      not small.
    - "auto": "linear" where the derivatives at a few points say so, otherwise "fourier", or
      "closed form" in three dimensions.

    Everything is computed in float64. Q is a quintic spline, found where p > 1e-11 max p, with the
    nearest such value beyond; in three dimensions by "fourier" it is a spline of Q p, over p.

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
        Ma, Chen and Fox, A complete recipe for stochastic gradient MCMC, 2015, Theorem 2. (The
        signs of Eq. (28) and of the kernel in Remark 1 are corrected here; line integrals in three
        dimensions are not in the paper.)

    Example, a rotation in the plane:
        >>> import jax.numpy as jnp, numpy as np
        >>> rotation = np.array([[1.0, -2.0], [2.0, 1.0]])
        >>> found = curl(
        ...     lambda z: -rotation @ z, lambda z: 1.0, lambda z: 0.5 * z @ z, dimension=2
        ... )
        >>> found.method, float(found(jnp.zeros(2)).matrix[1, 0])
        ('linear', 2.0)
    """
    legal = ("auto", "linear", *METHODS)
    if method not in legal:
        raise ValueError(f"method must be one of {', '.join(legal)}, not {method!r}.")
    if dimension < 1:
        raise ValueError(f"dimension must be at least 1, not {dimension}.")
    if not temperature > 0:
        raise ValueError(f"temperature must be positive, not {temperature}.")
    matrix, temperature = as_matrix_field(diffusion, dimension), float(temperature)
    equation = Equation(
        as_drift(drift, dimension),
        lambda z, v: matrix(z) @ v,
        as_energy(potential, dimension),
        temperature,
    )
    with jax.enable_x64(True):
        constant = by_linear_algebra(equation, dimension) if method in ("auto", "linear") else None
        if constant is None:
            method = _grid_method(method, dimension)
            axes = _grid(equation, dimension, grid, points)
            field, figures = from_grid(equation, axes, method)
            gauge = LEAST_NORM if (method, dimension) == ("fourier", 3) else GAUGE[dimension]
        else:
            method, (field, figures) = "linear", from_constant(equation, constant)
            gauge = GAUGE[1] if dimension == 1 else LINEAR_GAUGE
    # Outside of the context, so that the arrays have the precision that JAX is set to.
    arrays, functions = eqx.partition(field, eqx.is_array)
    field = eqx.combine(jax.tree.map(lambda x: jnp.asarray(np.asarray(x)), arrays), functions)
    return Curl(field, matrix, method, temperature, *figures, gauge)


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
