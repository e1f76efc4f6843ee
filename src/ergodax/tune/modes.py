"""The search for the mode and for other modes, and the whitened coordinates at the first."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.driver.compile import compiled_at
from ergodax.gradient.expansion import expand
from ergodax.target.base import AbstractTarget
from ergodax.target.mode import TOLERANCE, Minimum, enough, find_mode, minimise
from ergodax.target.posterior import Posterior
from ergodax.tune.curvature import (
    LARGEST_DENSE,
    LARGEST_LOW_RANK,
    curvature_coordinates,
    round_coordinates,
)
from ergodax.tune.decisions import DecisionLog
from ergodax.tune.estimator import LARGEST_SECOND_ORDER
from ergodax.tune.host import generator, on_device, some_rows, split_key
from ergodax.tune.whitening import Coordinates, flattened, in_coordinates, unflattened

LBFGS = {False: 500, True: 60}  # iterations of L-BFGS; where Newton's method can go on, less
NEWTONS = 60  # iterations of that
CHUNK = 1024  # examples at a time, whose Hessians are summed
ASIDE = 0.1  # in the position's own units
FALL = 0.1  # in potential, from a place that is no mode
COARSEST = 0.1  # the rounding of a component, in its sds
# Of the search for other modes:
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


def check_start(target: AbstractTarget, init: PyTree) -> None:
    """Fail where the target can't be evaluated at `init`, or is not finite there.

    Raises:
        TypeError: a position that is not floating point, or a potential that is not a number.
        ValueError: shapes that do not fit, or a density that is not finite.
    """
    position = tree.freeze(init, "init")
    target.check(position)
    value, gradient = potential_and_gradient(target, position)
    if not tree.known_finite((value, gradient)):
        raise ValueError(
            f"init: the log density there is {-float(value):g}, and it and its gradient must be "
            "finite. Try a position inside the support, or unconstrained parameters."
        )


def starting_coordinates(
    target: AbstractTarget, init: PyTree, log: DecisionLog, key: PRNGKeyArray
) -> tuple[PyTree, Coordinates]:
    """The mode and whitened coordinates near it, or `init` and plain ones where there is none."""
    with log.timing("mode"):
        mode = _mode(target, tree.freeze(init, "init"), key)
        if mode.converged and not mode.iterations:
            mode = _no_saddle(target, tree.freeze(init), mode, key)
    ok = mode.converged
    finite = bool(np.isfinite(np.append(mode.position, mode.potential)).all())
    log.decide(
        "start",
        "the mode" if ok else ("where the search for the mode stopped" if finite else "init"),
        f"{mode.iterations} iterations, gradient norm {mode.gradient_norm:.3g}",
    )
    with log.timing("scale"):
        centre = unflattened(init, mode.position) if finite else init
        coordinates = round_coordinates(target, centre, key=key)
    if not np.isfinite(coordinates.basis).all():
        log.decide("coordinates", "the position's own", "the curvature is not finite")
        return init, Coordinates(init, jnp.ones(coordinates.dimension))
    sizes = coordinates.scales
    scales = f"scales {sizes.min():.2g} to {sizes.max():.2g}"
    log.decide("coordinates", f"by the {_kind(coordinates)}", scales)
    dtype = tree.result_dtype(tree.freeze(coordinates.centre))
    grain = np.abs(flattened(coordinates.centre)) * float(jnp.finfo(dtype).eps)
    if (grain > COARSEST * sizes).any():
        log.faults.append(
            f"{dtype} resolves a component to no better than {np.max(grain / sizes):.2g} "
            "posterior sds; try jax_enable_x64, or subtract a constant from the parameter"
        )
    return centre, coordinates


def _kind(coordinates: Coordinates) -> str:
    if coordinates.basis.ndim == 2:
        return "averaged Hessian"
    if coordinates.low_rank is None:
        return "diagonal of the Fisher information"
    count = coordinates.low_rank.right.shape[1]
    return f"curvature: a diagonal and the sharpest {f'{count} directions' if count > 1 else 'one'}"


def _mode(target: AbstractTarget, init: PyTree, key: PRNGKeyArray) -> Minimum:
    """By SciPy; where that stops on a slope, `find_mode` goes on, whose line search is another."""
    few = tree.size(init) <= LARGEST_SECOND_ORDER and isinstance(target, Posterior)
    if LARGEST_DENSE < tree.size(init) <= LARGEST_LOW_RANK:
        found = _whitened_descent(target, init, key)
    else:
        found = descent(target, init, LBFGS[few])
    slope = not found.converged and np.isfinite(found.potential)
    if isinstance(target, Posterior) and few and slope:
        found = _together(found, newton(target, unflattened(init, found.position), NEWTONS))
    if found.converged or not np.isfinite(found.potential):
        return found
    more = find_mode(target, unflattened(init, found.position))
    end = Minimum(
        flattened(more.position),
        float(more.potential),
        float(more.gradient_norm),
        int(more.iterations),
        int(more.evaluations),
        bool(more.converged),
    )
    return _together(found, end) if end.potential <= found.potential else found


def _whitened_descent(target: AbstractTarget, init: PyTree, key: PRNGKeyArray) -> Minimum:
    """In coordinates whitened by the curvature at the start, so that a valley takes few steps."""
    coordinates = curvature_coordinates(target, tree.thaw(init), key=key)
    if not np.isfinite(coordinates.basis).all():
        return descent(target, init, LBFGS[False])
    origin = on_device(np.zeros(coordinates.dimension), coordinates.basis.dtype)
    found = descent(in_coordinates(target, coordinates), tree.freeze(origin), LBFGS[False])
    place = coordinates.position(on_device(found.position, origin.dtype))
    return found._replace(position=flattened(place))


def _no_saddle(target: AbstractTarget, init: PyTree, found: Minimum, key: PRNGKeyArray) -> Minimum:
    """Where no step was taken, the start may be a saddle or a maximum: once more from near it."""
    aside = ASIDE * generator(key).standard_normal(found.position.shape)
    other = _mode(target, tree.freeze(unflattened(init, found.position + aside)), key)
    return _together(found, other) if other.potential < found.potential - FALL else found


def _together(first: Minimum, then: Minimum) -> Minimum:
    """The end of the second search, with the work of both."""
    return then._replace(
        iterations=first.iterations + then.iterations,
        evaluations=first.evaluations + then.evaluations,
    )


def descent(
    target: AbstractTarget,
    start: PyTree,
    max_iterations: int,
    hessian: Callable[[PyTree], np.ndarray] | None = None,
) -> Minimum:
    """Minimise the potential from a frozen position by SciPy, with its Hessian if there is one.

    The only program is the potential's with its gradient, which is soon compiled. For many descents
    a compiled optimiser is the faster one.
    """

    def at(x: np.ndarray) -> PyTree:
        return tree.freeze(unflattened(start, x))

    def function(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = potential_and_gradient(target, at(x))
        return float(value), flattened(gradient)

    small, rounding = enough(TOLERANCE, start), float(jnp.finfo(tree.result_dtype(start)).eps)
    bend = None if hessian is None else lambda x: hessian(at(x))
    return minimise(function, flattened(start), small, max_iterations, rounding, bend)


def newton(posterior: Posterior, start: PyTree, max_iterations: int) -> Minimum:
    """Newton's method for some hundred parameters at most, where L-BFGS takes too long.

    Each Hessian is a pass over the data, which are in memory.
    """
    return descent(posterior, start, max_iterations, lambda x: whole_hessian(posterior, x))


def whole_hessian(posterior: Posterior, position: PyTree) -> Float[np.ndarray, "d d"]:
    """The Hessian of U at a frozen position, of all data, on the raveled position."""
    likelihood = expand(posterior, position, CHUNK, order=2).hessian
    assert likelihood is not None
    prior = np.asarray(_prior_hessian(posterior, position), np.float64)
    whole = -prior - np.asarray(likelihood.matrix, np.float64)
    return 0.5 * (whole + whole.T)


@eqx.filter_jit
def _prior_hessian(posterior: Posterior, position: PyTree) -> Float[Array, "d d"]:
    flat, unravel = tree.ravel(position)
    return jax.hessian(lambda x: posterior.prior(unravel(x)))(flat)


@eqx.filter_jit
def potential_and_gradient(
    target: AbstractTarget, position: PyTree
) -> tuple[Float[Array, ""], PyTree]:
    """U and its gradient at a frozen position: the one program of the searches."""
    return target.value_and_gradient(position)


class Descents(NamedTuple):
    """Where L-BFGS ended, a leading axis for the starts."""

    positions: PyTree  # frozen
    potentials: Float[Array, " starts"]
    converged: Bool[Array, " starts"]
    target: AbstractTarget | None = None  # of `scout`: with all or some of the data


@compiled_at
def descend(target: AbstractTarget, starts: PyTree, max_iterations: int) -> Descents:
    """Descents from frozen positions along a leading axis, one by one: the smaller program."""

    def one(start: PyTree) -> Descents:
        mode = find_mode(target, tree.thaw(start), max_iterations=max_iterations)
        return Descents(tree.freeze(mode.position), mode.potential, mode.converged)

    return lax.map(one, starts)


def starts_at(init: PyTree, offsets: Float[np.ndarray, "starts d"]) -> PyTree:
    """Frozen positions init + offsets, along a leading axis."""
    frozen = tree.freeze(init, "init")
    rows = [tree.freeze(unflattened(frozen, flattened(frozen) + x)) for x in offsets]
    return jax.tree.map(lambda *x: np.stack(x), *rows)


def end(descents: Descents, number: int) -> PyTree:
    """The position where the descent of this number ended."""
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
    """Descents in pairs that begin at init +- s N(0, I), with s from 1 to 64, on 2,000 rows."""
    key_rows, key_starts = split_key(key, 2)
    if isinstance(target, Posterior):
        target = _OnRows(target, some_rows(target, key_rows, ROWS))
    size = tree.size(tree.freeze(init, "init"))
    steps = generator(key_starts).standard_normal((len(SPREADS), PAIRS, size))
    steps = (np.asarray(SPREADS)[:, None, None] * steps).reshape(-1, size)
    found = descend(target, starts_at(init, np.concatenate([steps, -steps])), ITERATIONS)
    return found._replace(target=target)


def all_modes(
    target: AbstractTarget,
    coordinates: Coordinates,
    descents: Descents,
    num_chains: int,
    log: DecisionLog,
) -> list[PyTree]:
    """The positions of all modes where there are several, else none; `descents` are of `scout`."""
    others = other_modes(target, coordinates, descents)
    if not others:
        return []
    log.decide(
        "modes",
        f"chains begin at {len(others) + 1}",
        f"the nearest other is {min(map(np.linalg.norm, others)):.3g} posterior sds from the first",
    )
    if len(others) + 1 > num_chains:
        log.faults.append(
            f"{len(others) + 1} modes were found, and {num_chains} chains can't begin at all of "
            "them; try more chains"
        )
    places = on_device([np.zeros(coordinates.dimension), *others], coordinates.basis.dtype)
    return [coordinates.position(u) for u in places]


def at_modes(
    starts: Float[Array, "chains d"], coordinates: Coordinates, modes: Sequence[PyTree]
) -> Float[Array, "chains d"]:
    """The starts u, moved from the centre to the modes in turn where there are several."""
    if not modes:
        return starts
    centres = jnp.stack([coordinates.of(mode) for mode in modes])
    return starts + centres[np.arange(len(starts)) % len(modes)].astype(starts.dtype)


def other_modes(
    target: AbstractTarget, coordinates: Coordinates, descents: Descents
) -> list[Float[np.ndarray, " d"]]:
    """The u of modes far from the centre of whitened coordinates.

    Where a descent of `scout` ended more than six posterior sds from the centre, at a potential no
    more than 20 higher, and the line between the two leads over a barrier, that is another mode. (A
    search that ended on its way down a long valley is none, and goes on where it is curved.) A
    sampler that starts at one mode alone might never see it, and its R-hat would not tell. A mode
    into which no descent leads is not found. Where 2,000 rows stood for all, what looks like
    another mode to them is followed down on all data, which may not agree.
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
            # On its way down a curved valley, whose steep sides the line between would cross.
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


def _potential(target: AbstractTarget, position: PyTree) -> float:
    return float(potential_and_gradient(target, tree.freeze(position))[0])
