"""Other modes than the one that was found first."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.target.base import AbstractTarget
from ergodax.target.mode import find_mode
from ergodax.target.posterior import Posterior
from ergodax.tune.coordinates import Coordinates
from ergodax.tune.scale import some_rows

SPREADS = 1.0, 4.0, 16.0, 64.0  # of the scouts around init, in the position's own units
PAIRS = 2  # of opposite scouts, at each spread
ITERATIONS = 100
ROWS = 2_000  # that stand for all
FAR = 6.0  # posterior sds at which a mode is another one
WORSE = 20.0  # in potential: a mode that is worse by more has no weight


class _OnRows(AbstractTarget):
    """A posterior on some of its rows."""

    posterior: Posterior
    rows: PyTree

    def potential(self, position: PyTree) -> Float[Array, ""]:
        return self.posterior.potential_on(position, self.rows)


def other_modes(
    target: AbstractTarget, init: PyTree, coordinates: Coordinates, *, key: PRNGKeyArray
) -> list[Float[Array, " d"]]:
    """Modes far from the centre of the coordinates, found by descents from around `init`.

    Pairs of descents begin at init +- s N(0, I) with s from 1 to 64. Where one ends more than six
    posterior sds from the centre, at a potential that is no more than 20 higher, that is another
    mode; a sampler that starts at one mode alone might never see it, and its R-hat would not
    tell. A mode into which no descent leads is not found.

    Args:
        target: with data, of which 2,000 rows stand for all, or without.
        init: around which to begin.
        coordinates: round ones.
        key: for rows and descents.

    Returns:
        The u of each.
    """
    key_rows, key_starts = jax.random.split(key)
    rows = some_rows(target, key_rows, ROWS)
    easy, share = target, 1.0
    if isinstance(target, Posterior):
        easy = _OnRows(target, rows)
        share = min(1.0, ROWS / target.num_data)  # of the rows: so much flatter is `easy`
    flat, unravel = tree.ravel(tree.freeze(init, "init"))
    shape = PAIRS * len(SPREADS), flat.size
    steps = jnp.repeat(jnp.asarray(SPREADS, flat.dtype), PAIRS)[:, None]
    steps = steps * jax.random.normal(key_starts, shape, flat.dtype)
    starts = flat[None, :] + jnp.concatenate([steps, -steps])
    descents = _descend(easy, target, coordinates, jax.vmap(unravel)(starts))
    ends, values = (np.asarray(x, np.float64) for x in descents)
    centre = float(_potential(target, coordinates.position(jnp.zeros(coordinates.dimension))))
    found: list[np.ndarray] = []
    for u, value in sorted(zip(ends, values, strict=True), key=lambda pair: float(pair[1])):
        if not (np.isfinite(u).all() and value < centre + WORSE + u.size / share):
            continue
        seen = [np.zeros_like(u), *found]
        if min(np.linalg.norm(u - v) for v in seen) > (FAR + np.sqrt(u.size)) / np.sqrt(share):
            found.append(u)
    return [jnp.asarray(u, coordinates.basis.dtype) for u in found]


@eqx.filter_jit
def _potential(target: AbstractTarget, position: PyTree) -> Float[Array, ""]:
    return target.potential(tree.freeze(position))


@eqx.filter_jit
def _descend(
    easy: AbstractTarget, target: AbstractTarget, coordinates: Coordinates, starts: PyTree
) -> tuple[Float[Array, "scouts d"], Float[Array, " scouts"]]:
    """The u of the ends, and the potential there."""

    def one(start: PyTree) -> tuple[Array, Array]:
        end = find_mode(easy, start, max_iterations=ITERATIONS).position
        return coordinates.of(end), target.potential(tree.freeze(end))

    return jax.vmap(one)(starts)
