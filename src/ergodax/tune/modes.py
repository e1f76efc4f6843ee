"""The search for other modes than the first: descents from far places, told apart by barriers."""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.graph import lowered
from ergodax.target.base import AbstractTarget
from ergodax.target.mode import potential_and_gradient
from ergodax.target.posterior import Posterior
from ergodax.tune.budget import Deadline
from ergodax.tune.curvature import curvature_coordinates
from ergodax.tune.decisions import DecisionLog
from ergodax.tune.descent import OnRows, descent, potential_at, seconds_of_gradient
from ergodax.tune.far_mass import FarMass, far_mass, scales_of_places
from ergodax.tune.host import generator, on_device, some_rows, split_key
from ergodax.tune.start import ROWS, lowest_near
from ergodax.tune.whitening import Coordinates, flattened, unflattened

SPREADS = 1.0, 4.0, 16.0, 64.0  # of the scouts around init, in the position's own units
PAIRS = 2  # of opposite scouts, at each spread
ITERATIONS = 100, 30, 10  # of a scout: the most for which there is time
GRADIENTS = 2.5  # in an iteration
SCOUTING = 0.5  # of the time until they are cut, in which all scouts shall be done
FURTHER = 500  # of a descent that would tell of another mode, and has not come to its end
FAR = 6.0  # posterior sds at which a mode is another one
BARRIER = 2.0  # in potential, between two modes, below which chains soon go from one to the other
BETWEEN = 15  # places on the line between two, where it is looked for
ROUGH, STEP = 11, 1e-3  # places on that line, and posterior sds of a step, where rounding is told
ROUNDINGS = 64.0  # of the whole potential, which any sum of terms may have
COMPARED = 20  # draws, with whose lowest potential a mode without draws is compared
NEGLIGIBLE = 5e-4  # posterior sds: a mode's share of the mass times its distance from all draws
WORSE = 20.0  # in potential: a mode that is worse by more has no weight
MOST = 8  # modes that are looked at on all rows
# Of the look for low places:
PART, PARTS, SECONDS = 2048, 16, 0.5  # places at a time; how often at most, and how long
SHARE = 0.25  # of the time, beyond which not even the first of them are looked at
FEW = 20  # dimensions, beyond which none would lie where a narrow mode is felt
TOGETHER = 64  # places whose potentials are computed at once
RINGS, LOWEST = 3, 2  # by distance, and the places in each from which descents begin
NEAREST = 3  # draws, to which a place is connected or not


class Descents(NamedTuple):
    """Where L-BFGS ended, a leading axis for the starts."""

    positions: PyTree  # frozen
    potentials: Float[Array | np.ndarray, " starts"]
    converged: Bool[Array | np.ndarray, " starts"]
    target: AbstractTarget | None = None  # of `scout`: with all or some of the data
    far: FarMass | None = None  # as the places told at which `scout_low_places` has looked

    def and_more(self, others: "Descents") -> "Descents":
        """All of both; what is left of the second is not the rows that it went down on."""
        positions, potentials, converged = jax.tree.map(
            lambda *x: np.concatenate(x), self[:3], others[:3]
        )
        return Descents(positions, potentials, converged, self.target, self.far)


def descents_from(
    target: AbstractTarget,
    starts: Sequence[PyTree],
    max_iterations: int,
    deadline: Deadline | None = None,
) -> Descents:
    """Descents from frozen positions, of which there is one at least; those past time are short."""
    found = [descent(target, x, max_iterations, deadline=deadline) for x in starts]
    ends = [tree.freeze(unflattened(starts[0], minimum.position)) for minimum in found]
    return Descents(
        jax.tree.map(lambda *x: np.stack(x), *ends),
        np.array([minimum.potential for minimum in found]),
        np.array([minimum.converged for minimum in found]),
        target,
    )


def end(descents: Descents, number: int) -> PyTree:
    """The position where the descent of this number ended."""
    return tree.thaw(
        jax.tree.map(lambda x: on_device(np.asarray(x)[number], x.dtype), descents.positions)
    )


def scout(
    target: AbstractTarget,
    init: PyTree,
    *,
    key: PRNGKeyArray,
    deadline: Deadline | None = None,
) -> Descents:
    """Descents in pairs that begin at init +- s N(0, I), with s from 1 to 64, on 2,000 rows.

    The nearest come first; those for which there is no time end where they begin.
    """
    return scouting(target, init, key=key, deadline=deadline)()


def scouting(
    target: AbstractTarget, init: PyTree, *, key: PRNGKeyArray, deadline: Deadline | None = None
) -> Callable[[], Descents]:
    """What `scout` does, for another thread; all that there is to trace is traced here."""
    key_rows, key_starts = split_key(key, 2)
    if isinstance(target, Posterior):
        target = OnRows(target, some_rows(target, key_rows, ROWS))
    frozen = tree.freeze(init, "init")
    lowered(potential_and_gradient, target, frozen)
    return lambda: _scout(target, frozen, key_starts, deadline or Deadline.never())


def _scout(
    target: AbstractTarget, frozen: PyTree, key_starts: PRNGKeyArray, deadline: Deadline
) -> Descents:
    size = tree.size(frozen)
    steps = generator(key_starts).standard_normal((len(SPREADS), PAIRS, 1, size))
    steps = np.asarray(SPREADS)[:, None, None, None] * np.concatenate([steps, -steps], axis=2)
    places = flattened(frozen) + steps.reshape(-1, size)
    starts = [tree.freeze(unflattened(frozen, x)) for x in places]
    gradients = len(starts) * GRADIENTS * seconds_of_gradient(target, tree.thaw(frozen))
    fit = [count for count in ITERATIONS if count * gradients < SCOUTING * deadline.left()]
    return descents_from(target, starts, fit[0] if fit else ITERATIONS[-1], deadline)


def scout_low_places(
    target: AbstractTarget,
    coordinates: Coordinates,
    descents: Descents,
    *,
    key: PRNGKeyArray,
    deadline: Deadline,
) -> Descents:
    """Those of `scout`, and more from where the potential is lowest for the distance.

    A narrow mode draws descents from a small part of space only. There the potential rises less,
    over the square of the distance, than at other places as far from the centre. As many places
    are looked at as take half a second, after the first 2,048, and 32,768 at most: in ten
    dimensions one in some thousands lies in such a part, in twenty none will, so that there is no
    look beyond; nor where the first alone would take a quarter of the time.
    """
    place, d = descents.target or target, coordinates.dimension
    if d > FEW or PART * seconds_of_gradient(place, coordinates.centre) > SHARE * deadline.left():
        return descents
    here, random = _potential_at(place, coordinates), generator(key)
    until, looks, heights = np.inf, [], []
    while len(looks) < PARTS and time.perf_counter() < until and not deadline.over:
        scales = scales_of_places(random, PART)
        looks.append((scales * random.standard_normal((PART, d))).astype(coordinates.basis.dtype))
        heights.append(np.asarray(_potentials(place, coordinates, looks[-1]), np.float64))
        until = min(until, time.perf_counter() + SECONDS)  # the first look compiles
    if not looks:
        return descents
    u, norms = np.concatenate(looks), np.linalg.norm(np.concatenate(looks), axis=1)
    rises = np.concatenate(heights) - here
    if not isinstance(target, Posterior) or target.num_data <= ROWS:  # else some stand for all
        descents = descents._replace(far=far_mass(u, rises))
    rises /= norms**2
    rings = np.array_split(np.argsort(norms), RINGS)  # or else the farthest would be the lowest
    low = [k for ring in rings for k in ring[np.argsort(rises[ring])[:LOWEST]]]
    low = [u[k] for k in low if np.isfinite(rises[k])]
    if not low:
        return descents
    starts = [tree.freeze(unflattened(coordinates.centre, coordinates.flat_at(x))) for x in low]
    return descents.and_more(descents_from(place, starts, ITERATIONS[0], deadline))


@eqx.filter_jit
def _potentials(
    target: AbstractTarget, coordinates: Coordinates, u: Float[Array | np.ndarray, "places d"]
) -> Float[Array, " places"]:
    """U at each place."""
    return jax.lax.map(
        lambda x: target.potential(coordinates.position(x)), jnp.asarray(u), batch_size=TOGETHER
    )


def all_modes(
    coordinates: Coordinates,
    others: Sequence[Float[np.ndarray, " d"]],
    num_chains: int,
    log: DecisionLog,
) -> list[PyTree]:
    """The positions of all modes where there are others than the first, else none."""
    if not others:
        return []
    log.decide(
        "modes",
        f"chains begin at {min(len(others) + 1, num_chains)}",
        f"of {len(others) + 1}; the nearest other is {min(map(np.linalg.norm, others)):.3g} "
        "posterior sds from the first",
    )
    places = on_device([np.zeros(coordinates.dimension), *others], coordinates.basis.dtype)
    return [coordinates.position(u) for u in places]


def unvisited(
    target: AbstractTarget,
    coordinates: Coordinates,
    descents: Descents,
    draws: Float[np.ndarray, "draws d"],
    deadline: Deadline | None = None,
) -> PyTree | None:
    """A mode to which no draw has come though it has weight, if one of the descents leads there.

    There are more modes than were found where a second search, from other places, finds another.
    One whose mass, by the curvature at it, would move no mean by a hundredth of the usual accuracy
    has no weight.
    Draws have come to a place if a line to one of the nearest leads over no barrier.

    Args:
        target: of the position.
        coordinates: whitened.
        descents: of a `scout` whose key has not been used for the first.
        draws: u of some draws.
        deadline: of the descents on all rows.
    """

    def come_to(target: AbstractTarget, u: np.ndarray) -> bool:
        nearest = np.argsort(np.linalg.norm(draws - u, axis=1))[:NEAREST]
        here = _potential_at(target, coordinates, u)
        return not all(
            _parted(target, coordinates, u, v, max(here, _potential_at(target, coordinates, v)))
            for v in draws[nearest]
        )

    ends = coordinates.of_rows(descents.positions)
    known = draws[:: -(-len(draws) // COMPARED)]  # the first mode may not be the lowest
    lowest = min(
        _potential_at(target, coordinates),
        *(_potential_at(target, coordinates, u) for u in known),
    )
    lowest_first = [int(k) for k in np.argsort(descents.potentials) if np.isfinite(ends[k]).all()]
    place = descents.target or target
    elsewhere = [k for k in lowest_first if not come_to(place, ends[k])]
    for k in elsewhere[:MOST]:
        last = descent(target, tree.freeze(end(descents, k)), FURTHER, deadline=deadline)
        mode = unflattened(coordinates.centre, last.position)
        u = np.asarray(coordinates.of(mode), np.float64)
        excess = last.potential - _log_volume(target, coordinates, u) - lowest
        nearest = draws[np.argmin(np.linalg.norm(draws - u, axis=1))]
        if _matters(u - nearest, excess) and not come_to(target, u):
            return mode
    return None


def at_modes(
    starts: Float[Array, "chains d"], coordinates: Coordinates, modes: Sequence[PyTree]
) -> Float[Array, "chains d"]:
    """The starts u, moved from the centre to the modes in turn where there are several."""
    if not modes:
        return starts
    centres = jnp.stack([coordinates.of(mode) for mode in modes])
    return starts + centres[np.arange(len(starts)) % len(modes)].astype(starts.dtype)


def other_modes(
    target: AbstractTarget,
    coordinates: Coordinates,
    descents: Descents,
    deadline: Deadline | None = None,
) -> list[Float[np.ndarray, " d"]]:
    """The u of modes far from the centre of whitened coordinates.

    Where a descent of `scout` ended more than six posterior sds from the centre, at a potential no
    more than 20 higher, and the line between the two leads over a barrier, that is another mode. (A
    search that ended on its way down a long valley is none, and goes on where it is curved.) A
    sampler that starts at one mode alone might never see it, and its R-hat would not tell. A mode
    into which no descent leads is not found. A way there on which rounding decides leads to no mode
    of the model: where large terms cancel, nothing is left of them but zero. Where 2,000 rows stood
    for all, what looks like another mode to them is followed down on all data, which may not agree.
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
        starts = [tree.freeze(end(descents, k)) for k in chosen]
        descents = descents_from(target, starts, ITERATIONS[0], deadline)
        away = np.arange(len(chosen))
    return _distinct(target, coordinates, descents, away, deadline)


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
        if k == lowest or _parted(target, coordinates, ends[k], ends[lowest], float(values[k]))
    ]


def _distinct(
    target: AbstractTarget,
    coordinates: Coordinates,
    descents: Descents,
    which: np.ndarray,
    deadline: Deadline | None,
) -> list[Float[np.ndarray, " d"]]:
    """Those ends of descents that are far from the centre and from each other, the lowest first."""
    ends, far = coordinates.of_rows(descents.positions), _far(coordinates)
    converged = np.asarray(descents.converged)
    first = _potential_at(target, coordinates)
    found, weights = [(np.zeros(coordinates.dimension), first)], [lowest_near(target, coordinates)]

    def apart(u: np.ndarray, value: float) -> bool:
        if not value < first + WORSE + coordinates.dimension:
            return False
        if min(np.linalg.norm(u - v) for v, _ in found) <= far:  # which costs no potential
            return False
        return all(_parted(target, coordinates, u, v, max(value, other)) for v, other in found)

    centre = tree.freeze(coordinates.centre)
    values = {k: potential_at(target, centre, flattened(end(descents, int(k))))[0] for k in which}
    for k in sorted(which, key=lambda k: values[k]):
        u, value = ends[k], values[k]
        if apart(u, value) and not converged[k]:
            # On its way down a curved valley, whose steep sides the line between would cross.
            start = tree.freeze(end(descents, int(k)))
            last = descent(target, start, FURTHER, deadline=deadline)
            position = unflattened(coordinates.centre, last.position)
            u, value = np.asarray(coordinates.of(position), np.float64), last.potential
        if not apart(u, value):
            continue
        weight = value - _log_volume(target, coordinates, u)
        if _matters(u, weight - min(weights)) and not _is_rough(target, coordinates, u):
            found.append((u, value))
            weights.append(weight)
    kept = zip(found[1:], weights[1:], strict=True)  # beside the lowest, others may have no weight
    return [u for (u, _), weight in kept if _matters(u, weight - min(weights))]


def _matters(u: Float[np.ndarray, " d"], excess: float) -> bool:
    """Whether a mode so far away, exp(-excess) as heavy, moves a mean by what can be told."""
    return bool(np.linalg.norm(u) * np.exp(-max(excess, -100.0)) > NEGLIGIBLE)


def _log_volume(
    target: AbstractTarget, coordinates: Coordinates, u: Float[np.ndarray, " d"]
) -> float:
    """The logarithm of a mode's volume over that of the first, by the curvature at both.

    A density may be far higher where it is far narrower, such as where a variance vanishes, and no
    draw comes there. By a diagonal, which is not all of the curvature, that is told only where
    components are e times narrower, taken together.
    """
    place = coordinates.position(on_device(u, coordinates.basis.dtype))
    there = curvature_coordinates(target, place, key=jax.random.key(0))
    with np.errstate(invalid="ignore"):  # where the density overflows there is no curvature
        larger = there.log_volume - coordinates.log_volume
    larger = float(np.nan_to_num(larger, nan=-np.inf, posinf=0.0, neginf=-np.inf))
    surely = coordinates.basis.ndim == 2 or abs(larger) > coordinates.dimension
    return larger if surely else 0.0


def _parted(
    target: AbstractTarget,
    coordinates: Coordinates,
    u: Float[np.ndarray, " d"],
    v: Float[np.ndarray, " d"],
    height: float,
) -> bool:
    """Whether the line between two places leads over a barrier, BARRIER above a potential."""
    shares = np.linspace(0.0, 1.0, BETWEEN + 2)[1:-1]
    middle_first = shares[np.argsort(abs(shares - 0.5))]  # where most barriers are
    return any(
        not _potential_at(target, coordinates, u + t * (v - u)) <= height + BARRIER
        for t in middle_first
    )


def _is_rough(target: AbstractTarget, coordinates: Coordinates, u: Float[np.ndarray, " d"]) -> bool:
    """Whether rounding changes the potential more than a barrier does, on the way from the centre.

    A short step changes a smooth function by the mean of the slopes at both its ends. What differs
    from that is rounding, of which all computations have some part of the potential itself.
    """
    centre = tree.freeze(coordinates.centre)

    def at(place: np.ndarray) -> tuple[np.ndarray, float, np.ndarray]:
        flat = flattened(unflattened(centre, coordinates.flat_at(place)))  # as it is rounded
        return flat, *potential_at(target, centre, flat)

    eps = float(np.finfo(coordinates.basis.dtype).eps)
    for share in np.linspace(0.0, 1.0, ROUGH + 2)[1:-1]:
        x, value, slope = at(share * u)
        y, other, steeper = at(share * u + STEP * u / np.linalg.norm(u))
        rounding = abs(other - value - (y - x) @ (slope + steeper) / 2.0)
        if BARRIER + ROUNDINGS * eps * max(abs(value), abs(other)) < rounding < np.inf:
            return True
    return False


def _far(coordinates: Coordinates) -> float:
    """At which distance two draws are not of the same mode."""
    return FAR + float(np.sqrt(coordinates.dimension))


def _potential_at(
    target: AbstractTarget, coordinates: Coordinates, u: Float[np.ndarray, " d"] | None = None
) -> float:
    """U at u, by default at the centre."""
    centre = tree.freeze(coordinates.centre)
    flat = flattened(centre) if u is None else coordinates.flat_at(u)
    return potential_at(target, centre, flat)[0]
