"""Mass so close to a bound that the numbers of a dtype do not tell it from the bound."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PyTree

from ergodax import tree
from ergodax.stats.draws import component_names, flat_components
from ergodax.target.base import AbstractTarget
from ergodax.target.constrained import Constrain
from ergodax.transform import Interval, Simplex, is_held
from ergodax.tune.reparametrisation import Reparametrise

PART = 0.25  # of the accuracy, that a mean or an sd may be off by this without a word
AT_END = 1.5  # units: what is nearer is rounded to the end
NEARER = 32.0  # times at most, from one zone before the end to the next
FEWEST = 16  # draws in a zone, that tell how fast the mass falls
PILED = (
    "{name} piles up at its bound {bound:g}, closer to it than {precision} precision tells: about "
    "{share:.2g} of the posterior is there. Write the model in the logarithm of the distance from "
    "the bound, and take that as the parameter, or give it a prior without mass there"
)


class End(NamedTuple):
    """A finite bound as a dtype has it, and the least distance that the map tells from it."""

    bound: float
    unit: float


def ends_of(transform: Interval | Simplex, dtype: Any) -> list[End]:
    """The ends of a constraint, whose map never gives a bound but the number next to it."""
    if isinstance(transform, Simplex):
        return [End(0.0, float(jnp.finfo(dtype).tiny))]  # where one is near 1, the others tell it
    infinite = jnp.asarray([-np.inf, np.inf], dtype)
    last = np.asarray(transform.forward(infinite), np.float64)
    bounds = np.asarray([transform.lower, transform.upper], dtype).astype(np.float64)
    return [
        End(float(bound), float(abs(near - bound)))
        for bound, near in zip(bounds, last, strict=True)
        if np.isfinite(bound)
    ]


def share_beyond(x: Float[np.ndarray, " draws"], end: End) -> float:
    """The share of the posterior that a dtype does not tell from the bound, by draws before it.

    The draws at the end are too few: the user's density stands still there, and falls in the
    unconstrained number as the Jacobian alone does. Before it the mass within a distance goes as a
    power of the distance. So a zone that is nearer by a factor has r times the mass of the zone
    before it, and what is beyond the nearest, with mass m, has m (r + r^2 + ...) = m r / (1 - r).

    Example:
        >>> p = np.random.default_rng(0).beta(0.1, 1.0, 100_000)
        >>> round(share_beyond(p, End(0.0, 1e-6)), 1), round(1e-6**0.1, 1)
        (0.3, 0.3)
    """
    # Cut off where no zone reaches: in units of 1e-323 a distance of one is no number.
    most = 2.0 * AT_END * NEARER**2 * end.unit
    distance = np.minimum(np.abs(x.astype(np.float64) - end.bound), most) / end.unit
    # Farther away than half of the draws there is no power law, which is that of a tail.
    nearer = min(NEARER, max(1.0, float(np.median(distance)) / AT_END) ** 0.5)
    edges = AT_END * nearer ** np.arange(3)
    at_end, near, far = np.diff([0, *(np.sum(distance <= edge) for edge in edges)]).tolist()
    least = at_end / distance.size
    if min(near, far) < FEWEST:
        return least
    if near >= far:
        return 1.0
    beyond = near / distance.size * near / (far - near)
    return max(least, beyond / (beyond + 1.0 - least))


def moved(x: Float[np.ndarray, " draws"], bound: float, share: float) -> float:
    """By how many sds the mean, or what part of itself the sd, moves with such a share at a bound.

    Of a share w at a distance of q sds from the mean: the mean moves by w q, and the variance is
    (1 - w)(1 + w q^2) times what it was.
    """
    sd = float(np.std(x, dtype=np.float64))
    if not sd > 0.0:
        return share
    q = (bound - float(np.mean(x, dtype=np.float64))) / sd
    return max(share * abs(q), abs(1.0 - np.sqrt((1.0 - share) * (1.0 + share * q**2))))


def piled_up(target: AbstractTarget, draws: PyTree, accuracy: float) -> str:
    """That more than a negligible share of a parameter is lost at a bound; "" where none is.

    It is negligible where a mean or an sd moves by less than a quarter of the accuracy.

    Args:
        target: of unconstrained numbers.
        draws: as the user wrote the position, with leading axes chains and draws.
        accuracy: the error that is small enough, in posterior sds.
    """
    for name, leaf, transform in _bounded(target, draws):
        columns = flat_components(leaf).reshape(-1, int(np.prod(leaf.shape[2:], dtype=int)))
        for end in ends_of(transform, leaf.dtype):
            for component, x in zip(component_names(name, leaf), columns.T, strict=True):
                share = share_beyond(x, end)
                if moved(x, end.bound, share) > PART * accuracy:
                    precision = "double" if leaf.dtype.itemsize == 8 else "single"
                    told = {"name": component, "bound": end.bound, "share": share}
                    return PILED.format(precision=precision, **told)
    return ""


def _bounded(
    target: AbstractTarget, draws: PyTree
) -> Iterator[tuple[str, np.ndarray, Interval | Simplex]]:
    """The name, the draws and the constraint of each leaf that has bounds."""
    constrain = getattr(target, "constrain", None)
    if isinstance(constrain, Reparametrise):
        constrain = constrain.constrain
    if not isinstance(constrain, Constrain):
        return
    structure = constrain.structure
    like = structure.unflatten([0.0] * structure.num_leaves)
    transforms = [
        node.transform if is_held(node) else None for node in jax.tree.leaves(like, is_leaf=is_held)
    ]
    leaves = jax.tree_util.tree_leaves_with_path(tree.freeze(draws))
    for (path, leaf), transform in zip(leaves, transforms, strict=True):
        if isinstance(transform, Interval | Simplex):
            yield tree.path_name(path) or "position", np.asarray(leaf), transform
