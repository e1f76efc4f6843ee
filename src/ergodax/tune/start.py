"""Where chains begin, and in what coordinates."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ergodax import tree
from ergodax.target.base import AbstractTarget
from ergodax.target.mode import find_mode
from ergodax.tune.account import Account
from ergodax.tune.coordinates import Coordinates
from ergodax.tune.modes import other_modes
from ergodax.tune.scale import round_coordinates

HALVINGS = 10  # of a start that lies where the density is not finite
COARSEST = 0.1  # the rounding of a component, in its sds


def check_start(target: AbstractTarget, init: PyTree) -> None:
    """Fail where the target can't be evaluated at `init`, or is not finite there.

    Raises:
        TypeError: a position that is not floating point, or a potential that is not a number.
        ValueError: shapes that do not fit, or a density that is not finite.
    """
    position = tree.freeze(init, "init")
    target.check(position)
    value, gradient = target.value_and_gradient(position)
    if not (bool(jnp.isfinite(value)) and bool(tree.all_finite(gradient))):
        raise ValueError(
            f"init: the log density there is {-float(value):g}, and it and its gradient must be "
            "finite. Try a position inside the support, or unconstrained parameters."
        )


def starting_coordinates(
    target: AbstractTarget, init: PyTree, account: Account, key: Array
) -> Coordinates:
    """Round coordinates at the mode, or plain ones where there is none.

    Args:
        target: with data or without.
        init: where the search for the mode begins.
        account: is told.
        key: for rows and draws.
    """
    with account.timing("mode"):
        mode = jax.block_until_ready(find_mode(target, init))
    ok = bool(mode.converged)
    finite = bool(jnp.isfinite(mode.potential)) and bool(
        tree.all_finite(tree.freeze(mode.position))
    )
    account.decide(
        "start",
        "the mode" if ok else ("where L-BFGS stopped" if finite else "init"),
        f"{int(mode.iterations)} iterations, gradient norm {float(mode.gradient_norm):.3g}",
    )
    with account.timing("scale"):
        centre = mode.position if finite else init
        coordinates = round_coordinates(target, centre, key=key)
    if not bool(jnp.all(jnp.isfinite(coordinates.basis))):
        coordinates = Coordinates(init, jnp.ones(coordinates.dimension))
        account.decide("coordinates", "the position's own", "the curvature is not finite")
        return coordinates
    kind = (
        "averaged Hessian" if coordinates.basis.ndim == 2 else "diagonal of the Fisher information"
    )
    basis = np.asarray(coordinates.basis, np.float64)
    sizes = np.linalg.norm(basis.reshape(len(basis), -1), axis=-1)
    account.decide(
        "coordinates", f"by the {kind}", f"scales {sizes.min():.2g} to {sizes.max():.2g}"
    )
    flat, _ = tree.ravel(tree.freeze(coordinates.centre))
    grain = np.abs(np.asarray(flat, np.float64)) * float(jnp.finfo(flat.dtype).eps)
    if (grain > COARSEST * sizes).any():
        account.faults.append(
            f"{flat.dtype} resolves a component to no better than {np.max(grain / sizes):.2g} "
            "posterior sds; try jax_enable_x64, or subtract a constant from the parameter"
        )
    return coordinates


def all_modes(
    target: AbstractTarget, init: PyTree, coordinates: Coordinates, account: Account, key: Array
) -> list[PyTree]:
    """The positions of all modes where there are several, else none.

    Args:
        target: with data or without.
        init: around which to search.
        coordinates: round ones.
        account: is told.
        key: for the search.
    """
    with account.timing("modes"):
        others = other_modes(target, init, coordinates, key=key)
    if not others:
        return []
    zero = jnp.zeros(coordinates.dimension, coordinates.basis.dtype)
    far = min(float(jnp.linalg.norm(u)) for u in others)
    account.decide(
        "modes",
        f"chains begin at {len(others) + 1}",
        f"the nearest other is {far:.3g} posterior sds from the first",
    )
    return [coordinates.position(u) for u in (zero, *others)]


def at_modes(
    starts: Float[Array, "chains d"], coordinates: Coordinates, modes: list[PyTree]
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
    look = eqx.filter_jit(jax.vmap(lambda u: tree.all_finite(target.value_and_gradient(u))))
    for _ in range(HALVINGS):
        inside = look(centres + offsets)
        if bool(jnp.all(inside)):
            break
        offsets = jnp.where(inside[:, None], offsets, 0.5 * offsets)
    return centres + offsets
