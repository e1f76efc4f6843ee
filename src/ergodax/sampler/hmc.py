"""Hamiltonian Monte Carlo: the exact reference."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.checks import whole_number
from ergodax.gradient.base import Estimate
from ergodax.gradient.full import FullGradient, exact_gradient
from ergodax.integrator.leapfrog import leapfrog
from ergodax.integrator.metropolis import metropolis
from ergodax.kernel import Info, Kernel, State, kinetic_temperature
from ergodax.recipe.dynamics.momentum import draw_momentum
from ergodax.recipe.operators import Operator, as_definite
from ergodax.schedule import as_schedule
from ergodax.schedule.constant import Schedule
from ergodax.target.base import AbstractTarget


class HamiltonianMonteCarlo(Kernel):
    """The kernel that `hmc` returns."""

    gradient: FullGradient
    step_size: Schedule
    temperature: Schedule
    mass: Operator
    num_leapfrog_steps: int = eqx.field(static=True)

    def init(self, key: PRNGKeyArray, position: PyTree) -> State:
        """Evaluate the gradient; the momentum is drawn afresh in each step."""
        position = tree.freeze(position)
        state = self.gradient.init(key, position)
        estimate, state = self.gradient.estimate(key, state, position)
        return State(position, {}, state, estimate, jnp.int32(0))

    def step(self, key: PRNGKeyArray, state: State) -> tuple[State, Info]:
        """Refresh the momentum, follow the flow, accept or stay."""
        key_momentum, key_accept = jax.random.split(key)
        h, temperature = self.step_size(state.step), self.temperature(state.step)
        momentum = draw_momentum(key_momentum, state.position, self.mass, temperature)
        start = (state.estimate.potential, state.estimate.gradient)
        x, r, (potential, gradient) = leapfrog(
            self.gradient.target.value_and_gradient,
            state.position,
            momentum,
            start,
            self.mass,
            h,
            self.num_leapfrog_steps,
        )
        rise = potential + self._kinetic(r) - start[0] - self._kinetic(momentum)
        estimate = Estimate(gradient, potential, evaluations=state.estimate.evaluations)
        return metropolis(
            key_accept,
            state,
            (x, estimate),
            rise / tree.cast(temperature, rise),
            step_size=h,
            evaluations=estimate.evaluations * self.num_leapfrog_steps,
            kinetic_temperature=kinetic_temperature(momentum, self.mass.solve(momentum)),
        )

    def _kinetic(self, momentum: PyTree) -> Any:
        return 0.5 * tree.dot(momentum, self.mass.solve(momentum))


def hmc(
    gradient: FullGradient | AbstractTarget,
    step_size: Any,
    *,
    num_leapfrog_steps: int | np.integer = 10,
    mass: Any = 1.0,
    temperature: Any = 1.0,
) -> HamiltonianMonteCarlo:
    """Hamiltonian Monte Carlo with a Metropolis test: no bias at any step size.

    State: position x. H = U + r^T M^-1 r / 2, D = 0, Q = [[0, -I], [I, 0]]. Update:
        r ~ N(0, T M);  (x', r') = num_leapfrog_steps leapfrog steps from (x, r);
        x+ = x' with probability min(1, exp(-(H' - H) / T)), else x

    Args:
        gradient: a target or posterior, or its ex.FullGradient: the test is invalid with a noisy
            gradient.
        step_size: h, a positive number or a schedule; about 0.5 in units of the posterior sd
            where the mass is the inverse covariance.
        num_leapfrog_steps: L, at least 1; costs L full gradients a step.
        mass: M: number, vector, matrix or operator, positive definite.
        temperature: T, a number or a schedule.

    Returns:
        A kernel with state.position; `auxiliary` is empty.

    Raises:
        TypeError: neither a target nor its exact gradient, or an argument is not a number.
        ValueError: a number out of range.

    Reference:
        Neal, MCMC using Hamiltonian dynamics, 2011.
    """
    return HamiltonianMonteCarlo(
        exact_gradient(gradient, "hmc", "ex.sghmc"),
        as_schedule(step_size, "step_size"),
        as_schedule(temperature, "temperature"),
        as_definite(mass, "mass"),
        whole_number("num_leapfrog_steps", num_leapfrog_steps),
    )
