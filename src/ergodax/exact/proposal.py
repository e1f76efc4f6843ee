"""Random-walk proposals, and the checks that these kernels share."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.data.arrays import needs_memory
from ergodax.data.source import Source
from ergodax.recipe.operators import Operator
from ergodax.target.mode import Mode
from ergodax.target.posterior import Posterior


def random_walk(
    key: PRNGKeyArray, position: PyTree, step_size: Any, covariance: Operator
) -> PyTree:
    """A position drawn from N(position, step_size^2 covariance)."""
    noise = covariance.sqrt_mv(tree.normal_like(key, position))
    return tree.add_scaled(position, step_size, noise)


def log_prior(posterior: Posterior, position: PyTree) -> Float[Array, ""]:
    """The prior's log density at a position as the kernels hold it."""
    return posterior.log_prior(tree.thaw(position))


def unknown(like: Array) -> Float[Array, ""]:
    """NaN, for a number that Info has and this kernel does not compute."""
    return jnp.full((), jnp.nan, like.dtype)


def check_posterior(posterior: Any) -> Posterior:
    """Refuse what has no rows to draw.

    Raises:
        TypeError: not a Posterior, or its data are a source.
    """
    if not isinstance(posterior, Posterior):
        raise TypeError(
            f"posterior must be an ex.Posterior (a prior, a likelihood, data), not {posterior!r}. "
            "Without data there is nothing to draw subsets of: use ex.hmc."
        )
    if isinstance(posterior.data, Source):
        raise TypeError(needs_memory("a test of each proposal on any of the rows"))
    return posterior


def check_probability(value: Any, name: str) -> Float[Array, ""]:
    """A number strictly between 0 and 1, as an array.

    Args:
        value: the number.
        name: the argument's name, for errors.

    Raises:
        TypeError: not a number.
        ValueError: out of range.
    """
    return _number(value, name, 1.0, "must lie strictly between 0 and 1")


def check_positive_number(value: Any, name: str) -> Float[Array, ""]:
    """A positive finite number, as an array.

    Args:
        value: the number.
        name: the argument's name, for errors.

    Raises:
        TypeError: not a number.
        ValueError: out of range.
    """
    return _number(value, name, np.inf, "must be positive and finite")


def check_count(value: Any, name: str) -> int:
    """A whole number, at least 1.

    Args:
        value: the number.
        name: the argument's name, for errors.

    Raises:
        TypeError: not an integer.
        ValueError: less than 1.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an integer, not {value!r}.")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, not {value}.")
    return int(value)


def centre_of(centre: Any) -> PyTree:
    """A centre given as a position or a Mode, as the kernels hold positions."""
    return tree.freeze(centre.position if isinstance(centre, Mode) else centre, "centre")


def _number(value: Any, name: str, end: float, rule: str) -> Float[Array, ""]:
    if tree.is_traced(value):
        return jnp.asarray(value)
    if isinstance(value, bool) or not isinstance(value, int | float | np.generic | jnp.ndarray):
        raise TypeError(f"{name} must be a number, not {value!r}.")
    if np.ndim(value) != 0 or not 0.0 < float(value) < end:
        raise ValueError(f"{name} {rule}, not {value!r}.")
    return jnp.asarray(float(value))
