"""SGRHMC of positive parameters with the metric diag(theta), its friction solved exactly."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from ergodax.gradient.base import GradientEstimator
from ergodax.kernel import Info, Kernel, State, report_step
from ergodax.schedule.constant import Schedule


class PositiveSGRHMC(Kernel):
    """Riemannian Hamiltonian Monte Carlo of theta > 0, split as BAOA.

    State: theta, momentum r. H = U + r^T r / 2, D = diag(0, gamma theta),
    Q = [[0, -theta^(1/2)], [theta^(1/2), 0]]: those of `sgrhmc` with G^-1 = diag(theta). Update,
    with g an estimate of grad U:
        B: r <- r - h (theta^(1/2) g - 1 / (2 theta^(1/2)))
        A: theta <- |theta + h / 2 theta^(1/2) r|, r changing its sign where theta would
        O: r <- e^(-h gamma theta) r + N(0, 1 - e^(-2 h gamma theta))
        A again, for `Reflected` to mirror

    The Euler step would multiply r by 1 - h gamma theta, beyond -1 where theta > 2 / (h gamma).
    Frequent words have such theta, and the step size would be bound by them. Solved exactly, the
    factor is between 0 and 1: there r is forgotten in a step, and theta moves as in `sgrld` with
    step size h^2 / 2. Where theta is small r persists, and averages over batches.

    First order in h, and stable whatever the friction.

    Args:
        gradient: an estimator of grad U.
        step_size: h, a schedule.
        friction: gamma, a schedule.

    Reference:
        Ma, Chen and Fox, A complete recipe for stochastic gradient MCMC, 2015, Section 4.2;
        Leimkuhler and Matthews, Molecular Dynamics, 2015, chapter 7, for the splitting.
    """

    gradient: GradientEstimator
    step_size: Schedule
    friction: Schedule

    def init(self, key: PRNGKeyArray, position: Array) -> State:
        """Draw r ~ N(0, I)."""
        key_momentum, key_gradient = jax.random.split(key)
        momentum = jax.random.normal(key_momentum, position.shape, position.dtype)
        state = self.gradient.init(key_gradient, position)
        return State(position, {"momentum": momentum}, state, None, jnp.int32(0))

    def step(self, key: PRNGKeyArray, state: State) -> tuple[State, Info]:
        """B, A, O, A."""
        key_gradient, key_noise = jax.random.split(key)
        theta, r = state.position, state.auxiliary["momentum"]
        estimate, gradient = self.gradient.estimate(key_gradient, state.gradient, theta)
        step_size = self.step_size(state.step)
        h = step_size.astype(theta.dtype)
        root = jnp.sqrt(theta)
        r = r - h * (root * estimate.gradient - 0.5 / root)
        theta, r = mirrored(theta + 0.5 * h * root * r, r)
        loss = h * self.friction(state.step).astype(theta.dtype) * theta
        noise = jax.random.normal(key_noise, r.shape, r.dtype)
        r = jnp.exp(-loss) * r + jnp.sqrt(-jnp.expm1(-2.0 * loss)) * noise
        theta = theta + 0.5 * h * jnp.sqrt(theta) * r
        info = report_step(estimate, theta, step_size, kinetic_temperature=jnp.mean(r**2))
        return State(theta, {"momentum": r}, gradient, None, state.step + 1), info


def mirrored(position: Array, momentum: Array) -> tuple[Array, Array]:
    """Position and momentum mirrored at zero where the position is below it."""
    return jnp.abs(position), jnp.where(position < 0, -momentum, momentum)
