"""Modes: descents from many places, and what they say of other modes than the first."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.haste import in_haste
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
ROWS = 2_000  # that stand for all
FAR = 6.0  # posterior sds at which a mode is another one
WORSE = 20.0  # in potential: a mode that is worse by more has no weight
MOST = 8  # modes that are looked at on all rows


class Descents(NamedTuple):
    """Where L-BFGS ended, a leading axis for the starts.

    Attributes:
        positions: frozen (see `tree.freeze`).
        potentials: there.
        converged: whether the gradient fell below the tolerance of `find_mode`.
    """

    positions: PyTree
    potentials: Float[Array, " starts"]
    converged: Bool[Array, " starts"]


@in_haste
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
    return descend(target, starts_at(init, np.concatenate([steps, -steps])), ITERATIONS)


def other_modes(
    target: AbstractTarget, coordinates: Coordinates, descents: Descents
) -> list[Float[np.ndarray, " d"]]:
    """Modes far from the centre of the coordinates.

    Where a descent ended more than six posterior sds from the centre, at a potential that is no
    more than 20 higher, that is another mode; a sampler that starts at one mode alone might never
    see it, and its R-hat would not tell. A mode into which no descent leads is not found. Where
    2,000 rows stood for all, what looks like another mode is followed down on all of them, since a
    part of the data may be content with places that the whole is not.

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
        chosen = away[np.argsort(np.asarray(descents.potentials)[away])][:MOST]
        starts = jax.tree.map(
            lambda x: on_device(np.asarray(x)[chosen], x.dtype), descents.positions
        )
        descents = descend(target, starts, ITERATIONS)
        away = np.arange(len(chosen))
    return _distinct(target, coordinates, descents, away)


def _distinct(
    target: AbstractTarget, coordinates: Coordinates, descents: Descents, which: np.ndarray
) -> list[Float[np.ndarray, " d"]]:
    """Those ends of descents that are far from the centre and from each other, the lowest first."""
    ends, far = coordinates.of_rows(descents.positions), _far(coordinates)
    values = {k: _potential(target, end(descents, int(k))) for k in which}
    limit = _potential(target, coordinates.centre) + WORSE + coordinates.dimension
    found: list[np.ndarray] = []
    for k in sorted(values, key=lambda k: values[k]):
        u = ends[k]
        others = [np.zeros_like(u), *found]
        if values[k] < limit and all(np.linalg.norm(u - v) > far for v in others):
            found.append(u)
    return found


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
