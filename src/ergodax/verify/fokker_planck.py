"""The Fokker-Planck equation on a grid, conservative and positive."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy
from jaxtyping import Float

from ergodax.verify.grid import (
    Axis,
    Cells,
    as_drift,
    as_grid,
    as_matrix_field,
    cell_volume,
    check_semidefinite,
    mesh,
    tabulate,
)

JUMPS_A_STAGE = 1000.0  # expected; the weights of a stage are then exact to 1e-12
LOW, HIGH, ALL = slice(-1), slice(1, None), slice(None)


@dataclasses.dataclass(frozen=True)
class FokkerPlanck(Cells):
    """A diffusion as a Markov jump process between the cells of a grid.

    `fokker_planck` makes it. Densities are arrays of the grid's shape.

    Args:
        grid: the axes.
        rates: the matrix A of dp/dt = A p on the raveled cells, (cells, cells): off-diagonals
            are jump rates and not negative, and columns sum to zero.
    """

    rates: scipy.sparse.csr_array

    @property
    def exits(self) -> Float[np.ndarray, " count"]:
        """The rate out of each cell."""
        return -self.rates.diagonal()

    def evolve(
        self, density: Float[np.ndarray, "*cells"], time: float
    ) -> Float[np.ndarray, "*cells"]:
        """exp(A time) density, by uniformisation.

        With r the largest rate out of a cell, P = I + A / r is a stochastic matrix and
        exp(A t) = sum over k of Poisson(k; r t) P^k: sums of positive terms, so the density stays
        positive and keeps its mass to rounding. It takes about r t products with a sparse
        matrix, where r is about 2 D / width^2 an axis.

        Args:
            density: shape of the grid.
            time: t, not negative.

        Raises:
            ValueError: a negative time, or a density of another shape or with negative values.
        """
        if not 0 <= time < np.inf:
            raise ValueError(f"time must be finite and not negative, not {time}.")
        p = self.checked(density).ravel()
        fastest = float(self.exits.max())
        stages = max(1, int(np.ceil(fastest * time / JUMPS_A_STAGE)))
        if fastest * time == 0:
            return p.reshape(self.shape)
        step: Any = scipy.sparse.eye_array(p.size, format="csr") + self.rates / fastest
        weights = _poisson(fastest * time / stages)
        for _ in range(stages):
            before, power, p = p, p, weights[0] * p
            for weight in weights[1:]:
                power = step @ power
                p += weight * power
            if np.abs(p - before).sum() <= 1e-15 * p.sum():
                break  # stationary
        return p.reshape(self.shape)

    def stationary(self) -> Float[np.ndarray, "*cells"]:
        """The density with A p = 0, by inverse iteration.

        It is unique where every cell can be reached from every other, as it can if D is positive.

        Raises:
            RuntimeError: the iteration does not settle.
        """
        # A small shift makes an M-matrix whose inverse is positive, and whose dominant
        # direction is the stationary density.
        count = self.exits.size
        shifted = 1e-12 * self.exits.max() * scipy.sparse.eye_array(count) - self.rates
        solver = scipy.sparse.linalg.splu(scipy.sparse.csc_array(shifted))
        p = np.full(count, 1.0 / count)
        for _ in range(50):
            new = np.maximum(solver.solve(p), 0.0)
            new /= new.sum()
            if np.abs(new - p).sum() < 1e-13:
                return new.reshape(self.shape) / cell_volume(self.grid)
            p = new
        raise RuntimeError(
            "the stationary density was not found: some cells are hardly reached from others. "
            "Try a smaller box or a larger diffusion."
        )


def fokker_planck(
    drift: Callable[..., Any], diffusion: Callable[..., Any], grid: Axis | Sequence[Axis]
) -> FokkerPlanck:
    """Discretise dp/dt = -div(f p) + sum over i, j of d_i d_j (D_ij p), without flux at the edges.

    The law of dz = f dt + sqrt(2 D) dW (Ito) in one or two dimensions; at a temperature T give
    T D. Along each axis the flux between neighbouring cells is exponentially fitted in D p,

        J = (B(-Pe) D_i p_i - B(Pe) D_(i+1) p_(i+1)) / width,    B(x) = x / (e^x - 1),

    with Pe = f width / D at their common face: exact for a constant f / D, and upwind where D is
    zero. A correlation D_12 becomes jumps along the diagonals. Second order in the width; first
    where D = 0 and the flux is upwind.

    Args:
        drift: f, a function of z of shape (d,) that returns shape (d,), in JAX.
        diffusion: D, a function of z that returns a number, a vector (a diagonal) or a symmetric
            positive semidefinite matrix.
        grid: one or two axes; the box must hold the mass.

    Returns:
        A `FokkerPlanck`, with `evolve(density, time)`, `stationary()`, `density(function)`,
        `point_mass(where)`, `mass(density)`, `mean(function, density)` and `points`.

    Raises:
        TypeError: an argument that is not a function or an axis.
        ValueError: more than two axes; shapes that disagree; a D that is not positive
            semidefinite, or too correlated for the shape of the cells.

    Reference:
        Scharfetter and Gummel, Large-signal analysis of a silicon Read diode oscillator, 1969,
        for the flux; Jensen, Markoff chains as an aid in the study of Markoff processes, 1953,
        for uniformisation.

    Example:
        The Ornstein-Uhlenbeck process from 0, whose variance at time 1/2 is 1 - 1/e.

        >>> equation = fokker_planck(lambda z: -z, lambda z: 1.0, Axis(-6.0, 6.0, 400))
        >>> law = equation.evolve(equation.point_mass([0.0]), 0.5)
        >>> round(equation.mean(lambda z: z[0] ** 2, law), 3)
        0.632
    """
    axes = as_grid(grid)
    d = len(axes)
    if d > 2:
        raise ValueError(f"grid must have one or two axes, not {d}; three would be too large.")
    matrices = tabulate(as_matrix_field(diffusion, d), mesh(axes))
    check_semidefinite(matrices)
    return FokkerPlanck(axes, rate_matrix(as_drift(drift, d), matrices, axes))


def _poisson(mean: float) -> Float[np.ndarray, " k"]:
    """Poisson probabilities from 0 to where they are negligible, normalised."""
    k = np.arange(int(mean + 9.0 * np.sqrt(mean)) + 40)
    weights = np.exp(k * np.log(mean) - mean - scipy.special.gammaln(k + 1.0))
    return weights / weights.sum()


def rate_matrix(
    drift: Callable[..., Any], diffusion: Float[np.ndarray, "*cells d d"], axes: tuple[Axis, ...]
) -> scipy.sparse.csr_array:
    """A with dp/dt = A p, from D at the centres: off-diagonals not negative, zero column sums."""
    jumps = [
        _along_axis(drift, own, axes, i) for i, own in enumerate(_axis_shares(diffusion, axes))
    ]
    if len(axes) == 2:
        rate = diffusion[..., 0, 1] / cell_volume(axes)
        # A correlation above zero jumps to the upper right and back, one below to the lower right.
        for sign, here, there in ((1, (LOW, LOW), (HIGH, HIGH)), (-1, (LOW, HIGH), (HIGH, LOW))):
            share = np.maximum(sign * rate, 0.0)
            jumps.append((here, there, share[here], share[there]))
    return _assemble(jumps, diffusion.shape[: len(axes)])


def _axis_shares(
    diffusion: Float[np.ndarray, "*cells d d"], axes: tuple[Axis, ...]
) -> list[Float[np.ndarray, "*cells"]]:
    """What the axes keep of D once the diagonals of the cells have made its correlation."""
    if len(axes) == 1:
        return [diffusion[..., 0, 0]]
    across = np.abs(diffusion[..., 0, 1])
    first, second = diffusion[..., 0, 0], diffusion[..., 1, 1]
    aspect = axes[1].width / axes[0].width
    shares = [first - across / aspect, second - across * aspect]
    slack = 1e-12 * diffusion.max()
    if min(share.min() for share in shares) < -slack:
        live = across > 0
        low, high = (across[live] / first[live]).max(), (second[live] / across[live]).min()
        advice = (
            f"Choose points such that width[1] / width[0] lies in [{low:.3g}, {high:.3g}]"
            if low <= high
            else "No shape of cell suits the whole box: try a smaller one, or coordinates in which "
            "the diffusion is less correlated"
        )
        raise ValueError(
            "diffusion is too correlated for the grid: jumps would have negative rates with cells "
            f"of width {axes[0].width:.3g} by {axes[1].width:.3g}. {advice}."
        )
    return [np.maximum(share, 0.0) for share in shares]


def fitted(
    left: Float[np.ndarray, "..."],
    right: Float[np.ndarray, "..."],
    pull: Float[np.ndarray, "..."],
    width: float,
) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]]:
    """The rates to the right and to the left across a face, from D on both sides and f there."""
    middle = 0.5 * (left + right)
    diffuses = middle > 0
    peclet = pull * width / np.where(diffuses, middle, 1.0)
    upwind = np.maximum(pull, 0.0) / width, np.maximum(-pull, 0.0) / width
    return (
        np.where(diffuses, left / scipy.special.exprel(-peclet) / width**2, upwind[0]),
        np.where(diffuses, right / scipy.special.exprel(peclet) / width**2, upwind[1]),
    )


def _along_axis(
    drift: Callable[..., Any], own: Float[np.ndarray, "*cells"], axes: tuple[Axis, ...], i: int
) -> tuple[Any, ...]:
    here, there = (tuple(s if j == i else ALL for j in range(len(axes))) for s in (LOW, HIGH))
    points = mesh(axes)
    faces = 0.5 * (points[here] + points[there])
    pull = tabulate(lambda z: drift(z)[i], faces)
    if not np.isfinite(pull).all():
        raise ValueError("drift is not finite everywhere on the grid; try a smaller box.")
    return here, there, *fitted(own[here], own[there], pull, axes[i].width)


def _assemble(jumps: list[tuple[Any, ...]], shape: tuple[int, ...]) -> scipy.sparse.csr_array:
    count = int(np.prod(shape))
    cells = np.arange(count).reshape(shape)
    source, goal, rate = [], [], []
    for here, there, onward, back in jumps:
        a, b = cells[here].ravel(), cells[there].ravel()
        source += [a, b]
        goal += [b, a]
        rate += [onward.ravel(), back.ravel()]
    entries = np.concatenate(rate), (np.concatenate(goal), np.concatenate(source))
    between = scipy.sparse.coo_array(entries, shape=(count, count)).tocsr()
    between.eliminate_zeros()
    return (between - scipy.sparse.diags_array(between.sum(axis=0))).tocsr()
