"""Q p from the current by Fourier series: the skew solution of least norm, in any dimension."""

import numpy as np
from jaxtyping import Float

from ergodax.verify.grid import cell_volume, mesh
from ergodax.verify.table import Table


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
