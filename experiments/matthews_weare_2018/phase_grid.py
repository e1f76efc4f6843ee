"""The exact stationary law of a Langevin scheme with one position, on a grid of phase space.

With Gaussian gradient noise every part of a step is a drift, x += t r, or leaves x and moves the
momentum to N(slope r + shift, variance), three functions of x. A drift shifts each row of a
periodic grid, which is exact in Fourier space; a kick is a matrix for each x, whose entries are
the periodic normal density with the grid's frequencies. The error falls faster than any power of
the cell. Mass that comes near the edges is dropped, so
that it can't return from the other side: a tail in which a step is unstable lies there.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Complex, Float

import ergodax as ex

INSIDE = 0.94  # of either edge
LOST = 1e-6  # of the mass in a step, at most

Values = Float[np.ndarray, " x"]
Weights = Float[np.ndarray, "x r"]


class Drift(NamedTuple):
    """x += time r."""

    time: float


class Kick(NamedTuple):
    """r ~ N(slope r + shift, variance), each a number or one for each x."""

    slope: Values | float
    shift: Values | float
    variance: Values | float


@dataclasses.dataclass(frozen=True)
class PhaseGrid:
    """An even periodic grid on [-edge, edge) x [-fastest, fastest).

    Args:
        edge: of x; beyond it there is no mass to speak of.
        fastest: of r, likewise.
        num_x: places, odd, so that no frequency stands for two.
        num_r: likewise.
    """

    edge: float
    fastest: float = 8.0
    num_x: int = 129
    num_r: int = 97

    @property
    def x(self) -> Values:
        """The places."""
        return _places(self.edge, self.num_x)

    @property
    def r(self) -> Float[np.ndarray, " r"]:
        """The momenta."""
        return _places(self.fastest, self.num_r)

    @property
    def axes(self) -> tuple[ex.verify.Axis, ex.verify.Axis]:
        """Those whose cells have the places at their centres."""
        ends = ((self.edge, self.num_x), (self.fastest, self.num_r))
        x, r = (ex.verify.Axis(-a * (1 + 1 / n), a * (1 - 1 / n), n) for a, n in ends)
        return x, r

    def phases(self, time: float) -> Complex[np.ndarray, "k r"]:
        """What a drift multiplies the Fourier coefficients along x with."""
        k = 2.0 * np.pi * np.fft.rfftfreq(self.num_x, 2.0 * self.edge / self.num_x)
        return np.exp(-1j * time * np.outer(k, self.r))

    def transition(self, kick: Kick) -> Float[np.ndarray, "rows r r"]:
        """The matrix from r to the new r: one for each x, or one for all."""
        slope, shift, variance = (np.reshape(part, (-1, 1, 1)) for part in kick)
        k = 2.0 * np.pi * np.fft.rfftfreq(self.num_r, 2.0 * self.fastest / self.num_r)
        moved = slope * self.r[:, None] + shift + self.fastest  # from the first place
        return np.fft.irfft(np.exp(-1j * k * moved - 0.5 * variance * k**2), self.num_r)


class Law(NamedTuple):
    """Probabilities of the points of a grid."""

    grid: PhaseGrid
    weights: Weights

    @property
    def positions(self) -> Values:
        """The probabilities of the places."""
        return self.weights.sum(axis=1)

    def mean(self, function: Callable[[np.ndarray], np.ndarray]) -> float:
        """The expectation of a function of x."""
        return float(self.positions @ function(self.grid.x))

    @property
    def kinetic(self) -> float:
        """E r^2."""
        return float(self.weights.sum(axis=0) @ self.grid.r**2)


def stationary(grid: PhaseGrid, parts: Sequence[Drift | Kick], guess: Weights) -> Law:
    """The law that a step leaves invariant.

    Args:
        grid: must hold the mass.
        parts: of a step, in order.
        guess: where the search begins, such as the target's own weights.

    Raises:
        ValueError: the grid does not hold the mass.
    """
    moves = [_move(grid, part) for part in parts]
    near_x, near_r = (np.abs(z) < INSIDE * np.abs(z).max() for z in (grid.x, grid.r))
    kept = np.outer(near_x, near_r)

    def step(law: Weights) -> Weights:
        for move in moves:
            law = move(law)
        return kept * law

    law = ex.verify.stationary_law(step, grid=grid.axes, guess=guess, lost=LOST)
    return Law(grid, law.weights)


def _move(grid: PhaseGrid, part: Drift | Kick) -> Callable[[Weights], Weights]:
    if isinstance(part, Drift):
        phases = grid.phases(part.time)
        return lambda law: np.fft.irfft(phases * np.fft.rfft(law, axis=0), grid.num_x, axis=0)
    matrix = grid.transition(part)
    # Row by row, even where one matrix serves all: as threads of BLAS so small a product is slow.
    return lambda law: (law[:, None] @ matrix)[:, 0]


def _places(edge: float, count: int) -> Float[np.ndarray, " n"]:
    return edge * (2.0 * np.arange(count) / count - 1.0)
