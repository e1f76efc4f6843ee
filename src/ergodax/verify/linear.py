"""Q of an Ornstein-Uhlenbeck process: a constant matrix, in any dimension and with no grid."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ergodax.verify.equation import Equation
from ergodax.verify.table import matrix_at

SCALES = np.array([0.0, 0.1, 1.0, 1.0, 3.0, 10.0])
ALIKE = 1e-9  # relative difference of derivatives that count as constant


class Linear(NamedTuple):
    """B L^-1 - D, which is skew if p is stationary, and points where p has its mass."""

    curl: Float[np.ndarray, "d d"]
    points: Float[np.ndarray, "n d"]


def by_linear_algebra(equation: Equation, dimension: int) -> Linear | None:
    """Q = B L^-1 - D for f = -B (z - m) and H = (z - m)^T L (z - m) / 2; None if not of this form.

    Whether it is of this form is read off the derivatives at six points, at distances up to ten,
    and again at as many points of the stationary law. The skewness of Q is not imposed.

    Raises:
        ValueError: of this form, but the drift is not zero at the minimum of H.
    """
    rng = np.random.default_rng(0)
    near = rng.standard_normal((SCALES.size, dimension)) * SCALES[:, None]
    constants = _constants(equation, near)
    if constants is None:
        return None
    rate, diffusion, precision, gradient, drift = constants
    values = np.linalg.eigvalsh(precision)
    if values[0] <= 1e-12 * np.abs(values).max():
        return None
    shift = np.linalg.solve(precision, gradient)  # near[0] is the origin
    root = np.linalg.cholesky(equation.temperature * np.linalg.inv(precision))
    points = 3.0 * rng.standard_normal(near.shape) @ root.T - shift
    if _constants(equation, points) is None:
        return None
    misfit = np.abs(drift + rate @ shift).max()
    if misfit > 1e-6 * np.abs(rate @ root).max():
        raise ValueError(
            f"exp(-H / T) is not stationary: at the minimum of H the drift is {misfit:.3g}, not 0. "
            "Check that drift and potential have the same centre."
        )
    return Linear(np.linalg.solve(precision, rate.T).T - diffusion, points)


def _constants(
    equation: Equation, points: Float[np.ndarray, "n d"]
) -> tuple[np.ndarray, ...] | None:
    """B, D and L if they are the same at all points; grad H and f at the first."""

    def derivatives(z: Float[Array, " d"]) -> tuple[Array, ...]:
        return (
            -jax.jacfwd(equation.drift)(z),
            matrix_at(equation, z),
            jax.jacfwd(equation.force)(z),
            equation.force(z),
            equation.drift(z),
        )

    tables = [np.asarray(t, float) for t in jax.jit(jax.vmap(derivatives))(jnp.asarray(points))]
    for table in tables[:3]:
        with np.errstate(invalid="ignore"):  # a function may overflow so far out
            alike = np.abs(table - table[0]).max() <= ALIKE * np.abs(table).max()
        if not alike:
            return None
    return tuple(table[0] for table in tables)
