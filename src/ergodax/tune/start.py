"""Where chains begin, and in what coordinates."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.driver.compile import compiled_at
from ergodax.target.base import AbstractTarget
from ergodax.target.minimise import Minimum
from ergodax.target.mode import find_mode
from ergodax.target.posterior import Posterior
from ergodax.tune.account import Account
from ergodax.tune.coordinates import Coordinates, flattened, in_coordinates, unflattened
from ergodax.tune.estimator import LARGEST_SECOND_ORDER
from ergodax.tune.host import generator, on_device
from ergodax.tune.modes import Descents, descent, other_modes, potential_and_gradient
from ergodax.tune.newton import newton
from ergodax.tune.scale import (
    LARGEST_DENSE,
    LARGEST_LOW_RANK,
    curvature_coordinates,
    round_coordinates,
)

ITERATIONS = {False: 500, True: 60}  # of L-BFGS; where Newton's method can go on, less
NEWTONS = 60  # iterations of that
HALVINGS = 10  # of a start that lies where the density is not finite
ASIDE = 0.1  # in the position's own units
FALL = 0.1  # in potential, from a place that is no mode
COARSEST = 0.1  # the rounding of a component, in its sds


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
    target: AbstractTarget, init: PyTree, account: Account, key: PRNGKeyArray
) -> tuple[PyTree, Coordinates]:
    """The mode and whitened coordinates near it, or `init` and plain ones where there is none.

    Args:
        target: with data or without.
        init: where the search for the mode begins.
        account: is told.
        key: for rows and draws.
    """
    with account.timing("mode"):
        mode = _mode(target, tree.freeze(init, "init"), key)
        if mode.converged and not mode.iterations:
            mode = _no_saddle(target, tree.freeze(init), mode, key)
    ok = mode.converged
    finite = bool(np.isfinite(np.append(mode.position, mode.potential)).all())
    account.decide(
        "start",
        "the mode" if ok else ("where the search for the mode stopped" if finite else "init"),
        f"{mode.iterations} iterations, gradient norm {mode.gradient_norm:.3g}",
    )
    with account.timing("scale"):
        centre = unflattened(init, mode.position) if finite else init
        coordinates = round_coordinates(target, centre, key=key)
    if not np.isfinite(coordinates.basis).all():
        account.decide("coordinates", "the position's own", "the curvature is not finite")
        return init, Coordinates(init, jnp.ones(coordinates.dimension))
    sizes = coordinates.scales
    scales = f"scales {sizes.min():.2g} to {sizes.max():.2g}"
    account.decide("coordinates", f"by the {_kind(coordinates)}", scales)
    dtype = tree.result_dtype(tree.freeze(coordinates.centre))
    grain = np.abs(flattened(coordinates.centre)) * float(jnp.finfo(dtype).eps)
    if (grain > COARSEST * sizes).any():
        account.faults.append(
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
        found = _round_descent(target, init, key)
    else:
        found = descent(target, init, ITERATIONS[few])
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


def _round_descent(target: AbstractTarget, init: PyTree, key: PRNGKeyArray) -> Minimum:
    """A descent in coordinates that are round at its start, so that a valley takes few steps."""
    coordinates = curvature_coordinates(target, tree.thaw(init), key=key)
    if not np.isfinite(coordinates.basis).all():
        return descent(target, init, ITERATIONS[False])
    origin = on_device(np.zeros(coordinates.dimension), coordinates.basis.dtype)
    found = descent(in_coordinates(target, coordinates), tree.freeze(origin), ITERATIONS[False])
    place = coordinates.position(on_device(found.position, origin.dtype))
    return found._replace(position=flattened(place))


def _no_saddle(target: AbstractTarget, init: PyTree, found: Minimum, key: PRNGKeyArray) -> Minimum:
    """Where no step was taken, the start may be a saddle or a maximum: once more from beside it."""
    aside = ASIDE * generator(key).standard_normal(found.position.shape)
    other = _mode(target, tree.freeze(unflattened(init, found.position + aside)), key)
    return _together(found, other) if other.potential < found.potential - FALL else found


def _together(first: Minimum, then: Minimum) -> Minimum:
    """The end of the second search, with the work of both."""
    return then._replace(
        iterations=first.iterations + then.iterations,
        evaluations=first.evaluations + then.evaluations,
    )


def all_modes(
    target: AbstractTarget, coordinates: Coordinates, descents: Descents, account: Account
) -> list[PyTree]:
    """The positions of all modes where there are several, else none.

    Args:
        target: with data or without.
        coordinates: round ones.
        descents: of `scout`.
        account: is told.
    """
    others = other_modes(target, coordinates, descents)
    if not others:
        return []
    account.decide(
        "modes",
        f"chains begin at {len(others) + 1}",
        f"the nearest other is {min(map(np.linalg.norm, others)):.3g} posterior sds from the first",
    )
    places = on_device([np.zeros(coordinates.dimension), *others], coordinates.basis.dtype)
    return [coordinates.position(u) for u in places]


def at_modes(
    starts: Float[Array, "chains d"], coordinates: Coordinates, modes: Sequence[PyTree]
) -> Float[Array, "chains d"]:
    """The starts, moved from the centre to the modes in turn where there are several.

    Args:
        starts: u of each chain.
        coordinates: of u.
        modes: what `all_modes` returns.
    """
    if not modes:
        return starts
    centres = jnp.stack([coordinates.of(mode) for mode in modes])
    return starts + centres[np.arange(len(starts)) % len(modes)].astype(starts.dtype)


def inside(
    target: AbstractTarget, centres: Float[Array, "chains d"], offsets: Float[Array, "chains d"]
) -> Float[Array, "chains d"]:
    """Centres + offsets, each offset halved until the potential and its gradient are finite.

    Args:
        target: of u.
        centres: of each chain.
        offsets: from there.
    """
    look = compiled_at(jax.vmap(lambda u: tree.all_finite(target.value_and_gradient(u))))
    middle, steps = np.asarray(centres), np.asarray(offsets)
    for _ in range(HALVINGS):
        inside = np.asarray(look(jax.device_put(middle + steps)))
        if inside.all():
            break
        steps = np.where(inside[:, None], steps, 0.5 * steps)
    return jax.device_put(middle + steps)
