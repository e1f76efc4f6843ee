"""Q p from the current, by three methods, and splines through what they find."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jax import lax
from jaxtyping import Array, Bool, Float

from ergodax.verify.equation import Equation, matrix
from ergodax.verify.grid import Axis, cell_volume, mesh
from ergodax.verify.table import Table

SCALES = np.array([0.0, 0.1, 1.0, 1.0, 3.0, 10.0])
ALIKE = 1e-9  # relative difference of derivatives that count as constant
DEGREE = 5


class Linear(NamedTuple):
    """B L^-1 - D, which is skew if p is stationary, and points where p has its mass."""

    curl: Float[np.ndarray, "d d"]
    points: Float[np.ndarray, "n d"]


def by_linear_algebra(equation: Equation, dimension: int) -> Linear | None:
    """Q = B L^-1 - D for f = -B (z - m) and H = (z - m)^T L (z - m) / 2; None if not of this form.

    Read off the derivatives at six points, and at six more of the stationary law.

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
            matrix(equation.diffusion, z),
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


def by_fourier(table: Table) -> Float[np.ndarray, "d d *cells"]:
    """A with sum over j of d_j A_ij = J_i, by its Fourier coefficients.

    With k the frequencies, A_ij(k) = (k_j J_i(k) - k_i J_j(k)) / (2 pi i |k|^2). At k = 0 any
    constant would do on a torus; that of a field that decays on R^d is the moment
    -integral of z_j J_i.
    """
    d, grid, current = len(table.grid), table.grid, table.current
    waves = [np.fft.fftfreq(axis.points, axis.width) for axis in grid]
    k = np.stack(np.meshgrid(*waves, indexing="ij"))
    square = np.sum(k**2, axis=0)
    square[(0,) * d] = 1.0  # there the numerators below are zero
    transform = np.fft.fftn(current, axes=range(1, d + 1))
    for i, axis in enumerate(grid):
        if axis.points % 2 == 0:  # the highest wave has no partner of opposite sign
            np.moveaxis(transform, i + 1, 0)[axis.points // 2] = 0.0
    scaled = transform / (2j * np.pi * square)
    zero = zero_mode(table)
    field = np.empty((d, d, *current.shape[1:]))
    for i in range(d):
        for j in range(d):
            field[i, j] = np.fft.ifftn(k[j] * scaled[i] - k[i] * scaled[j]).real + zero[i, j]
    return field


def zero_mode(table: Table) -> Float[np.ndarray, "d d"]:
    """The mean of A over the box, -integral of z_j J_i / volume: what makes A decay."""
    centre = np.array([0.5 * (axis.low + axis.high) for axis in table.grid])
    z = np.moveaxis(mesh(table.grid) - centre, -1, 0)
    d = centre.size
    moments = table.current.reshape(d, -1) @ z.reshape(d, -1).T
    volume = np.prod([axis.high - axis.low for axis in table.grid])
    return -moments * cell_volume(table.grid) / volume


class Interpolant(eqx.Module):
    """A C^4 spline through values at the centres of cells; constant beyond the outermost."""

    coefficients: Float[Array, "..."]  # the grid's axes, padded, then the components
    first: Float[Array, " d"]  # the centre of the first cell
    width: Float[Array, " d"]

    def __call__(self, z: Float[Array, " d"]) -> Float[Array, " components"]:
        """The components at z, shape (d,)."""
        coefficients, first, width = (
            x.astype(z.dtype) for x in (self.coefficients, self.first, self.width)
        )
        shape = coefficients.shape
        last = jnp.asarray([n - DEGREE for n in shape[:-1]], z.dtype)
        place = jnp.clip((z - first) / width, jnp.zeros_like(last), last)
        cell = jnp.minimum(jnp.floor(place), last - 1.0)
        corner = [*cell.astype(int), jnp.zeros((), int)]
        block = lax.dynamic_slice(
            coefficients, corner, (*(DEGREE + 1 for _ in shape[:-1]), shape[-1])
        )
        for weights in _basis(place - cell):
            block = jnp.tensordot(weights, block, axes=1)
        return block


def _basis(t: Float[Array, " d"]) -> Float[Array, "d degree"]:
    """The B-splines that are not zero at offset t of a cell: Cox and de Boor's recursion."""
    weights = [jnp.ones_like(t)]
    for k in range(1, DEGREE + 1):
        left, right = [0.0 * t, *weights], [*weights, 0.0 * t]
        weights = [((t + (k - j)) * left[j] + ((1 + j) - t) * right[j]) / k for j in range(k + 1)]
    return jnp.stack(weights, axis=-1)


def interpolant(
    values: Float[np.ndarray, "..."], known: Bool[np.ndarray, "..."], grid: Sequence[Axis]
) -> Interpolant:
    """The spline through `values` where they are known, and the nearest known value elsewhere."""
    widths = [axis.width for axis in grid]
    nearest: Any = scipy.ndimage.distance_transform_edt(
        ~known, sampling=widths, return_distances=False, return_indices=True
    )
    extended = values[tuple(nearest)]
    padded = [
        np.pad(
            scipy.ndimage.spline_filter(component, DEGREE, mode="mirror"),
            DEGREE // 2,
            mode="reflect",
        )
        for component in np.moveaxis(extended, -1, 0)
    ]
    first = [axis.centres[0] for axis in grid]
    arrays = np.stack(padded, axis=-1), np.array(first), np.array(widths)
    return Interpolant(*map(jnp.asarray, arrays))
