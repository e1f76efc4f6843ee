"""A target of other numbers: parameters in units that follow from other parameters.

The effects of a hierarchy are as wide as their sd lets them be. Where that sd is unknown no step
size suits all places: the density is a funnel. The number z in effect = mean + scale z is about
standard normal at every place (the non-centred form, and all forms between it and the centred one).
"""

from collections.abc import Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from ergodax import tree
from ergodax.target.base import AbstractTarget
from ergodax.tune.host import on_device

NAMED = 3  # parameters
ROUNDINGS = 10.0  # of a number, from which on differences are not all noise
FINE = 1e3  # from which on they are good to a thousandth


class ConditionalScales(eqx.Module):
    """The map x_i = m_i + exp(-f_i / 2) z_i, with m and f functions of components that stay.

    f = log(exp a + exp b), with a and b linear in the drivers of x_i: its precision is that of the
    prior plus that of the data, and each is a power of scales whose logarithms are drivers. With
    w = exp(a - f), the share of the first, m is linear in the partners of x, with the weights w,
    1 - w and sqrt(w (1 - w)): an average of what prior and data say.

    Args:
        drivers: components on which scales depend.
        own: a component on which the scale of this one depends besides.
        partners: components on which means depend.
        levels: a and b where all drivers are 0; -log 2 for components that stay.
        slopes: of a and b, with the drivers.
        own_slopes: likewise, with its own.
        means: coefficients of 1 and of each partner, for each weight and component.
    """

    drivers: Int[Array, " k"]
    own: Int[Array, " d"]
    partners: Int[Array, " l"]
    levels: Float[Array, "2 d"]
    slopes: Float[Array, "2 d k"]
    own_slopes: Float[Array, "2 d"]
    means: Float[Array, "3 d l+1"]

    @property
    def changed(self) -> Bool[np.ndarray, " d"]:
        """Which components do not stay."""
        shared, own = np.asarray(self.slopes), np.asarray(self.own_slopes)
        return np.any(shared, axis=(0, 2)) | np.any(own, axis=0)

    @property
    def causes(self) -> list[int]:
        """The components on which the scale of some other depends."""
        shared = np.asarray(self.drivers)[np.any(np.asarray(self.slopes), axis=(0, 1))]
        own = np.asarray(self.own)[np.any(np.asarray(self.own_slopes), axis=0)]
        return list(dict.fromkeys([*shared.tolist(), *own.tolist()]))

    def told(self, names: list[str]) -> tuple[str, str]:
        """Which components do not stay, and what their scales depend on, by their names."""
        return _list(names, np.flatnonzero(self.changed).tolist()), _list(names, self.causes)

    def __call__(self, z: Float[Array, " d"]) -> Float[Array, " d"]:
        """x."""
        mean, log_precision = self.moments(z)
        return mean + jnp.exp(-0.5 * log_precision) * z

    def inverse(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """z; what m and f depend on is the same in x."""
        mean, log_precision = self.moments(x)
        return jnp.exp(0.5 * log_precision) * (x - mean)

    def moments(self, x: Float[Array, " d"]) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
        """m and f, at x or z."""
        dtype = x.dtype
        own = self.own_slopes.astype(dtype) * x[self.own][None]
        a, b = self.levels.astype(dtype) + own + self.slopes.astype(dtype) @ x[self.drivers]
        log_precision = jnp.logaddexp(a, b)
        # Each from its logarithm, so that it and its slope are 0 and not NaN where a and b are far.
        weights = jnp.exp(jnp.stack([a, b, 0.5 * (a + b)]) - log_precision[None])
        partners = jnp.concatenate([jnp.ones(1, dtype), x[self.partners]])
        return jnp.sum(weights * (self.means.astype(dtype) @ partners), axis=0), log_precision


def _list(names: list[str], which: Iterable[int]) -> str:
    """Some of the names, and how many others there are."""
    found = [names[k] for k in which]
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return ", ".join(found[:NAMED]) + more


class Reparametrise(eqx.Module):
    """Positions in the new numbers as the user wrote them.

    Args:
        scales: the map of raveled positions.
        constrain: of the original target, or None.
    """

    scales: ConditionalScales
    constrain: PyTree

    def __call__(self, position: PyTree) -> PyTree:
        """The user's values."""
        flat, unravel = tree.ravel(tree.freeze(position))
        values = tree.thaw(unravel(self.scales(flat)))
        return values if self.constrain is None else self.constrain(values)

    def inverse(self, values: PyTree) -> PyTree:
        """The new numbers of the user's values, with leading axes chains and draws."""
        old = values if self.constrain is None else self.constrain.inverse(values)
        return _numbers(self.scales, jax.tree.map(jnp.asarray, tree.freeze(old)))


@eqx.filter_jit
def _numbers(scales: ConditionalScales, draws: PyTree) -> PyTree:
    def one(position: PyTree) -> PyTree:
        flat, unravel = tree.ravel(position)
        return unravel(scales.inverse(flat))

    return jax.vmap(jax.vmap(one))(draws)


@eqx.filter_jit
def _lost(
    scales: ConditionalScales, rows: Float[Array, "n d"], roundings: Any
) -> Bool[Array, " n"]:
    def one(z: Float[Array, " d"]) -> Bool[Array, ""]:
        mean, log_precision = scales.moments(z)
        resolved = float(jnp.finfo(z.dtype).eps) * jnp.abs(roundings.astype(z.dtype) * mean)
        return jnp.any(jnp.exp(-0.5 * log_precision) < resolved)

    return jax.vmap(one)(rows)


@eqx.filter_jit
def _mapped(scales: ConditionalScales, rows: Array, inverse: bool) -> Array:
    return jax.vmap(scales.inverse if inverse else scales)(rows)


class ReparametrisedTarget(AbstractTarget):
    """A target as a function of the new numbers; `constrain` gives the user's values.

    Args:
        original: the target.
        constrain: the way back.
    """

    original: AbstractTarget
    constrain: Reparametrise

    def potential(self, position: PyTree) -> Float[Array, ""]:
        """U of the old numbers, less the logarithm of the map's volume."""
        flat, unravel = tree.ravel(tree.freeze(position))
        mean, log_precision = self.constrain.scales.moments(flat)
        old = unravel(mean + jnp.exp(-0.5 * log_precision) * flat)
        return self.original.potential(old) + 0.5 * jnp.sum(log_precision)

    @property
    def causes(self) -> list[int]:
        """The components on which the scale of some other depends."""
        return self.constrain.scales.causes

    def originals(self, rows: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """Raveled positions in the old numbers, of ones in the new."""
        return self._mapped(rows, inverse=False)

    def numbers(self, rows: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """The other way round."""
        return self._mapped(rows, inverse=True)

    def lost(self, rows: Float[np.ndarray, "n d"], *, fine: bool = False) -> Bool[np.ndarray, " n"]:
        """At which raveled positions, in the new numbers, a scale is lost in the rounding of x.

        Args:
            rows: the positions.
            fine: whether it counts as lost where less than a thousandth of it is.
        """
        scales, roundings = self.constrain.scales, np.float64(FINE if fine else ROUNDINGS)
        dtype = scales.levels.dtype
        return np.asarray(_lost(scales, on_device(rows, dtype), on_device(roundings, dtype)))

    def _mapped(self, rows: Any, *, inverse: bool) -> Float[np.ndarray, "n d"]:
        scales = self.constrain.scales
        found = _mapped(scales, on_device(rows, scales.levels.dtype), inverse)
        return np.asarray(found, np.float64)


def reparametrised(target: AbstractTarget, scales: ConditionalScales) -> ReparametrisedTarget:
    """The target in the numbers of a map.

    Args:
        target: of unconstrained numbers.
        scales: the map, on raveled positions.
    """
    return ReparametrisedTarget(target, Reparametrise(scales, getattr(target, "constrain", None)))
