"""Parameters whose scale depends on other parameters, found by the curvature at some draws.

Given the sd of a hierarchy its effects are about normal, with a precision that is the prior's plus
the data's. Such a law of a parameter given others is fitted at draws: the precision is the diagonal
of the Hessian of U, the mean is where Newton's step leads to.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from ergodax import tree
from ergodax.target.base import AbstractTarget
from ergodax.tune.host import on_device
from ergodax.tune.reparametrisation import ConditionalScales

POINTS, WHOLE = 64, 4  # draws at which the Hessian's diagonal is measured, and all of it
STEP = 0.03  # sds of the draws, of differences
SHARED = 0.1  # of a precision, that all others but one take away where they are integrated out
POSITIVE = 0.8  # the share of the draws at which a precision is
DRIVERS, PARTNERS = 2, 8  # at most, of all parameters; each may have a driver of its own besides
VARIES = 0.2  # sd of the log of a precision, over the draws
EXPLAINED = 0.5  # of its variance, by drivers
GAIN, LEAST = 0.1, 0.01  # of what is left and of all, by one more
MOVES = 0.1  # sds of a parameter, by which its mean moves with a partner's sd
SQUARE = 0.2, 2.5  # of the new numbers, its median over 64 draws, in that of a normal law:
MEDIAN = 0.455
ITERATIONS = 50
ONE = 0.8  # of the squares that one term leaves: where two leave more, one is enough
# The forms of a mean, the simplest first: for each of the three weights nothing (0), a constant (1)
# or the partners too (2). That of a centred effect, of one that is not, and all there are.
FORMS = (1, 1, 0), (2, 1, 0), (1, 2, 0), (0, 0, 2), (2, 2, 2)
ENOUGH, EXACT = 2.0, 1e-6  # times the squares that the last form leaves, and squares of no account
SAME = 1e-3  # and those, where a mean is another parameter, or 0, as models mostly have it
WIDEST = 10.0  # sds of a parameter, that coefficients of its mean are mostly below
SINGULAR = 1e-7

Matrix = Float[np.ndarray, "_ _"]


def num_gradients(dimension: int) -> int:
    """How many `conditional_scales` takes at most."""
    return 2 * WHOLE * dimension + 9 * POINTS


def conditional_scales(
    target: AbstractTarget,
    like: PyTree,
    draws: Float[np.ndarray, "draws d"],
    rng: np.random.Generator,
) -> ConditionalScales | None:
    """The map that gives such parameters a scale of 1; None where there are none.

    Args:
        target: of unconstrained numbers.
        like: a position.
        draws: raveled positions.
        rng: for the directions in which the diagonal is measured.
    """
    try:
        with np.errstate(all="ignore"):  # beside an edge, and in a fit that goes astray
            return _found(_Seen(target, like, draws, rng))
    except np.linalg.LinAlgError:  # NumPy's, of numbers that are not finite
        return None


def _found(seen: "_Seen") -> ConditionalScales | None:
    if not np.isfinite(seen.hessians).all():
        return None
    loose = _loose(seen.coupling)
    log_precision, known = seen.log_precision(loose)
    varies = loose & (_sd(log_precision, known) > VARIES)
    if not varies.any():
        return None
    drivers, own = _drivers(seen.units, log_precision, known & varies)
    varies[np.append(drivers, own[own >= 0])] = False
    log_precision, known = seen.log_precision(varies)  # in directions where no others move
    which = np.flatnonzero(varies & (_sd(log_precision, known) > VARIES))
    if not len(which) or not (len(drivers) or (own[which] >= 0).any()):
        return None
    terms = _exponentials(
        _design(seen.units, drivers, own[which]), log_precision[:, which], known[:, which]
    )
    rest = _sd(log_precision[:, which] - terms.value, known[:, which])
    before = _sd(log_precision[:, which], known[:, which])
    clear = (rest**2 < (1.0 - EXPLAINED) * before**2) & (terms.value.std(axis=0) > VARIES)
    which, terms = which[clear], terms.of(clear)
    if not len(which):
        return None
    partners = seen.partners(which, np.append(drivers, own[own >= 0]))
    means = seen.means(which, partners, terms, log_precision[:, which], known[:, which])
    # Not so where there are two modes; a few draws from a chain on its way in do not decide.
    square = np.median(seen.numbers(which, partners, terms, means) ** 2, axis=0) / MEDIAN
    normal = (SQUARE[0] < square) & (square < SQUARE[1])
    if not normal.any() or not np.isfinite(terms.theta).all():
        return None
    return _padded(seen, which[normal], drivers, own, partners, terms.of(normal), means[normal])


class _Seen:
    """The draws that are looked at, and what the gradient says there."""

    def __init__(self, target: AbstractTarget, like: PyTree, draws: Matrix, rng: Any) -> None:
        self.target, self.like, self.rng = target, tree.freeze(like), rng
        self.dtype = tree.result_dtype(self.like)
        self.points = draws[:: max(1, len(draws) // POINTS)][:POINTS]
        self.sd = np.maximum(draws.std(axis=0), np.finfo(np.float32).tiny)
        self.units = self.points / self.sd
        few = self.points[:: max(1, len(self.points) // WHOLE)][:WHOLE]
        self.hessians = np.stack([self._hessian(x) for x in few])
        own = np.abs(np.einsum("pii->pi", self.hessians)) + np.finfo(float).tiny
        self.relative = np.abs(self.hessians) / np.sqrt(own[:, :, None])  # of each precision's root
        self.coupling = np.mean((self.relative / np.sqrt(own[:, None])) ** 2, axis=0)
        np.fill_diagonal(self.coupling, 0.0)

    def gradients(self, rows: Matrix) -> Matrix:
        """Of U, in blocks of one size, so that one program is compiled."""
        found = []
        for k in range(0, len(rows), POINTS):
            block = on_device(np.resize(rows[k : k + POINTS], (POINTS, rows.shape[1])), self.dtype)
            found.append(np.asarray(_gradients(self.target, self.like, block), np.float64))
        return np.concatenate(found)[: len(rows)]  # only the last block is filled up

    def _hessian(self, x: Float[np.ndarray, " d"]) -> Matrix:
        """Of U, by central differences."""
        steps = np.diag(STEP * self.sd)
        rows = self._bent(x, steps) / (2.0 * STEP * self.sd[:, None])
        return 0.5 * (rows + rows.T)

    def _bent(self, x: Matrix | Float[np.ndarray, " d"], steps: Matrix) -> Matrix:
        """What the gradient changes by, from a step before to a step behind."""
        ahead, behind = np.split(self.gradients(np.concatenate([x + steps, x - steps])), 2)
        return ahead - behind

    def log_precision(
        self, moved: Bool[np.ndarray, " d"]
    ) -> tuple[Matrix, Bool[np.ndarray, "n d"]]:
        """The log of the Hessian's diagonal at each draw, and where it has one.

        Only these components move, in two halves: each is about independent of its half given the
        others.
        """
        total = np.zeros_like(self.points)
        for half in _halves(self.coupling * moved, moved):
            steps = STEP * self.sd * half * self.rng.choice([-1.0, 1.0], total.shape)
            bent = self._bent(self.points, steps)
            total[:, half] = bent[:, half] / (2.0 * steps[:, half])
        known = (total > 0.0) & moved
        known &= known.mean(axis=0) > POSITIVE
        return np.log(np.where(known, total, 1.0)), known

    def partners(self, which: Int[np.ndarray, " k"], drivers: Int[np.ndarray, " m"]) -> Any:
        """Components with which the means of these move."""
        moves = np.mean(self.relative[:, which] * self.sd, axis=(0, 1))
        moves[which] = moves[drivers] = 0.0
        most = np.argsort(-moves)[:PARTNERS]
        return most[moves[most] > MOVES]

    def means(
        self, which: Any, partners: Any, terms: "_Terms", log_precision: Matrix, known: Any
    ) -> Float[np.ndarray, "k 3 p"]:
        """Coefficients of the conditional means, by least squares in units of the scales."""
        slopes = self.gradients(self.points)[:, which]
        modes = self.points[:, which] - slopes * np.exp(-log_precision)
        modes = np.where(known, modes, 0.0)  # where the gradient may not be finite
        beside = np.hstack([np.ones((len(self.points), 1)), self.points[:, partners]])
        units = np.sqrt(np.mean(beside**2, axis=0)) + np.finfo(float).tiny
        roots = known * np.exp(0.5 * terms.value)
        columns = terms.weights[..., None] * (beside / units)[:, None]  # weight, draw, k, partner
        found = [
            _simplest(
                columns[:, :, k] * roots[:, k, None],
                modes[:, k] * roots[:, k],
                units,
                float(self.sd[i]),
            )
            for k, i in enumerate(which)
        ]
        return np.stack(found) / units

    def numbers(self, which: Any, partners: Any, terms: "_Terms", means: Any) -> Matrix:
        """z at each draw: about standard normal where the laws are as they were fitted."""
        beside = np.hstack([np.ones((len(self.points), 1)), self.points[:, partners]])
        mean = np.einsum("fnk,kfp,np->nk", terms.weights, means, beside)
        return (self.points[:, which] - mean) * np.exp(0.5 * terms.value)


@eqx.filter_jit
def _gradients(target: AbstractTarget, like: PyTree, rows: Float[Array, "n d"]) -> Array:
    unravel = tree.ravel(like)[1]
    return lax.map(lambda x: tree.ravel(target.value_and_gradient(unravel(x))[1])[0], rows)


def _sd(x: Matrix, known: Bool[np.ndarray, "n d"]) -> Float[np.ndarray, " d"]:
    """Of each column, where it is known."""
    count = np.maximum(known.sum(axis=0), 1)
    mean = np.sum(x * known, axis=0) / count
    return np.sqrt(np.sum(known * (x - mean) ** 2, axis=0) / count)


def _loose(coupling: Matrix) -> Bool[np.ndarray, " d"]:
    """Components that tell little of each other where the rest is known, but for one neighbour.

    The mean of a hierarchy is not one: its precision given all effects is large where their sd is
    small, but with the effects integrated out it is not.
    """
    loose = np.ones(len(coupling), bool)
    while True:
        among = coupling * loose
        shared = np.where(loose, among.sum(axis=1) - among.max(axis=1), 0.0)
        most = int(shared.argmax())
        if shared[most] <= SHARED:
            return loose
        loose[most] = False


def _halves(coupling: Matrix, moved: Bool[np.ndarray, " d"]) -> list[Bool[np.ndarray, " d"]]:
    """Two parts of the components that move, such that nearest neighbours are in different ones."""
    nearest, size = coupling.argmax(axis=1), coupling.max(axis=1)
    second = np.zeros(len(moved), bool)
    for i in np.argsort(size):  # the nearest pair comes last, and stays as it is set
        second[i] = not second[nearest[i]]
    return [moved & ~second, moved & second]


def _drivers(
    x: Matrix, y: Matrix, known: Bool[np.ndarray, "n d"]
) -> tuple[Int[np.ndarray, " k"], Int[np.ndarray, " d"]]:
    """Components that explain all log precisions best; then, for each, one of its own, or -1."""
    count = np.maximum(known.sum(axis=0), 1)
    rest = known * (y - np.sum(y * known, axis=0) / count)
    start, design, found = rest, x - x.mean(axis=0), []
    own = np.full(x.shape[1], -1)

    def gains() -> Matrix:
        """Squares of each column of the rest that each component explains."""
        square = np.maximum(np.sum(design**2, axis=0), np.finfo(np.float32).tiny)
        gain = (design.T @ rest) ** 2 / square[:, None]
        np.fill_diagonal(gain, 0.0)
        gain[found] = 0.0
        return gain

    for _ in range(DRIVERS):
        gain = gains().sum(axis=1)
        best = int(gain.argmax())
        wanted = GAIN * np.sum(rest**2) if found else 0.5 * EXPLAINED * np.sum(start**2)
        if gain[best] < max(wanted, LEAST * np.sum(start**2)):
            break
        found.append(best)
        unit = design[:, best] / np.linalg.norm(design[:, best])
        rest, design = (part - np.outer(unit, unit @ part) for part in (rest, design))
        rest = rest * known
    gain, squares, whole = gains(), np.sum(rest**2, axis=0), np.sum(start**2, axis=0)
    gain[squares < (1.0 - EXPLAINED) * whole] = 0.0  # which follow the drivers of all
    for i in np.argsort(-gain.max(axis=0)):
        best = int(gain[:, i].argmax())
        clear = gain[best, i] > max(EXPLAINED * squares[i], VARIES**2 * count[i])
        if clear and known[:, i].any() and i not in (*own, *found) and own[best] < 0:
            own[i] = best
    return np.array(found, int), own


def _design(
    x: Matrix, drivers: Int[np.ndarray, " m"], own: Int[np.ndarray, " k"]
) -> Float[np.ndarray, "n k m+2"]:
    """For each of k components: 1, the drivers of all, and its own, or 0."""
    shared = np.hstack([np.ones((len(x), 1)), x[:, drivers]])
    each = np.where(own >= 0, x[:, own], 0.0)
    return np.concatenate([np.repeat(shared[:, None], len(own), 1), each[..., None]], axis=2)


@dataclasses.dataclass(frozen=True)
class _Terms:
    """f = log(exp a + exp b) at each draw, for each component.

    Attributes:
        theta: of a and b, coefficients of the design, shape (2, k, columns).
        a: at each draw, shape (n, k).
        b: likewise.
    """

    theta: Float[np.ndarray, "2 k p"]
    a: Float[np.ndarray, "n k"]
    b: Float[np.ndarray, "n k"]

    @property
    def value(self) -> Float[np.ndarray, "n k"]:
        """f."""
        return np.logaddexp(self.a, self.b)

    @property
    def weights(self) -> Float[np.ndarray, "3 n k"]:
        """Those of `ConditionalScales`."""
        share = np.exp(self.a - self.value)
        return np.stack([share, 1.0 - share, np.exp(0.5 * (self.a + self.b) - self.value)])

    def of(self, kept: Bool[np.ndarray, " k"]) -> "_Terms":
        """Of some of the components."""
        return _Terms(self.theta[:, kept], self.a[:, kept], self.b[:, kept])


def _at(design: Float[np.ndarray, "n k p"], theta: Float[np.ndarray, "2 k p"]) -> _Terms:
    return _Terms(theta, *np.einsum("nkp,fkp->fnk", design, theta))


def _line(design: Float[np.ndarray, "n k p"], y: Matrix, weight: Matrix) -> Matrix:
    """Coefficients of the least squares, for each of k columns."""
    normal = np.einsum("nkp,nk,nkq->kpq", design, weight, design)
    right = np.einsum("nkp,nk->kp", design, weight * y)
    return np.einsum("kpq,kq->kp", np.linalg.pinv(normal, hermitian=True), right)


def _exponentials(
    design: Float[np.ndarray, "n k p"], y: Matrix, known: Bool[np.ndarray, "n k"]
) -> _Terms:
    """Fit y, with as few terms and slopes as do: one term, twice, or the first a constant."""
    size, flat = design.shape[2], np.log(2.0) * np.eye(1, design.shape[2])
    lines = _line(design, y, known.astype(float))
    single = np.stack([lines - flat, lines - flat])
    order = np.argsort(np.argsort(np.einsum("nkp,kp->nk", design, lines), axis=0), axis=0)
    lower = order < len(y) // 2
    halves = [_line(design, y, 1.0 * known * part) for part in (lower, ~lower)]
    level = np.sum(y * known * lower, axis=0) / np.maximum(np.sum(known * lower, axis=0), 1)
    constant = level[:, None] * np.eye(1, size)
    every, first = np.ones((2, size)), np.stack([np.eye(size)[0], np.ones(size)])
    theta, best = _levenberg_marquardt(design, y, known, np.stack(halves) - 0.5 * flat, every)
    level_and_line = np.stack([constant, halves[1]]) - 0.5 * flat
    simple, squares = _levenberg_marquardt(design, y, known, level_and_line, first)
    theta = np.where((squares <= ENOUGH * best)[:, None], simple, theta)
    alone = best > ONE * np.sum(known * (y - _at(design, single).value) ** 2, axis=0)
    return _at(design, np.where(alone[:, None], single, theta))


def _levenberg_marquardt(
    design: Float[np.ndarray, "n k p"],
    y: Matrix,
    known: Bool[np.ndarray, "n k"],
    theta: Float[np.ndarray, "2 k p"],
    free: Float[np.ndarray, "2 p"],
) -> tuple[Float[np.ndarray, "2 k p"], Float[np.ndarray, " k"]]:
    """Coefficients of both terms, of which only those that are free move, and the squares left."""
    size = design.shape[2]
    terms, damping = _at(design, theta), np.full(y.shape[1], 1e-2)
    best = np.sum(known * (y - terms.value) ** 2, axis=0)
    for _ in range(ITERATIONS):
        share = terms.weights[:2, :, :, None] * known[..., None] * free[:, None, None]
        jacobian = np.concatenate(list(share * design), axis=2)
        normal = np.einsum("nkp,nkq->kpq", jacobian, jacobian)
        right = np.einsum("nkp,nk->kp", jacobian, y - terms.value)
        raised = damping[:, None] * (np.einsum("kpp->kp", normal) + EXACT)
        steps = np.linalg.solve(normal + raised[..., None] * np.eye(2 * size), right[..., None])
        steps = np.moveaxis(steps.reshape(-1, 2, size), 1, 0)
        trial = _at(design, terms.theta + steps)
        squares = np.sum(known * (y - trial.value) ** 2, axis=0)
        better = squares < best
        best = np.where(better, squares, best)
        damping = np.clip(np.where(better, 0.3, 5.0) * damping, 1e-9, 1e9)
        terms = _at(design, np.where(better[:, None], trial.theta, terms.theta))
    return terms.theta, best


def _simplest(
    columns: Float[np.ndarray, "3 n p"],
    wanted: Float[np.ndarray, " n"],
    units: Float[np.ndarray, " p"],
    sd: float,
) -> Float[np.ndarray, "3 p"]:
    """Coefficients in the simplest form whose squares are hardly more than those of the last.

    A coefficient of 1 that is off by a little is of no account where the draws are, and of much
    where the scale is a hundredth of theirs. So a mean that may be a parameter itself is taken so.
    """
    tried = [_least_squares(columns, wanted, _mask(form, columns), sd) for form in FORMS]
    exact, square = min(_exact(columns, wanted, units, sd), key=lambda found: found[1])
    squares = np.array([square for _, square in tried])
    if square <= ENOUGH * squares.min() + SAME:
        return exact
    return tried[int(np.argmax(squares <= ENOUGH * squares.min() + EXACT))][0]


def _mask(form: tuple[int, ...], columns: Float[np.ndarray, "3 n p"]) -> Bool[np.ndarray, "3 p"]:
    return np.array([[kind > 0] + [kind > 1] * (columns.shape[2] - 1) for kind in form])


def _exact(
    columns: Float[np.ndarray, "3 n p"],
    wanted: Float[np.ndarray, " n"],
    units: Float[np.ndarray, " p"],
    sd: float,
) -> Iterator[tuple[Float[np.ndarray, "3 p"], float]]:
    """With one of the two weights 0 or a partner, and with the other a constant."""
    for weight in (0, 1):
        free = _mask((weight, 1 - weight, 0), columns)
        for partner in range(columns.shape[2]):
            known = np.zeros(free.shape)
            known[weight, partner] = units[partner] if partner else 0.0  # 0 in place of a constant
            rest = wanted - np.einsum("fnp,fp->n", columns, known)
            found, square = _least_squares(columns, rest, free, sd)
            yield found + known, square


def _least_squares(
    columns: Float[np.ndarray, "3 n p"],
    wanted: Float[np.ndarray, " n"],
    mask: Bool[np.ndarray, "3 p"],
    sd: float,
) -> tuple[Float[np.ndarray, "3 p"], float]:
    """Coefficients, shrunk as far as there is noise, and the mean square that they leave."""
    design = np.moveaxis(columns, 0, 1)[:, mask]
    found = np.linalg.lstsq(design, wanted, SINGULAR)[0]
    noise = np.mean((wanted - design @ found) ** 2)
    size = design.shape[1]
    shrunk = np.vstack([design, np.sqrt(noise) / (WIDEST * sd) * np.eye(size)])
    found = np.linalg.lstsq(shrunk, np.append(wanted, np.zeros(size)), SINGULAR)[0]
    whole = np.zeros(mask.shape)
    whole[mask] = found
    return whole, float(np.mean((wanted - design @ found) ** 2))


def _padded(
    seen: _Seen, which: Any, drivers: Any, own: Any, partners: Any, terms: _Terms, means: Any
) -> ConditionalScales:
    """The map, in arrays of one shape for all that may be found, so that it is compiled once."""
    d, count = len(seen.sd), len(drivers)
    levels, slopes = np.full((2, d), -np.log(2.0)), np.zeros((2, d, DRIVERS))
    own_slopes, places, coefficients = (
        np.zeros((2, d)),
        np.zeros(d, int),
        np.zeros((3, d, 1 + PARTNERS)),
    )
    levels[:, which] = terms.theta[..., 0]
    slopes[:, which, :count] = terms.theta[..., 1 : 1 + count] / seen.sd[drivers]
    has = own[which] >= 0
    places[which[has]] = own[which[has]]
    own_slopes[:, which[has]] = terms.theta[:, has, -1] / seen.sd[own[which[has]]]
    coefficients[:, which, : 1 + len(partners)] = np.moveaxis(means, 0, 1)
    indices = np.resize(np.append(drivers, np.zeros(DRIVERS, int)), DRIVERS), places
    indices = *indices, np.resize(np.append(partners, np.zeros(PARTNERS, int)), PARTNERS)
    return ConditionalScales(
        *(on_device(x, np.int32) for x in indices),
        *(on_device(x, seen.dtype) for x in (levels, slopes, own_slopes, coefficients)),
    )
