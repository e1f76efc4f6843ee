"""The noisy gradient integrator: friction that takes out the heat which the gradient brings."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.gradient.base import Estimate, GradientEstimator
from ergodax.integrator import flows
from ergodax.kernel import Info, Kernel, State, kinetic_temperature, report_step
from ergodax.recipe.dynamics.momentum import draw_momentum
from ergodax.recipe.operators import Operator
from ergodax.recipe.operators.sum import solve_sum
from ergodax.schedule.constant import Schedule


class NoisyGradientIntegrator(Kernel):
    """The kernel that `nogin` returns."""

    gradient: GradientEstimator
    step_size: Schedule
    friction: Schedule
    temperature: Schedule
    mass: Operator

    def init(self, key: PRNGKeyArray, position: PyTree) -> State:
        """Draw r ~ N(0, T M)."""
        position = tree.freeze(position)
        key_momentum, key_gradient = jax.random.split(key)
        start = jnp.int32(0)
        momentum = draw_momentum(key_momentum, position, self.mass, self.temperature(start))
        gradient = self.gradient.init(key_gradient, position)
        return State(position, {"momentum": momentum}, gradient, None, start)

    def step(self, key: PRNGKeyArray, state: State) -> tuple[State, Info]:
        """Half drift, damped kick, half drift: together h times the mean velocity."""
        h, temperature = self.step_size(state.step), self.temperature(state.step)
        key_gradient, key_noise = jax.random.split(key)
        momentum = state.auxiliary["momentum"]
        middle = flows.drift(state.position, momentum, self.mass, 0.5 * h)
        estimate, gradient = self.gradient.estimate(key_gradient, state.gradient, middle)
        covariance = known_covariance(estimate, self.gradient, "nogin")
        damping = jnp.tanh(0.5 * self.friction(state.step) * h)
        noise = draw_momentum(key_noise, middle, self.mass, temperature)
        impulse = tree.add_scaled(tree.scale(jnp.sqrt(damping), noise), -0.5 * h, estimate.gradient)
        weight = h**2 / (4.0 * temperature)
        velocity, momentum = damped_kick(
            momentum, impulse, self.mass, covariance, weight=weight, damping=damping
        )
        position = tree.add_scaled(state.position, h, velocity)
        kinetic = kinetic_temperature(momentum, self.mass.solve(momentum))
        info = report_step(estimate, position, h, kinetic_temperature=kinetic)
        return State(position, {"momentum": momentum}, gradient, None, state.step + 1), info


def damped_kick(
    momentum: PyTree,
    impulse: PyTree,
    mass: Operator,
    covariance: Operator,
    *,
    weight: Any,
    damping: Any = 0.0,
) -> tuple[PyTree, PyTree]:
    """The impulse p twice, and between them the friction that undoes its heat.

    r + p, then (I - K) (I + K)^-1 times that, then + p again, with K = damping I + weight V M^-1.
    This is r+ = 2 M w - r with w = ((1 + damping) M + weight V)^-1 (r + p), the mean of the
    velocities before and after. Where p = sqrt(damping) N(0, T M) + N(0, T weight V) it leaves
    N(0, T M) invariant, and it is a contraction whatever V is.

    Args:
        momentum: r.
        impulse: p, half of the kick.
        mass: M.
        covariance: V, of the gradient.
        weight: h^2 / (4 T).
        damping: tanh(gamma h / 2).

    Returns:
        w and r+.
    """
    velocity = solve_sum(1.0 + damping, mass, weight, covariance, tree.add(momentum, impulse))
    return velocity, tree.subtract(tree.scale(2.0, mass.mv(velocity)), momentum)


def known_covariance(estimate: Estimate, gradient: GradientEstimator, sampler: str) -> Operator:
    """The covariance of an estimate.

    Args:
        estimate: from `gradient`.
        gradient: named in the error.
        sampler: likewise.

    Raises:
        ValueError: the estimator does not know it.
    """
    if estimate.covariance is None:
        raise ValueError(
            f"{sampler} needs a gradient that knows its covariance, and {type(gradient).__name__} "
            "does not. Wrap it: ex.ScoreCovariance(gradient), which estimates it from each batch, "
            "or ex.KnownCovariance(gradient, covariance); ex.NoisyGradient has one."
        )
    return estimate.covariance
