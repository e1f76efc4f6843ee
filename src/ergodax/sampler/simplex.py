"""Sampling positive weights and points of the simplex without discretisation error."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from ergodax import tree
from ergodax.gradient.base import GradientEstimator
from ergodax.integrator.stepper import Moved, PositionStepper
from ergodax.kernel import State, named
from ergodax.random_numbers import log_gamma
from ergodax.schedule import as_schedule

MOST = 2e9  # JAX's Poisson numbers are 32-bit integers


class CoxIngersollRoss(PositionStepper):
    """The kernel that `scir` returns."""

    @property
    def infeasible(self) -> str:
        """What a step that is not feasible asked for."""
        return (
            "scir needs theta - g > 0 for every coordinate, where g estimates the slope of U in "
            f"log theta, and theta < {MOST:g} T (e^h - 1). Try larger batches, a Gamma prior of "
            "rate 1 (alpha * eta - exp(eta)), or a larger step."
        )

    def update(self, key: PRNGKeyArray, state: State, h: Array, temperature: Array) -> Moved:
        """The law of d theta = (b - theta) dt + sqrt(2 T theta) dW at time h, b held fixed."""
        key_gradient, key_poisson, key_gamma = jax.random.split(key, 3)
        estimate, gradient = self.gradient.estimate(key_gradient, state.gradient, state.position)
        position, unravel = tree.ravel(state.position)
        theta, t = jnp.exp(position), tree.cast(temperature, position)
        decay = jnp.exp(-tree.cast(h, position))
        spread = -t * jnp.expm1(-tree.cast(h, position))
        shape = (theta - tree.ravel(estimate.gradient)[0]) / t
        rate = theta * decay / spread
        feasible = jnp.all((shape > 0.0) & (rate < MOST))
        shape = jnp.maximum(shape, jnp.finfo(shape.dtype).tiny)
        count = jax.random.poisson(key_poisson, jnp.minimum(rate, MOST)).astype(shape.dtype)
        # In logarithms, since a Gamma number of small shape is often less than any float.
        new = jnp.log(spread) + log_gamma(key_gamma, shape + count)
        return Moved(unravel(new), {}, estimate, gradient, {"feasible": feasible})


@named
def scir(
    gradient: GradientEstimator, step_size: Any, *, temperature: Any = 1.0
) -> CoxIngersollRoss:
    """Stochastic Cox-Ingersoll-Ross process (Baker, Fearnhead, Fox and Nemeth).

    State: position eta = log theta, theta > 0. H = U(eta), D = diag(exp(-eta)), Q = 0, so that
    Gamma = -exp(-eta). In theta this is a Cox-Ingersoll-Ross process, whose law after the time h is
    known; with g an estimate of the slope of U in eta and b = theta - g, per coordinate:
        K      ~ Poisson(theta e^-h / (T (1 - e^-h)))
        theta+ = T (1 - e^-h) Gamma(b / T + K, 1)

    The law of theta+ given b is exact. Where b does not depend on theta, as for counts of
    categories, there is no discretisation error at any step size: theta is Gamma(b, 1). With
    batches E theta = b still, and Var theta = b + tanh(h / 2) Var(b), which is first order in h.
    A category that no row has keeps exactly its prior Gamma(alpha, 1), at every step size, where
    Euler's scheme is far off: its weight is mostly almost zero. Where b depends on theta it is
    first order in h.

    For a point of the simplex, theta / sum(theta) = softmax(eta), take the prior and the
    likelihood without normalisation: the prior Gamma(alpha_k, 1) of each theta_k, whose log density
    in eta is alpha eta - exp(eta), and a likelihood that is of degree one in theta, such as theta_k
    of a row of category k, or sum over k of theta_k f_k(row) for weights of a mixture. The sum of
    theta is then independent of softmax(eta), which has the Dirichlet prior's posterior.

    Args:
        gradient: an estimator of grad U in eta.
        step_size: h, a positive number or a schedule; e^-h is the autocorrelation where b is
            constant.
        temperature: T > 0, a number or a schedule.

    Returns:
        A kernel with state.position; `auxiliary` is empty. `Info.feasible` is False where b <= 0.

    Raises:
        TypeError: not an estimator, or an argument that is not a number.
        ValueError: a number out of range.

    Example:
        Three categories, Dirichlet prior of 0.1 each; nobody chose the last.

        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> rows = jnp.array([0] * 60 + [1] * 40)
        >>> posterior = ex.Posterior(
        ...     lambda eta: jnp.sum(0.1 * eta - jnp.exp(eta)), lambda eta, row: eta[row], rows
        ... )
        >>> kernel = ex.scir(ex.Minibatch(posterior, 20), 0.1)
        >>> samples = ex.sample(kernel, jnp.zeros(3), 4000, burn_in=100, key=jax.random.key(0))
        >>> weights = jax.nn.softmax(samples.position)
        >>> bool(abs(weights[..., 0].mean() - 60.1 / 100.3) < 0.05)
        True

    Reference:
        Baker, Fearnhead, Fox and Nemeth, Large-scale stochastic sampling from the probability
        simplex, 2018.
    """
    return CoxIngersollRoss(gradient, step_size, as_schedule(temperature, "temperature"))
