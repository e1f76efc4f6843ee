"""Priors of a network's weights: independent, from families of four tails, by path."""

import abc
import fnmatch
import math
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Array, Float

from ergodax import tree
from ergodax.checks import plain, positive


def _location(value: Any) -> Array:
    number = value if tree.is_traced(value) else plain(value)
    if number is None:
        raise TypeError(f"location must be a number, not {value!r}.")
    return jnp.asarray(number)


class Prior(eqx.Module):
    """An independent prior for every number of an array: location and scale of a family.

    A weight w with f inputs has the density of the family at z = (w - location) sqrt(f) / scale.
    With this the variance of a unit's input does not depend on how many units feed it; without
    `fan_in`, f = 1. Biases, and gains of normalisation layers, have f = 1 always.

    Attributes:
        scale: in units of w for f = 1.
        fan_in: whether the scale is divided by the root of the number of inputs.
        location: the centre.

    Raises:
        TypeError: not a number.
        ValueError: a number but the location that is not positive and finite.
    """

    scale: Float[Array, ""] = eqx.field(default=1.0, converter=positive("scale"))
    fan_in: bool = eqx.field(default=True, static=True, kw_only=True)
    location: Float[Array, ""] = eqx.field(default=0.0, converter=_location, kw_only=True)

    def log_density(self, values: Float[Array, "..."], inputs: int) -> Float[Array, ""]:
        """The log density of an array of weights with f inputs, normalised, summed."""
        scale = tree.cast(self.scale, values) / math.sqrt(inputs if self.fan_in else 1)
        z = (values - tree.cast(self.location, values)) / scale
        return jnp.sum(self._log_standard(z)) - values.size * jnp.log(scale)

    @abc.abstractmethod
    def _log_standard(self, z: Array) -> Array:
        """The log density of the family at location 0 and scale 1."""


class Normal(Prior):
    """A normal prior: weight decay, seen as a distribution; `scale` is the sd at one input.

    Reference:
        Neal, Bayesian learning for neural networks, 1996.
    """

    def _log_standard(self, z: Array) -> Array:
        return -0.5 * z**2 - 0.5 * math.log(2.0 * math.pi)


class Laplace(Prior):
    """A Laplace prior, exp(-|z|) / 2: its mode is sparse; `scale` is the mean of |w|."""

    def _log_standard(self, z: Array) -> Array:
        return -jnp.abs(z) - math.log(2.0)


class Student(Prior):
    """A Student t prior: a normal whose variance has an inverse gamma prior, marginalised.

    The standard deviation is larger than the scale, or infinite.

    Attributes:
        degrees: of freedom; 1 is the Cauchy distribution.
    """

    degrees: Float[Array, ""] = eqx.field(default=3.0, converter=positive("degrees"))

    def _log_standard(self, z: Array) -> Array:
        nu = tree.cast(self.degrees, z)
        constant = gammaln(0.5 * (nu + 1.0)) - gammaln(0.5 * nu) - 0.5 * jnp.log(math.pi * nu)
        return constant - 0.5 * (nu + 1.0) * jnp.log1p(z**2 / nu)


class HorseshoeLike(Prior):
    """A horseshoe-like prior: a peak at zero, and the Cauchy tails of half-Cauchy local scales.

        p(z) = log(1 + 1 / (z^2 + floor^2)) / (2 pi (sqrt(1 + floor^2) - floor))

    The horseshoe's own density has no closed form; it lies between K log(1 + 4 / z^2) / 2 and
    K log(1 + 2 / z^2). Here the peak, infinite in both, is rounded off below the floor, where no
    sampler could follow it.

    Attributes:
        floor: where the peak ends, in (global) scales.

    Reference:
        Carvalho, Polson and Scott, The horseshoe estimator for sparse signals, 2010; Bhadra,
        Datta, Polson and Willard, The horseshoe-like regularization for feature subset selection,
        2021.
    """

    floor: Float[Array, ""] = eqx.field(default=0.05, converter=positive("floor"))

    def _log_standard(self, z: Array) -> Array:
        floor = tree.cast(self.floor, z)
        # sqrt(1 + floor^2) - floor, without cancellation
        width = 1.0 / (jnp.sqrt(1.0 + floor**2) + floor)
        return jnp.log(jnp.log1p(1.0 / (z**2 + floor**2))) - jnp.log(2.0 * math.pi * width)


class ByPath(eqx.Module):
    """A prior for each array, by its path.

    Args:
        patterns: prior by pattern, such as {"layers.0.*": Normal(0.5)}; the first that matches an
            array's path counts. `*` and `?` are as in file names.
        default: of the arrays that no pattern matches.

    Raises:
        TypeError: a value that is not a prior.
        ValueError: no pattern.

    Example:
        >>> import ergodax.network as network
        >>> priors = network.priors
        >>> prior = priors.ByPath({"*.bias": priors.Normal(0.1)}, priors.Student(1.0))
    """

    patterns: dict[str, Prior]
    order: tuple[str, ...] = eqx.field(static=True)
    default: Prior

    def __init__(self, patterns: Mapping[str, Any], default: Any = None) -> None:
        if not patterns:
            raise ValueError('patterns is empty. Try {"*.bias": network.priors.Normal(0.1)}.')
        self.default = check_prior(Normal() if default is None else default)
        for pattern, prior in patterns.items():
            if not isinstance(prior, Prior):
                raise TypeError(f"patterns[{pattern!r}] must be a prior, not {prior!r}.")
        self.patterns, self.order = dict(patterns), tuple(patterns)

    def assign(self, paths: list[str]) -> list[Prior]:
        """The prior of each path.

        Raises:
            ValueError: a pattern that matches none.
        """
        for pattern in self.order:
            if not fnmatch.filter(paths, pattern):
                raise ValueError(f"the pattern {pattern!r} matches none of the paths {paths}.")
        return [
            next(
                (self.patterns[p] for p in self.order if fnmatch.fnmatchcase(path, p)), self.default
            )
            for path in paths
        ]


def check_prior(prior: Any) -> Any:
    """Accept a prior of one array.

    Raises:
        TypeError: something else.
    """
    if not isinstance(prior, Prior):
        raise TypeError(
            f"a prior must be one of ergodax.network.priors, such as Normal(1.0), not {prior!r}."
        )
    return prior
