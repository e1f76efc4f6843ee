"""The jump rates between neighbouring cells that discretise a Fokker-Planck equation."""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy
from jaxtyping import Float

from ergodax.verify.grid import Axis, cell_volume, mesh, tabulate

LOW, HIGH, ALL = slice(-1), slice(1, None), slice(None)


def rate_matrix(
    drift: Callable, diffusion: Float[np.ndarray, "*cells d d"], axes: tuple[Axis, ...]
) -> scipy.sparse.csr_array:
    """A with dp/dt = A p: off-diagonals not negative, zero column sums.

    Args:
        drift: f, a function of z.
        diffusion: D at the centres of the cells.
        axes: one or two.

    Raises:
        ValueError: cells whose shape does not suit the correlation in D.
    """
    jumps = [_along_axis(drift, own, axes, i) for i, own in enumerate(axis_shares(diffusion, axes))]
    if len(axes) == 2:
        rate = diffusion[..., 0, 1] / cell_volume(axes)
        # A correlation above zero jumps to the upper right and back, one below to the lower right.
        for sign, here, there in ((1, (LOW, LOW), (HIGH, HIGH)), (-1, (LOW, HIGH), (HIGH, LOW))):
            share = np.maximum(sign * rate, 0.0)
            jumps.append((here, there, share[here], share[there]))
    return _assemble(jumps, diffusion.shape[: len(axes)])


def axis_shares(
    diffusion: Float[np.ndarray, "*cells d d"], axes: tuple[Axis, ...]
) -> list[Float[np.ndarray, "*cells"]]:
    """What the axes keep of D once the diagonals of the cells have made its correlation.

    Raises:
        ValueError: it is negative somewhere.
    """
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


def bernoulli(x: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """x / (e^x - 1)."""
    return 1.0 / scipy.special.exprel(x)


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
        np.where(diffuses, left * bernoulli(-peclet) / width**2, upwind[0]),
        np.where(diffuses, right * bernoulli(peclet) / width**2, upwind[1]),
    )


def _along_axis(
    drift: Callable, own: Float[np.ndarray, "*cells"], axes: tuple[Axis, ...], i: int
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
