"""Newton's method for a posterior whose parameters are few, where L-BFGS takes too long."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ergodax import tree
from ergodax.gradient.expansion import expand
from ergodax.target.minimise import Minimum, minimise
from ergodax.target.mode import TOLERANCE, enough
from ergodax.target.posterior import Posterior
from ergodax.tune.coordinates import flattened, unflattened
from ergodax.tune.modes import potential_and_gradient

CHUNK = 1024  # examples at a time, whose Hessians are summed


def newton(posterior: Posterior, start: PyTree, max_iterations: int) -> Minimum:
    """Minimise the potential with its Hessian, each of which is a pass over the data.

    Args:
        posterior: with data in memory, of some hundred parameters at most.
        start: a frozen position.
        max_iterations: at most.
    """

    def function(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = potential_and_gradient(posterior, tree.freeze(unflattened(start, x)))
        return float(value), flattened(gradient)

    def hessian(x: np.ndarray) -> np.ndarray:
        return whole_hessian(posterior, tree.freeze(unflattened(start, x)))

    small, rounding = enough(TOLERANCE, start), float(jnp.finfo(tree.result_dtype(start)).eps)
    return minimise(function, flattened(start), small, max_iterations, rounding, hessian)


def whole_hessian(posterior: Posterior, position: PyTree) -> Float[np.ndarray, "d d"]:
    """The Hessian of U on the raveled position, of all data.

    Args:
        posterior: with data in memory.
        position: frozen.
    """
    likelihood = expand(posterior, position, CHUNK, order=2).hessian
    assert likelihood is not None
    prior = np.asarray(_prior_hessian(posterior, position), np.float64)
    whole = -prior - np.asarray(likelihood.matrix, np.float64)
    return 0.5 * (whole + whole.T)


@eqx.filter_jit
def _prior_hessian(posterior: Posterior, position: PyTree) -> Float[Array, "d d"]:
    flat, unravel = tree.ravel(position)
    return jax.hessian(lambda x: posterior.prior(unravel(x)))(flat)
