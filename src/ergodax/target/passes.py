"""The potential of a posterior whose data are read, not held: for the few who need all of them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree
from scipy import optimize

from ergodax import tree
from ergodax.data.arrays import num_rows
from ergodax.data.passes import sum_in_chunks, summed
from ergodax.target.posterior import Posterior

CHUNK = 1024  # examples at a time, so that the intermediate results stay small


def value_and_gradient(posterior: Posterior, position: PyTree) -> tuple[Any, PyTree]:
    """U and its gradient, in one pass over the source.

    Args:
        posterior: of a source.
        position: a tree of floating-point arrays.
    """
    value, score = summed(posterior.data, lambda rows: _sums(posterior, position, rows))
    prior, slope = _prior(posterior, position)
    return -prior - value, jax.tree.map(lambda p, s: -p - s, slope, score)


@eqx.filter_jit
def _sums(posterior: Posterior, position: PyTree, rows: PyTree) -> tuple[Array, PyTree]:
    def of(batch: PyTree) -> tuple[Array, PyTree]:
        return jax.value_and_grad(lambda x: jnp.sum(posterior.log_likelihoods(x, batch)))(position)

    seen = posterior.data.as_seen(rows)
    return sum_in_chunks(of, seen, num_rows(seen), CHUNK)


@eqx.filter_jit
def _prior(posterior: Posterior, position: PyTree) -> tuple[Float[Array, ""], PyTree]:
    return jax.value_and_grad(lambda x: posterior.log_prior(tree.thaw(x)))(position)


class Minimum(NamedTuple):
    """Where a search ended.

    Attributes:
        position: where.
        potential: U there.
        gradient_norm: of its gradient.
        iterations: of the optimiser.
        passes: over the source.
    """

    position: PyTree
    potential: float
    gradient_norm: float
    iterations: int
    passes: int


class _Enough(Exception):
    """The gradient is small enough."""


def minimise(
    posterior: Any, position: PyTree, enough: Callable[[Any], Any], max_iterations: int
) -> Minimum:
    """L-BFGS (SciPy) with a pass over the source for each evaluation.

    Args:
        posterior: of a source.
        position: where to start.
        enough: the largest norm of a gradient that will do, given U.
        max_iterations: at most.
    """
    flat, unravel = tree.ravel(position)
    iterations, seen = 0, []

    def function(x: np.ndarray) -> tuple[float, np.ndarray]:
        at = unravel(jnp.asarray(x, flat.dtype))
        value, gradient = value_and_gradient(posterior, at)
        slope = np.asarray(tree.ravel(gradient)[0], np.float64)
        point = Minimum(at, float(value), float(np.linalg.norm(slope)), iterations, len(seen) + 1)
        seen.append(point)
        if point.gradient_norm <= enough(point.potential):
            raise _Enough
        return point.potential, slope

    def count(x: np.ndarray) -> None:
        nonlocal iterations
        iterations += 1

    options = {"maxiter": max_iterations, "ftol": 0.0, "gtol": 0.0}
    start = np.asarray(flat, np.float64)
    try:
        optimize.minimize(
            function, start, jac=True, method="L-BFGS-B", callback=count, options=options
        )
        best = min(seen, key=lambda point: point.potential)
    except _Enough:
        best = seen[-1]
    return best._replace(iterations=iterations, passes=len(seen))
