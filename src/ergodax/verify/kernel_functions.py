"""Functions of a position whose expectations tell a law from another."""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ergodax.target.analytic import AnalyticTarget

ALL_PAIRS = 6  # dimension up to which every product x_i x_j is watched


class Moments(eqx.Module):
    """The default: coordinates, products, cosines, and the potential.

    Coordinates are centred and divided by their standard deviations, x_i -> z_i; then z_i,
    z_i z_j (of neighbours only, in more than `ALL_PAIRS` dimensions), cos(2 z_i), which is
    bounded and sees the shape, and U.
    """

    target: AnalyticTarget
    centre: Float[Array, " d"]
    scale: Float[Array, " d"]

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The i <= j whose products are watched."""
        d = self.centre.size
        reach = d if d <= ALL_PAIRS else 2
        return [(i, j) for i in range(d) for j in range(i, min(i + reach, d))]

    @property
    def names(self) -> tuple[str, ...]:
        """One for each value."""
        d = range(self.centre.size)
        products = [f"z{i}^2" if i == j else f"z{i} z{j}" for i, j in self.pairs]
        cosines = [f"cos(2 z{i})" for i in d]
        return (*(f"z{i}" for i in d), *products, *cosines, "potential")

    def __call__(self, position: Float[Array, " d"]) -> Float[Array, " functions"]:
        """All the values at one position."""
        z = (position - self.centre.astype(position.dtype)) / self.scale.astype(position.dtype)
        first, second = jnp.array(self.pairs).T
        potential = self.target.potential(position)[None]
        return jnp.concatenate([z, z[first] * z[second], jnp.cos(2 * z), potential])


class Given(eqx.Module):
    """A user's functions, by name."""

    functions: tuple[Callable[[Any], Any], ...] = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)

    def __call__(self, position: Float[Array, " d"]) -> Float[Array, " functions"]:
        """All the values at one position."""
        values = [jnp.asarray(f(position), position.dtype) for f in self.functions]
        return jnp.stack(values)


def as_functions(
    functions: Any,
    target: AnalyticTarget,
    source: AnalyticTarget,
) -> Moments | Given:
    """The user's functions, or the default ones for the law of `source`.

    Args:
        functions: name -> function of a position, or None.
        target: has the potential.
        source: has the law's mean and covariance.

    Raises:
        TypeError: not a mapping of functions.
        ValueError: an empty one, or a function whose value is not one number.
    """
    if functions is None:
        return Moments(target, source.mean, jnp.sqrt(jnp.diagonal(source.covariance)))
    if not isinstance(functions, Mapping) or not all(map(callable, functions.values())):
        raise TypeError(
            f"functions must map names to functions of a position, not {functions!r}. "
            'Try {"square": lambda x: x[0] ** 2}.'
        )
    if not functions:
        raise ValueError("functions is empty. Leave it out for the default ones.")
    for name, function in functions.items():
        shape = jax.eval_shape(function, source.mean).shape
        if shape != ():
            raise ValueError(
                f"functions[{name!r}] must return one number, not an array of shape {shape}. "
                "Name each component on its own."
            )
    return Given(tuple(functions.values()), tuple(functions))
