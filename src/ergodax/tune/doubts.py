"""Why draws may be wrong though they look right: edges, rows that batches miss, no integral.

Throughout, `target` is with data or without, `draws` are positions with leading axes chains and
draws, `coordinates` are whitened, `init` is where the search for the mode began, and `key` chooses
what is looked at.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.stats.draws import component_names
from ergodax.target.base import AbstractTarget
from ergodax.target.posterior import Posterior
from ergodax.tune.descent import potential_and_gradient, potential_at
from ergodax.tune.host import generator, on_device
from ergodax.tune.reparametrisation import ReparametrisedTarget
from ergodax.tune.start import Start
from ergodax.tune.whitening import Coordinates, flattened

FEWEST = 16  # draws that all rows look at
TOTAL = 200  # draws times dimensions: five standard deviations of a normal law's are 0.5 then
DISAGREES = 0.5
PROBES = 8  # pairs of places around a draw
# Of the curvature at draws:
PLACES, PRODUCTS = 8, 3
ASIDE = 0.01  # posterior sds
UNSTABLE, NARROW = 2.0, 4.0  # of h^2 times the curvature, and of the curvature over the usual one
LIMIT = 3.0  # of h^2 times the curvature, so near to 4 that the density seems to go on beyond
LESS, HALF = 0.25, 0.5  # times the step, in the one case and in the other
# Of the look along rays:
FAR = 1e2, 1e4  # lengths
FURTHER = 1e8, 1e12  # along one component, in which nothing cancels: a density may be as wide
ONE = 1.0 + 1e-5  # the rise, in log distance, of the last density without an integral; rounded
PLATEAU = 30.0  # in potential above the mode, below which chains come to it
FLATTEST = 2  # directions
NAMED = 4  # components of a direction
LARGE = 0.3  # of the largest component of a direction: those that are named

RAYS = 4  # at random, along which it is seen whether the density grows
MOST_LOST = 0.01  # a share of the draws
GROWS = (
    "the density grows without end, in all directions or most: is its sign wrong? ex.Target takes "
    "the potential, which is minus the log density; ex.Posterior takes log densities"
)
NO_GRADIENT = (
    "the gradient with respect to {names} is not finite in places where the density is, such as "
    "{place}, and no chain comes there: it may be that of a branch of jnp.where which is not taken "
    "there. Give that branch arguments at which it has a gradient"
)
IMPROPER = (
    "the density does not fall off in the direction of {names}: the posterior is improper, and has "
    "no mean. Give these parameters a prior that is proper"
)
LOST = (
    "the density does not fall off as {ways}, down to where other parameters are so narrow that "
    "rounding decides: the posterior is improper, or nearly. Give it a prior that falls off there"
)
STANDING = (
    "{still} of {chains} chains stand still: none of their trajectories was accepted, as where "
    "rounding spoils the potential, or where the density stops; try jax_enable_x64, or another init"
)


def doubt_of_draws(
    posterior: Posterior,
    draws: PyTree,
    potentials: Any,
    *,
    key: PRNGKeyArray,
    modes: Sequence[PyTree] = (),
) -> str:
    """Why draws by batches are wrong, by their own potentials and by all rows; "" if they are not.

    Args:
        posterior: with data in memory.
        draws: positions with leading axes chains and draws.
        potentials: of them, as the batches saw them.
        key: for which draws all rows are asked.
        modes: where there are several; chains may move between them, and then the temperature
            varies too much to tell.
    """
    if not np.isfinite(potentials).all():
        return "the density stops at an edge, over which its gradient does not keep the chains"
    temperature = whole_temperature(posterior, draws, key=key)
    if not np.isfinite(temperature):
        return "the density of all rows is zero, or not finite, at some of the draws"
    if not modes and abs(temperature - 1.0) > DISAGREES:
        return (
            f"by all rows the temperature of the draws is {temperature:.3g} and not 1, so a few "
            "rows decide that batches miss"
        )
    return ""


def whole_temperature(posterior: Posterior, draws: PyTree, *, key: PRNGKeyArray) -> float:
    """The mean over some draws of (x - c) . grad U(x) / d, U of all rows: 1 if the draws are right.

    It holds for every density without a boundary; the variance for a normal one is 2 / d. An
    observation of extreme curvature may be in no batch of a short run, with every step size alike:
    a bias measured by comparing steps does not see it. Draws that it forbids make this large. It is
    NaN where U is not finite at one of the draws.

    Args:
        posterior: with data in memory.
        draws: positions with leading axes chains and draws; c is the mean of the chain.
        key: for which of them.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> x = jnp.linspace(-1.0, 3.0, 1000)
        >>> model = ex.Posterior(lambda m: -0.5 * m**2, lambda m, x: -0.5 * (x - m) ** 2, x)
        >>> z = jax.random.normal(jax.random.key(0), (4, 500)) / 1001**0.5  # of the posterior's sd
        >>> told = lambda draws: ex.tune.whole_temperature(model, draws, key=jax.random.key(1))
        >>> round(told(1.0 + z)), round(told(1.0 + 2.0 * z))  # right ones, and twice as wide
        (1, 4)
    """
    leaves, structure = jax.tree.flatten(tree.freeze(draws))
    chains, count = leaves[0].shape[:2]
    d = sum(math.prod(leaf.shape[2:]) for leaf in leaves)
    rng, total = generator(key), 0.0
    some = min(chains * count, max(FEWEST, TOTAL // d))
    leaves = [np.asarray(leaf) for leaf in leaves]
    centres = [leaf.mean(axis=1, dtype=np.float64) for leaf in leaves]
    for number in rng.choice(chains * count, some, replace=False):
        chain, draw = divmod(int(number), count)
        parts = [leaf[chain, draw] for leaf in leaves]
        position = structure.unflatten([on_device(part, part.dtype) for part in parts])
        potential, gradient = potential_and_gradient(posterior, position)
        offsets = [np.ravel(x - c[chain]) for x, c in zip(parts, centres, strict=True)]
        total += float(np.concatenate(offsets) @ flattened(gradient))
        total += 0.0 if np.isfinite(potential) else np.nan
    return total / (some * d)


def stops_near(
    target: AbstractTarget,
    coordinates: Coordinates,
    places: Float[Array, "chains d"],
    *,
    key: PRNGKeyArray,
) -> bool:
    """Whether the density stops, or is not finite, within about an sd of some of the u of draws."""
    rng, centre = generator(key), coordinates.centre
    around = [
        np.asarray(u, np.float64) + sign * step
        for u in places
        for step in rng.standard_normal((PROBES, coordinates.dimension))
        for sign in (1.0, -1.0)
    ]
    return not all(np.isfinite(_potential(target, centre, coordinates.flat_at(u))) for u in around)


def narrowness(
    target: AbstractTarget,
    coordinates: Coordinates,
    draws: PyTree,
    gradient_norms: Float[np.ndarray, "chains draws"],
    *,
    key: PRNGKeyArray,
) -> tuple[float, float]:
    """The curvature of the potential at its largest, and as it mostly is, over the draws.

    A leapfrog of step h is unstable where h^2 times the curvature is above 4, so trajectories turn
    back from there, and neither R-hat nor a divergence tells. The curvature is that of the
    direction which a few multiplications of the gradient by the Hessian lead to, by differences.

    Args:
        target: with data or without.
        coordinates: whitened.
        draws: positions with leading axes chains and draws.
        gradient_norms: of the draws in the coordinates; where they are largest is looked first.
        key: for the others that are looked at.
    """
    norms = np.ravel(gradient_norms)
    steepest = np.argsort(-norms)[:PLACES]
    usual = generator(key).choice(norms.size, min(PLACES, norms.size), replace=False)
    which = np.concatenate([steepest, usual])
    flat = lambda x: np.asarray(x).reshape(-1, *np.shape(x)[2:])  # noqa: E731
    rows = jax.tree.map(lambda x: flat(x)[which], tree.freeze(draws))
    centre = tree.freeze(coordinates.centre)

    def gradient(u: np.ndarray) -> np.ndarray:
        return coordinates.pulled_back(potential_at(target, centre, coordinates.flat_at(u))[1])

    def curvature(u: np.ndarray) -> float:
        here, largest = gradient(u), 0.0
        direction = here
        for _ in range(PRODUCTS):
            direction = direction / max(np.linalg.norm(direction), np.finfo(float).tiny)
            direction = (gradient(u + ASIDE * direction) - here) / ASIDE
            largest = float(np.linalg.norm(direction))
        return largest

    found = [curvature(np.asarray(u, np.float64)) for u in coordinates.of_rows(rows)]
    finite = np.nan_to_num(found, nan=0.0, posinf=0.0)  # beside an edge
    return float(finite[: len(steepest)].max()), float(np.median(finite[len(steepest) :]))


def shortening(step: float, top: float, usual: float) -> float:
    """By which a step is too long for places that draws come to, or for some beyond them; else 1.

    No trajectory comes to where h^2 times the curvature is above 4. Draws that lie up to near that
    limit say that the density goes on there, and so do some that lie half as far, where it curves
    far more than elsewhere. On a normal law h^2 times the curvature is 2.4 at most.

    Args:
        step: h.
        top: the largest curvature at draws, as `narrowness` finds it.
        usual: that at most of them.

    Example:
        >>> shortening(1.1, 1.0, 1.0), shortening(0.1, 250.0, 1.0), shortening(1.0, 3.5, 1.0)
        (1.0, 0.25, 0.5)
    """
    if step**2 * top > UNSTABLE and top > NARROW * usual:
        return LESS
    return HALF if step**2 * top > LIMIT else 1.0


def standing_still(draws: PyTree) -> str:
    """That some chains have not moved at all; "" where all have."""
    moved = [
        np.any(np.asarray(x) != np.asarray(x)[:, :1], axis=tuple(range(1, np.ndim(x))))
        for x in jax.tree.leaves(tree.freeze(draws))
    ]
    still = int(np.sum(~np.any(moved, axis=0)))
    return STANDING.format(still=still, chains=len(moved[0])) if still else ""


def lost_in_rounding(
    target: AbstractTarget, coordinates: Coordinates, draws: PyTree, *, diverged: bool = False
) -> str:
    """That many draws are where effects have no width but by rounding; "" where few are.

    Args:
        target: in numbers whose scale depends on no others; of another kind nothing is told.
        coordinates: of its positions.
        draws: positions with leading axes chains and draws.
        diverged: whether many trajectories did, so that rounding is felt where it begins.
    """
    if not isinstance(target, ReparametrisedTarget):
        return ""
    u = coordinates.of_chains(draws).reshape(-1, coordinates.dimension)
    rows, names = coordinates.flats_at(u), names_of(coordinates.centre)
    lost = target.lost(rows, fine=diverged)
    if lost.mean() < MOST_LOST:
        return ""
    there = rows[lost].mean(axis=0) > rows.mean(axis=0)
    ways = [f"{names[k]} {'grows' if there[k] else 'decreases'}" for k in target.causes]
    return LOST.format(ways=" and ".join(ways))


def doubt_of_density(
    target: AbstractTarget, init: PyTree, start: Start, *, key: PRNGKeyArray
) -> str:
    """What no draws can be right with: no integral, or no gradient; "" where nothing is seen."""
    if _grows(target, start.mode, key=key):
        return GROWS
    names = improper_direction(target, init, start.mode, start.coordinates)
    return IMPROPER.format(names=names) if names else _without_gradient(target, start)


def _grows(target: AbstractTarget, mode: PyTree, *, key: PRNGKeyArray) -> bool:
    """Whether the density goes on growing along half of some rays or more, from the mode on.

    It may grow along a line and be proper, as towards effects that are all zero; no random ray
    leads there.
    """
    origin = flattened(mode)
    scale, begin = max(1.0, float(np.abs(origin).max())), _potential(target, mode, origin)

    def falls(ray: np.ndarray) -> bool:
        last = begin
        for length in FAR + FURTHER:
            value = _potential(target, mode, origin + length * scale * ray)
            if not (value < last or value == last == -np.inf):
                return False
            last = value
        return True

    rays = generator(key).standard_normal((RAYS, origin.size))
    return 2 * sum(falls(ray) for ray in rays) >= RAYS


def _without_gradient(target: AbstractTarget, start: Start) -> str:
    """That there are likely places where the gradient is not finite; "" where there are none."""
    if start.blind is None:
        return ""
    names, flat = names_of(start.place), start.blind
    _, gradient = potential_at(target, tree.freeze(start.place), flat)
    lost = np.flatnonzero(~np.isfinite(gradient))[:NAMED]
    place = ", ".join(f"{names[k]} = {flat[k]:.3g}" for k in lost)
    return NO_GRADIENT.format(names=", ".join(names[k] for k in lost), place=place)


def improper_direction(
    target: AbstractTarget, init: PyTree, mode: PyTree, coordinates: Coordinates
) -> str:
    """The components along which the density does not fall off; "" where it does.

    A density has an integral only if it falls faster than one over the distance. The potential is
    looked at far out on the line from `init` through the mode, where the search for one at infinity
    goes, from there in the components that it went farthest in (one level of a factor may have no
    end, and the others have), and to both sides of the centre in the directions that the curvature
    tells least of.
    """
    centre, top, begin = (flattened(x) for x in (coordinates.centre, mode, init))
    rays = [(top, _lengthened(top - begin, coordinates))] if (top != begin).any() else []
    went = top - begin
    farthest = [k for k in np.argsort(-np.abs(went))[:FLATTEST] if went[k] != 0.0]
    rays += [(top, np.sign(went[k]) * np.eye(1, went.size, k)[0]) for k in farthest]
    rays += [(centre, sign * ray) for ray in _flattest(coordinates) for sign in (1.0, -1.0)]
    for origin, ray in rays:
        lengths = FAR + (FURTHER if np.count_nonzero(ray) == 1 else ())
        values = [_potential(target, init, origin + length * ray) for length in lengths]
        with np.errstate(invalid="ignore"):  # NaN where both are infinite, which is neither
            rises = np.diff(values) / np.diff(np.log(lengths))
        plateau = _potential(target, init, origin) + PLATEAU
        if abs(rises[0]) < ONE and not (rises >= ONE).any() and values[0] < plateau:
            names = names_of(init)
            size = np.abs(ray)
            order = [k for k in np.argsort(-size)[:NAMED] if size[k] > LARGE * size.max()]
            return ", ".join(names[k] for k in sorted(order))
    return ""


def _lengthened(ray: Float[np.ndarray, " d"], coordinates: Coordinates) -> np.ndarray:
    """The ray, of length 1 at least, and of one posterior sd: `init` may be next to the mode."""
    basis = np.asarray(coordinates.basis, np.float64)
    u = np.linalg.lstsq(basis, ray)[0] if basis.ndim == 2 else ray / basis
    lengths = np.linalg.norm(ray), np.linalg.norm(u)
    return ray / min(1.0, *(length for length in lengths if length > 0.0))


def _flattest(coordinates: Coordinates) -> list[Float[np.ndarray, " d"]]:
    """The longest columns of L, and of length 1 at least."""
    basis = np.asarray(coordinates.basis, np.float64)
    lengths = np.linalg.norm(basis, axis=0) if basis.ndim == 2 else np.abs(basis)
    rays = []
    for k in np.argsort(-lengths)[:FLATTEST]:
        column = basis[:, k] if basis.ndim == 2 else basis[k] * np.eye(1, len(basis), k)[0]
        # Where the density has no bound, the curvature tells of no place that is far.
        rays.append(column / min(lengths[k], 1.0))
    return rays


def _potential(target: AbstractTarget, like: PyTree, flat: Float[np.ndarray, " d"]) -> float:
    return potential_at(target, tree.freeze(like), flat)[0]


def names_of(position: PyTree) -> list[str]:
    """Of the components of the raveled position, as in the table of errors."""
    leaves = jax.tree_util.tree_leaves_with_path(tree.freeze(position))
    return [
        name
        for path, leaf in leaves
        for name in component_names(
            tree.path_name(path) or "position", np.empty((1, 1, *leaf.shape))
        )
    ]
