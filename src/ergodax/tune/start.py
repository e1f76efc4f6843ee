"""Where an inference begins: the mode, whitened coordinates there, and what lies around it."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.gradient.expansion import whole_hessian
from ergodax.graph import uses
from ergodax.target.base import AbstractTarget
from ergodax.target.mode import Minimum
from ergodax.target.posterior import Posterior
from ergodax.tune.budget import Deadline
from ergodax.tune.curvature import (
    LARGEST_DENSE,
    SOME,
    curvature_coordinates,
    hessian_coordinates,
    round_coordinates,
)
from ergodax.tune.decisions import DecisionLog
from ergodax.tune.descent import (
    OnRows,
    descent,
    newton,
    potential_and_gradient,
    potential_at,
)
from ergodax.tune.estimator import LARGEST_SECOND_ORDER
from ergodax.tune.host import generator, on_device, some_rows, split_key
from ergodax.tune.variational import middle_of_mass
from ergodax.tune.whitening import Coordinates, flattened, unflattened

ROWS = 2_000  # that stand for all in the first part of the search
WORTH = 4  # times so many, from which they are worth it
FIRST = 60  # iterations of L-BFGS in the position's own units
WHITENED = 60  # in whitened ones
REWHITENED = 4  # times at most
NEWTONS = 60  # iterations of Newton's method, where L-BFGS does not come near
ASIDE = 0.1  # in the position's own units
FALL = 0.1  # in potential, from a place that is no mode
SPIKE = 1e-6  # the ratio of scales, from which a mode may be one without mass
NARROWER = 20.0  # in the log of the volume, than around the start: from there on it may be too
LIGHTER = 20.0, 10.0  # in the log of the mass: beside that it has none, and where it is torn
COARSEST = 0.1  # the rounding of a component, in its sds
GRAIN = 12.0**-0.5  # of the distance of two numbers: the sd that rounding to them brings
NOISE = 0.05  # in potential: a sixth of what a trajectory of NUTS is off by
ROUNDED = (
    "rounding changes the potential by some {:.2g}, and a test of a proposal by all rows bears a "
    "twentieth; try jax_enable_x64, leave out large constants, or sum terms in which large numbers "
    "have cancelled"
)
BOOLE = np.array([7.0, 32.0, 12.0, 32.0, 7.0]) / 90.0
# Of the look around the mode:
PLACES = 16
NUDGE = 1e-3  # of a draw
FEW_ROWS = 10.0  # mean of u dU/du, from which the curvature at the mode misses some row's
RISE = 20.0, 2.0  # in potential above the mode, and for each dimension, that is still the posterior
WHILE = "Reverse-mode differentiation does not work for lax.while_loop"  # JAX's words
NO_REVERSE = (
    "the target has no gradient: its functions have a loop whose number of steps is not fixed "
    "(jax.lax.while_loop, or fori_loop with bounds that are computed), and JAX can't go back "
    "through it. Try jax.lax.scan, or fori_loop with a fixed number of steps. If the loop solves "
    "an equation, give the solution its derivative by jax.lax.custom_root or jax.custom_jvp."
)


class Start(NamedTuple):
    """Where to begin."""

    place: PyTree  # the mode, if it was found
    coordinates: Coordinates
    smooth: bool  # whether the density is positive everywhere around
    typical: bool  # whether draws from the coordinates' normal law are about as likely as they say
    mode: PyTree = None  # where the search for it ended
    noise: float = 0.0  # of the potential, by rounding
    virial: float = 1.0  # the largest mean of u dU/du of a component, 1 for a normal law
    blind: Any = None  # a likely place at which the gradient is not finite, raveled


def check_start(target: AbstractTarget, init: PyTree) -> None:
    """Fail where the target can't be evaluated at `init`, or is not finite there.

    Raises:
        TypeError: a position that is not floating point, or a potential that is not a number.
        ValueError: shapes that do not fit, a density that is not finite, or one that JAX can't
            differentiate.
    """
    position = target.freeze(init, "init")
    for path, leaf in jax.tree_util.tree_leaves_with_path(position):
        if not leaf.size:
            raise ValueError(
                f"init{jax.tree_util.keystr(path)} has shape {leaf.shape} and no numbers: there is "
                "nothing to infer. Leave it out."
            )
    target.check(position)
    try:
        value, gradient = potential_and_gradient(target, position)
    except ValueError as error:
        if WHILE not in str(error):
            raise
        raise ValueError(NO_REVERSE) from error
    if not tree.known_finite(value):
        raise ValueError(
            f"init: the log density there is {-float(value):g}, and must be finite. Try a position "
            "inside the support, or unconstrained parameters."
        )
    if not tree.known_finite(gradient):
        raise ValueError(
            f"init: the log density there is {-float(value):g}, but its gradient is not finite. It "
            "may be that of a branch of jnp.where which is not taken there, or of a root of 0: "
            "give that branch arguments at which it has a gradient, or try another position."
        )


def in_double(target: AbstractTarget, init: PyTree) -> PyTree | None:
    """The start in double precision, if the model takes it.

    Functions outside of JAX run in threads of their own, where its precision is still single.
    """
    double = jax.tree.map(lambda x: np.asarray(x, np.float64), tree.freeze(init))
    try:
        outside = uses(target.potential, double, "pure_callback")
        check_start(target, tree.thaw(double))
    except Exception:  # the model's own, which is written for single precision
        return None
    return None if outside else tree.thaw(double)


def find_start(
    target: AbstractTarget, init: PyTree, log: DecisionLog, key: PRNGKeyArray, deadline: Deadline
) -> Start:
    """Search for the mode, whiten there, and look around; where that is no place, begin elsewhere.

    At the mode of a density without a bound, such as that of a variance of effects that may all be
    zero, the curvature tells nothing of where the draws lie, and what is around is far less likely.
    The middle of the mass is the start then, as far as a normal law tells it, or `init`.

    Args:
        target: with data or without.
        init: of the user.
        log: is told the decisions.
        key: a key of `jax.random.key`.
        deadline: at which the search for the mode ends.
    """
    key_mode, key_scale, key_look = split_key(key, 3)
    with log.timing("mode"):
        mode = _mode(target, tree.freeze(init, "init"), key_mode, deadline)
    with log.timing("scale"):
        place = unflattened(init, mode.position)
        begin = _roundest(target, init, place, (key_scale, key_look), deadline)
        found = "the mode" if mode.converged else "where the search for the mode stopped"
        found, least = ("init", -np.inf) if begin.place is init else (found, np.inf)
        # Of a sum over rows rounding says nothing; else nothing of the curvature there is true.
        rows = isinstance(target, Posterior)
        noisy = begin.noise > NOISE and not rows
        if begin.place is place:
            least = -np.inf if noisy else _least_mass(target, begin, init, key_scale)
        for start in _with_more_mass(target, init, least, key_scale, deadline):
            other = _look_around(target, start, key_look)
            if other.typical and not (noisy and other.noise > NOISE):
                begin, found = other, "the middle of the mass; the mode has none"
                found = "init" if other.place is init else found
                break
    _tell(log, mode, begin, found, rows=rows)
    # Places that are close may be rounded alike, and then their differences say nothing of it.
    grain = GRAIN * float(jnp.finfo(tree.result_dtype(tree.freeze(init))).eps)
    least = grain * abs(mode.potential) if np.isfinite(mode.potential) else 0.0
    return begin._replace(mode=place, noise=max(begin.noise, least))


def _roundest(
    target: AbstractTarget,
    init: PyTree,
    mode: PyTree,
    keys: tuple[PRNGKeyArray, PRNGKeyArray],
    deadline: Deadline,
) -> Start:
    """The first place whose draws are likely; at the mode, with the coordinates that fit best."""
    key_scale, key_look = keys
    typical: list[Start] = []
    for candidate in _candidates(target, init, mode, key_scale, deadline):
        if typical and candidate.place is init:
            break
        start = _look_around(target, candidate, key_look)
        if start.typical:
            typical.append(start)
            if start.virial < FEW_ROWS or start.place is init:
                break
    plain = Start(init, plain_coordinates(init), True, False)
    return min(typical, key=lambda start: start.virial, default=plain)


def _candidates(
    target: AbstractTarget, init: PyTree, mode: PyTree, key: PRNGKeyArray, deadline: Deadline
) -> Iterator[Start]:
    """Places and coordinates, those that are most often right first."""
    yield Start(mode, round_coordinates(target, mode, key=key), True, False)
    yield Start(mode, curvature_coordinates(target, mode, key=key), True, False)
    few = tree.size(init) <= LARGEST_SECOND_ORDER and not deadline.over
    if few and isinstance(target, Posterior) and target.num_data > SOME:
        # The rows that stood for all have none of a rare level, say, and the curvature misses it.
        hessian = whole_hessian(target, tree.freeze(mode))
        yield Start(mode, hessian_coordinates(mode, hessian), True, False)
    yield Start(init, curvature_coordinates(target, init, key=key), True, False)
    yield Start(init, plain_coordinates(init), True, False)


def _least_mass(target: AbstractTarget, start: Start, init: PyTree, key: PRNGKeyArray) -> float:
    """The log mass of a place beside which the mode has none; infinite where it surely has some.

    Where a variance vanishes the density may have no bound: it is as high as the search has come
    deep, in a volume that is smaller still, where no draw comes. A mode of which this may be so is
    told by scales that hardly go together, or by a volume far below that around `init`, where the
    curvature is known in all directions.
    """
    scales = start.coordinates.scales
    torn = scales.min() <= SPIKE * scales.max()
    if not torn and start.coordinates.basis.ndim == 1:
        return np.inf
    if not torn:
        around = curvature_coordinates(target, init, key=key).log_volume
        if not around - start.coordinates.log_volume > NARROWER:
            return np.inf
    return _log_mass(target, start.coordinates) + LIGHTER[int(torn)]


def _with_more_mass(
    target: AbstractTarget, init: PyTree, least: float, key: PRNGKeyArray, deadline: Deadline
) -> list[Start]:
    """`init` and the middle of the mass, where they have so much; that with the most first.

    The middle comes twice: its curvature may be that of one place only, while the sds of the normal
    law that is closest to the density hold all around.
    """
    frozen = tree.freeze(init)
    if least == np.inf:
        return []
    here = Start(init, curvature_coordinates(target, init, key=key), True, False)
    middle, sds = middle_of_mass(
        lambda flat: potential_at(target, frozen, flat),
        flattened(frozen),
        here.coordinates.scales,
        key=key,
        deadline=deadline,
    )
    place = unflattened(init, middle)
    basis = on_device(sds if sds.size > LARGEST_DENSE else np.diag(sds), tree.result_dtype(frozen))
    there = [curvature_coordinates(target, place, key=key), Coordinates(place, basis)]
    starts = [here, *(Start(place, coordinates, True, False) for coordinates in there)]
    mass = [_log_mass(target, start.coordinates) for start in starts]
    # A slope may be taken for as much as one for each dimension (`lowest_near`).
    least = max(least, max(mass) - LIGHTER[0] - here.coordinates.dimension)
    return [starts[i] for i in np.argsort(mass)[::-1] if mass[i] > least]


def _log_mass(target: AbstractTarget, coordinates: Coordinates) -> float:
    """Around the centre of whitened coordinates; -inf where it is not finite."""
    mass = coordinates.log_volume - lowest_near(target, coordinates)
    return mass if np.isfinite(mass) else -np.inf


def lowest_near(target: AbstractTarget, coordinates: Coordinates) -> float:
    """The potential that a Newton step from the centre of whitened coordinates would lead to.

    No further down than a draw of a normal law is above its mode, twice.
    """
    centre = tree.freeze(coordinates.centre)
    value, gradient = potential_at(target, centre, flattened(centre))
    slope = coordinates.pulled_back(gradient)
    return value - min(0.5 * float(slope @ slope), float(coordinates.dimension))


def _tell(log: DecisionLog, mode: Minimum, start: Start, found: str, *, rows: bool) -> None:
    """The decisions, and a fault where the dtype is too coarse."""
    around = "typical draws lie around it" if start.typical else "typical draws lie elsewhere"
    if not start.smooth:
        around += "; the density stops at an edge near it"
    if rows and start.typical and start.virial > FEW_ROWS:
        around += "; a few rows decide, as it seems"
    log.decide("start", found, f"{mode.evaluations} gradients of all rows; {around}")
    coordinates, sizes = start.coordinates, start.coordinates.scales
    scales = f"scales {sizes.min():.2g} to {sizes.max():.2g}"
    log.decide("coordinates", _kind(coordinates), scales)
    dtype = tree.result_dtype(tree.freeze(coordinates.centre))
    grain = np.abs(flattened(coordinates.centre)) * float(jnp.finfo(dtype).eps)
    if start.typical and (grain > COARSEST * sizes).any():
        log.coarse = True
        log.faults.append(
            f"{dtype} resolves a component to no better than {np.max(grain / sizes):.2g} "
            "posterior sds; try jax_enable_x64, or subtract a constant from the parameter"
        )


def plain_coordinates(init: PyTree) -> Coordinates:
    """The position's own, as a matrix where there is room for one."""
    size = tree.size(tree.freeze(init))
    unit = np.eye(size) if size <= LARGEST_DENSE else np.ones(size)
    return Coordinates(init, on_device(unit, tree.result_dtype(tree.freeze(init))))


def _kind(coordinates: Coordinates) -> str:
    if coordinates.basis.ndim == 2:
        unit = np.array_equal(coordinates.basis, np.eye(coordinates.dimension))
        return "the position's own" if unit else "by the Hessian"
    if coordinates.low_rank is None:
        return "by the diagonal of the Fisher information"
    count = coordinates.low_rank.right.shape[1]
    directions = f"{count} directions" if count > 1 else "one"
    return f"by the curvature: a diagonal and the sharpest {directions}"


def _look_around(target: AbstractTarget, start: Start, key: PRNGKeyArray) -> Start:
    """The start, with what pairs of opposite draws of its normal law say of the density there."""
    coordinates = start.coordinates
    if not np.isfinite(coordinates.basis).all():
        return start._replace(typical=False)
    draws = generator(key).standard_normal((PLACES // 2, coordinates.dimension))

    frozen = tree.freeze(start.place)

    def potentials(places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = [potential_at(target, frozen, flat) for flat in coordinates.flats_at(places)]
        slopes = [coordinates.pulled_back(gradient) for _, gradient in found]
        return np.array([value for value, _ in found]), np.stack(slopes)

    middle = potentials(np.zeros((1, coordinates.dimension)))[0][0]
    places = np.concatenate([draws, -draws])
    values, slopes = potentials(places)
    finite = np.isfinite(values)
    if not (finite.any() and np.isfinite(middle)):
        return start._replace(smooth=False, typical=False)
    usual = RISE[0] + RISE[1] * coordinates.dimension
    typical = bool(np.median(np.abs(values[finite] - middle)) < usual)
    with np.errstate(invalid="ignore"):
        blind = places[(np.abs(values - middle) < usual) & ~np.isfinite(slopes).all(axis=1)]
    # A step so short that the gradient says what the potential changes by, but for rounding.
    nudged, _ = potentials((1.0 + NUDGE) * draws)
    with np.errstate(invalid="ignore"):  # where the density stops
        changes = nudged - values[: len(draws)]
        changes -= NUDGE * np.sum(slopes[: len(draws)] * draws, axis=1)
    known = np.abs(changes[np.isfinite(changes)])
    noise = float(np.median(known)) if typical and known.size else 0.0
    virial = np.max(np.mean(places[finite] * slopes[finite], axis=0))
    return start._replace(
        smooth=bool(finite.all()),
        typical=typical,
        noise=noise,
        virial=float(virial),
        blind=coordinates.flat_at(blind[0]) if len(blind) else None,
    )


def rounded(target: AbstractTarget, start: Start, *, few: bool, key: PRNGKeyArray) -> str:
    """That rounding spoils tests of proposals by all rows; "" where it does not.

    Args:
        target: with data or without.
        start: of whose potential something is known already.
        few: whether the rows are so few that more may be asked for.
        key: for the places that are looked at.
    """
    noise = start.noise
    if few and start.typical:
        noise = max(noise, _between_draws(target, start, key=key))
    return ROUNDED.format(noise) if noise > NOISE else ""


def _between_draws(target: AbstractTarget, start: Start, *, key: PRNGKeyArray) -> float:
    """The sd of the potential by rounding, as far as its changes over some sds tell; else 0.

    Large terms may cancel in the sum, and be rounded alike at places that are close. So the change
    from the centre to a draw of the normal law is compared with the integral of the slope, by
    Boole's rule where Simpson's agrees with it; the median over draws is not that of a step, which
    no slope explains, unless most lines cross it.
    """
    coordinates, frozen = start.coordinates, tree.freeze(start.place)
    left = []
    for draw in generator(key).standard_normal((PLACES // 2, coordinates.dimension)):
        places = coordinates.flats_at(np.linspace(0.0, 1.0, len(BOOLE))[:, None] * draw)
        values, gradients = zip(*(potential_at(target, frozen, x) for x in places), strict=True)
        slopes = np.array([coordinates.pulled_back(gradient) @ draw for gradient in gradients])
        change = BOOLE @ slopes
        if abs(change - np.array([1.0, 4.0, 1.0]) @ slopes[::2] / 6.0) < NOISE:
            left.append(abs(values[-1] - values[0] - change))
    known = 2 * len(left) >= PLACES // 2
    return float(np.median(left)) * 0.5**0.5 if known else 0.0


def _mode(
    target: AbstractTarget,
    init: PyTree,
    key: PRNGKeyArray,
    deadline: Deadline,
) -> Minimum:
    """From near the mode of a few rows, by L-BFGS in coordinates whitened where it stands.

    A valley takes few steps in these, and the gradient says how many posterior sds there are to go.
    Where the search comes to an end on a slope, Newton's method goes on.
    """
    key_rows, key_aside, *keys = split_key(key, 2 + REWHITENED)
    found = _roughly(target, init, key_rows, deadline)
    if not np.isfinite(found.potential):
        return found
    if not found.iterations:  # the start may be a saddle or a maximum
        found = _aside(target, init, found, key_aside, deadline)
    for key_round in keys:
        before = found
        found = _whitened(target, unflattened(init, found.position), key_round, deadline)
        found = _together(before, found)
        if found.converged or deadline.over or before.potential - found.potential < FALL:
            break
    few = tree.size(init) <= LARGEST_SECOND_ORDER
    if isinstance(target, Posterior) and few and not (found.converged or deadline.over):
        place = tree.freeze(unflattened(init, found.position))
        more = _together(found, newton(target, place, NEWTONS, deadline))
        if more.potential <= found.potential:
            found = more
    return found


def _roughly(
    target: AbstractTarget,
    init: PyTree,
    key: PRNGKeyArray,
    deadline: Deadline,
) -> Minimum:
    """A first descent, on a few rows where they are enough to come nearer to the mode of all."""
    if isinstance(target, Posterior) and target.num_data > WORTH * ROWS:
        few = OnRows(target, some_rows(target, key, ROWS))
        place = descent(few, init, FIRST, deadline=deadline).position
        start, end = (_point(target, init, x) for x in (flattened(init), place))
        return end._replace(iterations=1) if end.potential < start.potential else start
    return descent(target, init, FIRST, deadline=deadline)


def _point(target: AbstractTarget, like: PyTree, flat: np.ndarray) -> Minimum:
    """A place as the end of a search that has taken no step."""
    value, slope = potential_at(target, tree.freeze(like), flat)
    return Minimum(flat, value, float(np.linalg.norm(slope)), 0, 1, False)


def _aside(
    target: AbstractTarget, init: PyTree, found: Minimum, key: PRNGKeyArray, deadline: Deadline
) -> Minimum:
    """Where no step was taken: once more from near it."""
    aside = found.position + ASIDE * generator(key).standard_normal(found.position.shape)
    other = descent(target, tree.freeze(unflattened(init, aside)), FIRST, deadline=deadline)
    return _together(found, other) if other.potential < found.potential - FALL else found


def _whitened(
    target: AbstractTarget, place: PyTree, key: PRNGKeyArray, deadline: Deadline
) -> Minimum:
    """A descent in coordinates whitened by the curvature at its start."""
    coordinates = curvature_coordinates(target, place, key=key)
    if not np.isfinite(coordinates.basis).all():
        return _point(target, place, flattened(place))
    return descent(target, tree.freeze(place), WHITENED, coordinates=coordinates, deadline=deadline)


def _together(first: Minimum, then: Minimum) -> Minimum:
    """The end of the second search, with the work of both."""
    return then._replace(
        iterations=first.iterations + then.iterations,
        evaluations=first.evaluations + then.evaluations,
    )
