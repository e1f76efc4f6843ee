"""Whether the density jumps, where gradients say nothing of it."""

import itertools

import numpy as np
from jaxtyping import Float, PyTree

from ergodax import tree
from ergodax.stats.draws import columns
from ergodax.stats.estimators import r_hat
from ergodax.target.base import AbstractTarget
from ergodax.tune.descent import potential_at
from ergodax.tune.doubts import names_of

PAIRS = 2  # of draws, between which it is looked
CELLS, LIKELY = 16, 3  # of the way, and those that are looked at more closely
HALVINGS = 12  # of a cell, as many as it mostly takes to find that nothing jumps
EVALUATIONS = PAIRS * 2 * (CELLS + LIKELY * HALVINGS)  # about, in all
DEEPEST = 2.0**-8  # over the roundoff: into so many parts a cell is cut, before noise begins
BESIDE = 8  # parts on each side of a jump, that tell it from noise
JUMP = 0.05  # in potential
ROUNDINGS = 100.0  # of the potential
NOISES = 4.0  # times what the gradient does not explain right beside it
NAMED = 64  # components, beyond which the one that jumps is not looked for
JUMPS = (
    "the density jumps{where}, which its gradient does not show: chains that follow gradients do "
    "not feel it. Sum such a parameter out (jax.scipy.special.logsumexp over its values), or make "
    "the step smooth"
)


def jump_between_draws(target: AbstractTarget, like: PyTree, draws: PyTree) -> str:
    """That the potential jumps on the way from a chain to another; "" where none is seen.

    Of the parts of a way in which the potential changes by more than its gradient says, by
    Simpson's rule, the half with the larger difference is taken, again and again. Where the
    potential is smooth the difference vanishes; at a jump it stays.

    Args:
        target: with data or without.
        like: a position.
        draws: positions with leading axes chains and draws.
    """
    like = tree.freeze(like)
    rows = columns(tree.freeze(draws)).values
    last, names = rows[:, -1], names_of(like)
    apart = np.nan_to_num(np.asarray(r_hat(rows)), nan=0.0).argmax()
    order = np.argsort(last[:, apart])
    for first, second in list(zip(order[:-1], order[1:], strict=True))[:PAIRS]:
        ends = _narrowed(target, like, last[first], last[second])
        if ends is not None:
            return JUMPS.format(where=_where(target, like, *ends, names))
    return ""


def _narrowed(
    target: AbstractTarget, like: PyTree, a: Float[np.ndarray, " d"], b: Float[np.ndarray, " d"]
) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, " d"]] | None:
    """Two places next to each other, between which the potential jumps; None if it does not."""
    at = {0.0: potential_at(target, like, a), 1.0: potential_at(target, like, b)}

    def found(t: float) -> tuple[float, Float[np.ndarray, " d"]]:
        if t not in at:
            at[t] = potential_at(target, like, a + t * (b - a))
        return at[t]

    def unexplained(low: float, high: float) -> float:
        values, slopes = zip(*map(found, (low, 0.5 * (low + high), high)), strict=True)
        along = [float(slope @ (b - a)) for slope in slopes]
        by_gradient = (high - low) / 6.0 * (along[0] + 4.0 * along[1] + along[2])
        return abs(values[2] - values[0] - by_gradient)

    def halved(low: float, high: float, times: int) -> tuple[float, float]:
        for _ in range(times):
            if not unexplained(low, high) > JUMP:
                break
            middle = 0.5 * (low + high)
            left = unexplained(low, middle) > unexplained(middle, high)
            low, high = (low, middle) if left else (middle, high)
        return low, high

    eps = float(np.finfo(tree.result_dtype(like)).eps)
    deeper = int(np.log2(DEEPEST / eps)) - HALVINGS
    ends = np.linspace(0.0, 1.0, CELLS + 1).tolist()
    cells = sorted(itertools.pairwise(ends), key=lambda cell: -unexplained(*cell))
    for cell in cells[:LIKELY]:
        low, high = halved(*cell, HALVINGS)
        rounding = eps * max(abs(found(low)[0]), abs(found(high)[0]))
        jump, width = unexplained(low, high), high - low
        if not np.inf > jump > max(JUMP, ROUNDINGS * rounding):
            continue
        beside = [unexplained(low - (k + 1) * width, low - k * width) for k in range(BESIDE)]
        beside += [unexplained(high + k * width, high + (k + 1) * width) for k in range(BESIDE)]
        # What is as large beside it is noise, as that of a matrix that is hardly definite; and of a
        # wall that is smooth but narrow nothing is left, as deep as floats go.
        if jump > NOISES * max(beside) and unexplained(*halved(low, high, deeper)) > JUMP:
            return a + low * (b - a), a + high * (b - a)
    return None


def _where(
    target: AbstractTarget,
    like: PyTree,
    a: Float[np.ndarray, " d"],
    b: Float[np.ndarray, " d"],
    names: list[str],
) -> str:
    """The component whose own small change makes the jump, and its value."""
    if a.size > NAMED:
        return ""
    begin, changes = potential_at(target, like, a)[0], np.zeros(a.size)
    for k in range(a.size):
        moved = a.copy()
        moved[k] = b[k]
        changes[k] = abs(potential_at(target, like, moved)[0] - begin)
    k = int(changes.argmax())
    return f" at {names[k]} = {a[k]:.4g}" if changes[k] > 0.5 * JUMP else ""
