"""The exact stationary law of Riemannian Langevin steps on the funnel with one x, on a grid.

In v and z = x exp(-v / 2) a step of size h with the metric diag(1, exp(v)) is
    v+ ~ N(v - h (v / scale^2 + (1 - z^2) / 2) + h Gamma_v, 2 h),
    z+ ~ N((1 - h) z, 2 h) exp(-(v+ - v) / 2),
normal given what stands before it. So the transition matrix is a sum over the shifts of v, each a
matrix in z alone; the error of this quadrature falls faster than any power of the cells.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import interpolate, stats

import ergodax as ex

SCALE = 3.0  # standard deviation of v
REACH, EDGE = 18.0, 7.0  # of v about its mean, and of z
CELLS = 2.0  # to a standard deviation of the injected noise
TAIL = 6.5  # standard deviations of a step of v that are kept
LOST = 1e-4  # of the mass in a step, at most: a step of 0.2 throws z past the edge so often

Weights = Float[np.ndarray, "v z"]


class FunnelLaw(NamedTuple):
    """The stationary density of v."""

    v: Float[np.ndarray, " v"]  # evenly spaced places
    density: Float[np.ndarray, " v"]  # at them

    def below(self, where: float | Float[np.ndarray, " k"]) -> np.ndarray:
        """P(v < where)."""
        return interpolate.CubicSpline(self.v, self.density).antiderivative()(where)

    def moment(self, power: int) -> float:
        """E v^power."""
        return float(np.sum(self.density * self.v**power) * (self.v[1] - self.v[0]))


def stationary(step_size: float, gamma: float = 0.0) -> FunnelLaw:
    """The law that a step of SGRLD leaves invariant.

    Args:
        step_size: h.
        gamma: Gamma_v, 0 where it is right. -1 is what Girolami and Calderhead's correction
            gives for this metric.

    Raises:
        ValueError: the grid does not hold the mass.
    """
    width = np.sqrt(2.0 * step_size) / CELLS
    centre = SCALE**2 * gamma  # of the law, where v drifts by Gamma_v more
    v, z = centre + _places(REACH, width), _places(EDGE, width)
    shifts = _shifts(v, z, step_size, gamma, width)
    shares = [_of_v(v, z, k, step_size, gamma, width) for k in shifts]
    matrix = np.concatenate([_of_z(z, k * width, step_size) for k in shifts])
    guess = np.outer(stats.norm.pdf(v, centre, SCALE), stats.norm.pdf(z))
    moved = np.zeros((v.size, len(shifts), z.size))

    def advance(law: Weights) -> Weights:
        for place, (k, share) in enumerate(zip(shifts, shares, strict=True)):
            to = slice(max(k, 0), v.size + min(k, 0))
            source = slice(max(-k, 0), v.size + min(-k, 0))
            moved[to, place] = law[source] * share[source]
        # One large product: as threads of BLAS many small ones are slow.
        return moved.reshape(v.size, -1) @ matrix

    grid = [ex.verify.Axis(c[0] - 0.5 * width, c[-1] + 0.5 * width, c.size) for c in (v, z)]
    found = ex.verify.stationary_law(advance, grid=grid, guess=guess, lost=LOST)
    return FunnelLaw(v, found.weights.sum(axis=1) / width)


def _drift(v: np.ndarray, z: np.ndarray, step_size: float, gamma: float) -> Weights:
    return step_size * (gamma - v[:, None] / SCALE**2 - 0.5 * (1.0 - z[None] ** 2))


def _shifts(
    v: np.ndarray, z: np.ndarray, step_size: float, gamma: float, width: float
) -> list[int]:
    """In cells, all that are not improbable."""
    drift, spread = _drift(v, z, step_size, gamma), TAIL * np.sqrt(2.0 * step_size)
    low, high = (drift.min() - spread) / width, (drift.max() + spread) / width
    return list(range(int(low), int(high) + 1))


def _of_v(
    v: np.ndarray, z: np.ndarray, cells: int, step_size: float, gamma: float, width: float
) -> Weights:
    """The probability of this shift from each place."""
    off = cells * width - _drift(v, z, step_size, gamma)
    return width * stats.norm.pdf(off, scale=np.sqrt(2.0 * step_size))


def _of_z(z: np.ndarray, shift: float, step_size: float) -> Float[np.ndarray, "z z"]:
    """From z to z+ where v moves by this much, rows of sum 1."""
    factor = np.exp(-0.5 * shift)
    off = z[None] / factor - (1.0 - step_size) * z[:, None]
    matrix = stats.norm.pdf(off, scale=np.sqrt(2.0 * step_size))
    total = matrix.sum(axis=1, keepdims=True)
    return matrix / np.where(total > 0, total, 1.0)


def _places(edge: float, width: float) -> np.ndarray:
    count = int(np.ceil(edge / width))
    return width * np.arange(-count, count + 1)
