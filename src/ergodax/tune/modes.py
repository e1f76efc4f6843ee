"""Modes: descents from many places, and what they say of other modes than the first."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.driver.compile import compiled_at
from ergodax.target.base import AbstractTarget
from ergodax.target.minimise import Minimum, minimise
from ergodax.target.mode import TOLERANCE, enough, find_mode
from ergodax.target.posterior import Posterior
from ergodax.tune.coordinates import Coordinates, flattened, unflattened
from ergodax.tune.host import generator, on_device, split_key
from ergodax.tune.rows import some_rows

SPREADS = 1.0, 4.0, 16.0, 64.0  # of the scouts around init, in the position's own units
PAIRS = 2  # of opposite scouts, at each spread
ITERATIONS = 100
FURTHER = 500  # of a descent that would tell of another mode, and has not come to its end
ROWS = 2_000  # that stand for all
FAR = 6.0  # posterior sds at which a mode is another one
BARRIER = 2.0  # in potential, between two modes, below which chains soon go from one to the other
BETWEEN = 15  # places on the line between two, where it is looked for
WORSE = 20.0  # in potential: a mode that is worse by more has no weight
MOST = 8  # modes that are looked at on all rows


class Descents(NamedTuple):
    """Where L-BFGS ended, a leading axis for the starts.

    Attributes:
        positions: frozen (see `tree.freeze`).
        potentials: there.
        converged: whether the gradient fell below the tolerance of `find_mode`.
        target: of `scout`: all or some of the data.
    """

    positions: PyTree
    potentials: Float[Array, " starts"]
    converged: Bool[Array, " starts"]
    target: AbstractTarget | None = None


@compiled_at
def descend(target: AbstractTarget, starts: PyTree, max_iterations: int) -> Descents:
    """Minimise the potential from each start, one after another: that is the smaller program.

    Args:
        target: any target.
        starts: frozen positions along a leading axis.
        max_iterations: of each descent.
    """

    def one(start: PyTree) -> Descents:
        mode = find_mode(target, tree.thaw(start), max_iterations=max_iterations)
        return Descents(tree.freeze(mode.position), mode.potential, mode.converged)

    return lax.map(one, starts)


def descent(target: AbstractTarget, start: PyTree, max_iterations: int) -> Minimum:
    """Minimise the potential from one place, as `find_mode` does, by SciPy.

    The only program is the potential's with its gradient, which is soon compiled. For many descents
    a compiled optimiser is the faster one.

    Args:
        target: any target.
        start: a frozen position.
        max_iterations: at most.
    """

    def function(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = potential_and_gradient(target, tree.freeze(unflattened(start, x)))
        return float(value), flattened(gradient)

    rounding = float(jnp.finfo(tree.result_dtype(start)).eps)
    return minimise(function, flattened(start), enough(TOLERANCE, start), max_iterations, rounding)


def starts_at(init: PyTree, offsets: Float[np.ndarray, "starts d"]) -> PyTree:
    """Frozen positions init + offsets, along a leading axis.

    Args:
        init: a position.
        offsets: from there, on the raveled position.
    """
    frozen = tree.freeze(init, "init")
    rows = [tree.freeze(unflattened(frozen, flattened(frozen) + x)) for x in offsets]
    return jax.tree.map(lambda *x: np.stack(x), *rows)


def end(descents: Descents, number: int) -> PyTree:
    """The position where one of the descents ended.

    Args:
        descents: from `descend`.
        number: of the start.
    """
    return tree.thaw(
        jax.tree.map(lambda x: on_device(np.asarray(x)[number], x.dtype), descents.positions)
    )


class _OnRows(AbstractTarget):
    """A posterior on some of its rows."""

    posterior: Posterior
    rows: PyTree

    def potential(self, position: PyTree) -> Float[Array, ""]:
        return self.posterior.potential_on(position, self.rows)


def scout(target: AbstractTarget, init: PyTree, *, key: PRNGKeyArray) -> Descents:
    """Descents in pairs that begin at init +- s N(0, I), with s from 1 to 64.

    Args:
        target: with data, of which 2,000 rows stand for all, or without.
        init: around which to begin.
        key: for rows and starts.
    """
    key_rows, key_starts = split_key(key, 2)
    if isinstance(target, Posterior):
        target = _OnRows(target, some_rows(target, key_rows, ROWS))
    size = tree.size(tree.freeze(init, "init"))
    steps = generator(key_starts).standard_normal((len(SPREADS), PAIRS, size))
    steps = (np.asarray(SPREADS)[:, None, None] * steps).reshape(-1, size)
    found = descend(target, starts_at(init, np.concatenate([steps, -steps])), ITERATIONS)
    return found._replace(target=target)


def other_modes(
    target: AbstractTarget, coordinates: Coordinates, descents: Descents
) -> list[Float[np.ndarray, " d"]]:
    """Modes far from the centre of the coordinates.

    Where a descent ended more than six posterior sds from the centre, at a potential that is no
    more than 20 higher, and the line between the two leads over a barrier, that is another mode (a
    search that ended on its way down a long valley is none, and goes on where it is curved); a
    sampler that starts at one mode
    alone might never see it, and its R-hat would not tell. A mode into which no descent leads is
    not found. Where 2,000 rows stood for all, what looks like another mode to them is followed down
    on all of them, since a part of the data may be content with places that the whole is not.

    Args:
        target: with data or without.
        coordinates: round ones.
        descents: of `scout`.

    Returns:
        The u of each.
    """
    share = min(1.0, ROWS / target.num_data) if isinstance(target, Posterior) else 1.0
    ends = coordinates.of_rows(descents.positions)  # on the rows all is flatter by the share
    away = np.linalg.norm(ends, axis=1) > _far(coordinates) / np.sqrt(share)
    away = np.flatnonzero(np.isfinite(ends).all(axis=1) & away)
    if not away.size:
        return []
    if share < 1:
        chosen = _apart(descents, coordinates, ends, away)[:MOST]
        if not chosen:
            return []
        starts = jax.tree.map(
            lambda x: on_device(np.asarray(x)[chosen], x.dtype), descents.positions
        )
        descents = descend(target, starts, ITERATIONS)
        away = np.arange(len(chosen))
    return _distinct(target, coordinates, descents, away)


def _apart(
    descents: Descents, coordinates: Coordinates, ends: np.ndarray, which: np.ndarray
) -> list[int]:
    """Those ends that a barrier parts from the lowest of all, and it, the lowest first."""
    values, target = np.asarray(descents.potentials, np.float64), descents.target
    lowest = int(np.nanargmin(values))
    if target is None:
        return sorted(which, key=lambda k: values[k])
    return [
        int(k)
        for k in sorted(which, key=lambda k: values[k])
        if k == lowest or _barrier(target, coordinates, ends[k], ends[lowest]) > values[k] + BARRIER
    ]


def _distinct(
    target: AbstractTarget, coordinates: Coordinates, descents: Descents, which: np.ndarray
) -> list[Float[np.ndarray, " d"]]:
    """Those ends of descents that are far from the centre and from each other, the lowest first."""
    ends, far = coordinates.of_rows(descents.positions), _far(coordinates)
    converged = np.asarray(descents.converged)
    first = _potential(target, coordinates.centre)
    found = [(np.zeros(coordinates.dimension), first)]

    def another(u: np.ndarray, value: float) -> bool:
        return value < first + WORSE + coordinates.dimension and all(
            np.linalg.norm(u - v) > far
            and _barrier(target, coordinates, u, v) > max(value, other) + BARRIER
            for v, other in found
        )

    values = {k: _potential(target, end(descents, int(k))) for k in which}
    for k in sorted(which, key=lambda k: values[k]):
        u, value = ends[k], values[k]
        if another(u, value) and not converged[k]:
            # On its way down a valley that is curved, whose walls the line between would cross.
            last = descent(target, tree.freeze(end(descents, int(k))), FURTHER)
            position = unflattened(coordinates.centre, last.position)
            u, value = np.asarray(coordinates.of(position), np.float64), last.potential
        if another(u, value):
            found.append((u, value))
    return [u for u, _ in found[1:]]


def _barrier(
    target: AbstractTarget,
    coordinates: Coordinates,
    u: Float[np.ndarray, " d"],
    v: Float[np.ndarray, " d"],
) -> float:
    """The highest potential on the line between two places."""
    between = (u + t * (v - u) for t in np.linspace(0.0, 1.0, BETWEEN + 2)[1:-1])
    dtype = coordinates.basis.dtype
    return max(_potential(target, coordinates.position(on_device(w, dtype))) for w in between)


def _far(coordinates: Coordinates) -> float:
    """At which distance two draws are not of the same mode."""
    return FAR + float(np.sqrt(coordinates.dimension))


@eqx.filter_jit
def potential_and_gradient(
    target: AbstractTarget, position: PyTree
) -> tuple[Float[Array, ""], PyTree]:
    """U and its gradient: the one program of the searches.

    Args:
        target: any target.
        position: frozen.
    """
    return target.value_and_gradient(position)


def _potential(target: AbstractTarget, position: PyTree) -> float:
    return float(potential_and_gradient(target, tree.freeze(position))[0])
