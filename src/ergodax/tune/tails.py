"""Whether a component's marginal density falls off beyond the draws, where they can't tell."""

import functools
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int, PyTree

from ergodax import tree
from ergodax.stats.draws import columns
from ergodax.stats.estimators import r_hat
from ergodax.target.base import AbstractTarget
from ergodax.tune.descent import potential_at, seconds_of_gradient
from ergodax.tune.doubts import ONE, names_of, standing_still
from ergodax.tune.rounds import FEWEST
from ergodax.tune.whitening import flattened

FAR = 1.0, 4.0  # sds of the draws, beyond the farthest of them
WORST = 4  # components that are looked at, those in which the chains differ most
FEW = 16  # components
ASIDE = 1e-3  # sds of the draws: of differences of the gradient
SECONDS = 4.0  # at most, by what a gradient takes; searches mostly need a third of it
NEAR = 1e-2  # in potential, twice, that is left to the mode at the end of a search
HALVINGS = 6  # of the distance, where rounding decides at the draws
SINGULAR = 1e13  # condition of a Hessian by differences
ITERATIONS = 10  # of a search; one is enough where the others are normal


def is_quick(target: AbstractTarget, like: PyTree, suspects: int, *, timed: bool) -> bool:
    """Whether the look takes a moment, by what a gradient takes, with all that is done on the host.

    Where the answer has to be the same in a second run it goes by the number of components alone.
    """
    d = tree.size(like)
    gradients = 2 * d * ITERATIONS * 2 * len(FAR) * (suspects or WORST)
    return not dearer_than(target, like, gradients) if timed else d <= FEW


def dearer_than(target: AbstractTarget, like: PyTree, gradients: int) -> bool:
    """Whether so many gradients take longer than a moment."""
    return gradients * seconds_of_gradient(target, like) > SECONDS


def endless_tail(
    target: AbstractTarget, like: PyTree, draws: PyTree, suspects: Sequence[int] = ()
) -> str:
    """The component whose marginal density does not fall off, and where; "" where none is seen.

    Where a conditional law narrows, as that of effects does towards a variance of 0, the density
    itself tells nothing: it may rise without bound though the posterior is proper, and the other
    way round. So the others are integrated out by Laplace's method, which is exact where they are
    normal: m(t) = U + log det H / 2 at their mode, with H the Hessian in them. An integral needs
    that m rises by more than log distance.

    Args:
        target: of unconstrained numbers, with data or without.
        like: a position, in double precision: log det H is lost in rounding otherwise.
        draws: positions with leading axes chains and draws.
        suspects: components that are looked at; by default those in which the chains differ most,
            or if they stand still, that have gone farthest.
    """
    rows = columns(draws).values
    d = rows.shape[-1]
    if d < 2 or rows.shape[1] < FEWEST or not np.isfinite(rows).all():
        return ""
    still = bool(standing_still(rows))
    which = suspects
    if not len(which):
        # R-hat of chains that stand still is a quotient by rounding.
        left = np.abs(rows - flattened(like)).max(axis=(0, 1))
        apart = left if still else np.nan_to_num(np.asarray(r_hat(rows)), nan=0.0)
        which = np.argsort(-apart)[:WORST]
    laplace = _Laplace(target, like, rows.reshape(-1, d).std(axis=0))
    for k in which:
        for sign in (-1.0, 1.0):
            told = _flat_beyond(laplace, rows.reshape(-1, d), int(k), sign, still=still)
            if told:
                way = "grows" if sign > 0.0 else "decreases"
                return f"{names_of(like)[k]} {way} {told}"
    return ""


def _flat_beyond(
    laplace: "_Laplace", rows: Float[np.ndarray, "draws d"], k: int, sign: float, *, still: bool
) -> str:
    """From where to where it does not fall, on one side of a component; "" where it does.

    Where draws have come to where rounding decides, no Laplace's method goes on from there: then it
    is looked at between them and where the search began. Chains that stand `still` elsewhere tell
    nothing.
    """
    x = rows[np.argmax(sign * rows[:, k])]
    sd, middle, edge, start = rows[:, k].std(), np.median(rows[:, k]), x[k], laplace.start[k]
    places = np.array([edge + sign * length * sd for length in FAR])
    if not sd > 0.0 or sign * (start - places[1]) > 0.0:  # chains may have left the mass behind
        return ""
    lost = laplace.is_lost(x, k)
    if still and not lost:
        return ""
    if lost:
        middle, places = start, start + (edge - start) * 0.5 ** np.arange(HALVINGS)
    values = laplace.along(x, k, places, SINGULAR if lost else np.inf)
    pairs = np.flatnonzero(np.isfinite(values[:-1]) & np.isfinite(values[1:]))
    if not pairs.size:
        return ""
    pair = slice(pairs[0], pairs[0] + 2)
    lengths = sign * (places[pair] - middle)
    if not lengths.min() > 0.0:
        return ""
    rise = (np.diff(values[pair]) / np.diff(np.log(lengths)))[0]
    near, far = middle + sign * np.sort(lengths)
    return f"from {near:.3g} to {far:.3g}" if rise < ONE else ""


class _Laplace:
    """The negative log of a component's marginal density, but for a constant."""

    def __init__(self, target: AbstractTarget, like: PyTree, sds: Float[np.ndarray, " d"]) -> None:
        self.target, self.like, self.start = target, like, flattened(like)
        self.steps = ASIDE * np.where(sds > 0.0, sds, 1.0)

    def along(
        self,
        x: Float[np.ndarray, " d"],
        k: int,
        places: Float[np.ndarray, " places"],
        condition: float,
    ) -> Float[np.ndarray, " places"]:
        """m at each of them, the mode at one being where the search at the next begins."""
        values = []
        for place in places:
            x, value = self.at(x, k, place, condition)
            values.append(value)
        return np.array(values)

    def is_lost(self, x: Float[np.ndarray, " d"], k: int) -> bool:
        """Whether the Hessian in the others has no determinant but by rounding."""
        others = np.delete(np.arange(x.size), k)
        with np.errstate(all="ignore"):
            return not self._condition(self._hessian(x, others), others) < SINGULAR

    def _condition(
        self, hessian: Float[np.ndarray, "others others"], others: Int[np.ndarray, " others"]
    ) -> float:
        """In units of the draws' sds, since those of the parameters mean nothing."""
        units = self.steps[others]
        return float(np.linalg.cond(np.nan_to_num(units[:, None] * hessian * units)))

    def _hessian(
        self, x: Float[np.ndarray, " d"], others: Int[np.ndarray, " others"]
    ) -> Float[np.ndarray, "others others"]:
        """In some components, by central differences."""
        columns = []
        for which in others:
            ahead, behind = x.copy(), x.copy()
            ahead[which] += self.steps[which]
            behind[which] -= self.steps[which]
            slopes = [potential_at(self.target, self.like, place)[1] for place in (ahead, behind)]
            columns.append((slopes[0] - slopes[1])[others] / (2.0 * self.steps[which]))
        return 0.5 * (np.array(columns) + np.array(columns).T)

    def at(
        self, x: Float[np.ndarray, " d"], k: int, place: float, condition: float
    ) -> tuple[Float[np.ndarray, " d"], float]:
        """The mode of the others where x[k] = place, from x on, and m there.

        NaN without a mode, and where the Hessian's condition is not below `condition`.
        """
        from scipy.optimize import minimize

        others = np.delete(np.arange(x.size), k)

        def whole(part: np.ndarray) -> np.ndarray:
            moved = x.copy()
            moved[k], moved[others] = place, part
            return moved

        def function(part: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = potential_at(self.target, self.like, whole(part))
            return value, gradient[others]

        def hessian(part: np.ndarray) -> np.ndarray:
            return self._hessian(whole(part), others)

        search = functools.partial(
            minimize, jac=True, hess=hessian, method="trust-exact", options={"maxiter": ITERATIONS}
        )
        try:
            with np.errstate(all="ignore"):
                found = search(function, x[others])
                curvature = hessian(found.x)
                sign, log_det = np.linalg.slogdet(curvature)
                left = float(found.jac @ np.linalg.solve(curvature, found.jac))
                fine = condition == np.inf or self._condition(curvature, others) < condition
        except (ValueError, np.linalg.LinAlgError):  # SciPy's, where a derivative is not finite
            return x, np.nan
        if not (fine and sign > 0 and left < NEAR):
            return x, np.nan
        return whole(found.x), float(found.fun) + 0.5 * log_det
