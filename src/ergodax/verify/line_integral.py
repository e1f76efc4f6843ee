"""Q p by line integrals of the current, in two dimensions and three."""

import numpy as np
from jaxtyping import Float

from ergodax.verify.grid import Axis
from ergodax.verify.table import Table


def by_line_integrals(table: Table) -> Float[np.ndarray, "d d *cells"]:
    """A skew A with sum over j of d_j A_ij = J_i that decays like p.

    In two dimensions, each integral from where it vanishes,

        A_12(z) = integral of J_1(z_1, s) ds up to z_2
        A_21(z) = integral of J_2(s, z_2) ds up to z_1.

    In three, A_12 = a_12(z_1, z_2) p(z_3 | z_1, z_2), where a is the solution for the marginal of
    z_1 and z_2, and what A_12 leaves of the first two equations is integrated along z_3. The
    third equation then holds because div J = 0. For a linear equation Q is constant.
    """
    if len(table.grid) == 2:
        return _plane(table.current, table.grid)
    marginal = table.density.sum(axis=2, keepdims=True)
    given = table.density / np.where(marginal > 0, marginal, 1.0)
    flux = table.current.sum(axis=-1)[:2]
    field = np.zeros((3, *table.current.shape))
    field[:2, :2] = _plane(flux, table.grid[:2])[..., None] * given
    for i, other in ((0, 1), (1, 0)):
        left = table.current[i] - slope(field[i, other], table.grid[other], other)
        field[i, 2] = integral(left, table.grid[2], axis=2)
        field[2, i] = -field[i, 2]
    return field


def _plane(
    current: Float[np.ndarray, "2 n1 n2"], grid: tuple[Axis, ...]
) -> Float[np.ndarray, "2 2 n1 n2"]:
    # That A_21 = -A_12 is not imposed: it holds because div J = 0, and its error is measured.
    field = np.zeros((2, *current.shape))
    field[0, 1] = integral(current[0], grid[1], axis=1)
    field[1, 0] = integral(current[1], grid[0], axis=0)
    return field


def integral(values: Float[np.ndarray, "*cells"], along: Axis, axis: int) -> np.ndarray:
    """The integral from the low end to each centre, of a function that decays, as its integral."""
    factor = _derivative_factor(along, axis, values.ndim)
    inverse = np.divide(1.0, factor, out=np.zeros_like(factor), where=factor != 0)
    transform = inverse * np.fft.rfft(values, axis=axis)
    found = np.fft.irfft(transform, n=along.points, axis=axis)
    return found - np.take(found, [0], axis=axis)


def slope(values: Float[np.ndarray, "*cells"], along: Axis, axis: int) -> np.ndarray:
    """The derivative of a function that decays."""
    transform = _derivative_factor(along, axis, values.ndim) * np.fft.rfft(values, axis=axis)
    return np.fft.irfft(transform, n=along.points, axis=axis)


def _derivative_factor(along: Axis, axis: int, ndim: int) -> np.ndarray:
    """2 pi i k, by which a derivative multiplies Fourier coefficients; 0 at the highest wave."""
    factor = 2j * np.pi * np.fft.rfftfreq(along.points, along.width)
    if along.points % 2 == 0:
        factor[-1] = 0.0
    return np.expand_dims(factor, tuple(j for j in range(ndim) if j != axis))
