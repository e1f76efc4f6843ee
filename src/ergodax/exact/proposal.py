"""Random-walk proposals, and the checks that these kernels share."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.checks import real_number
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


def unknown(like: Array) -> Float[Array, ""]:
    """NaN, for a number that Info has and this kernel does not compute."""
    return jnp.full((), jnp.nan, like.dtype)


def check_posterior(posterior: Any) -> Posterior:
    """Refuse what has no rows to draw. Raises: TypeError."""
    if not isinstance(posterior, Posterior):
        raise TypeError(
            f"posterior must be an ex.Posterior (a prior, a likelihood, data), not {posterior!r}. "
            "Without data there is nothing to draw subsets of: use ex.hmc."
        )
    if isinstance(posterior.data, Source):
        raise TypeError(needs_memory("a test of each proposal on any of the rows"))
    return posterior


def number(name: str, value: Any, *, below: float = np.inf) -> Float[Array, ""]:
    """A positive finite number below a bound, as an array; TypeError or ValueError otherwise."""
    return jnp.asarray(real_number(name, value, above=0.0, below=below))


def centre_of(centre: Any, freeze: Callable[..., PyTree] = tree.freeze) -> PyTree:
    """A centre given as a position or a Mode, as the kernels hold positions."""
    return freeze(centre.position if isinstance(centre, Mode) else centre, "centre")
