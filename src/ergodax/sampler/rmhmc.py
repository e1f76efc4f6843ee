"""Riemannian manifold Hamiltonian Monte Carlo: exact, with a mass that depends on the position."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.checks import real_number, whole_number
from ergodax.gradient.base import Estimate
from ergodax.gradient.full import FullGradient, exact_gradient
from ergodax.integrator.generalised_leapfrog import Flow, generalised_leapfrog
from ergodax.integrator.metropolis import metropolis
from ergodax.kernel import Info, Kernel, State, kinetic_temperature
from ergodax.recipe.dynamics.riemannian import RiemannianEnergy, exact_metric
from ergodax.schedule import as_schedule
from ergodax.schedule.constant import Schedule
from ergodax.target.base import AbstractTarget


class RiemannianHamiltonianMonteCarlo(Kernel):
    """The kernel that `rmhmc` returns."""

    gradient: FullGradient
    step_size: Schedule
    temperature: Schedule
    kinetic: RiemannianEnergy
    num_leapfrog_steps: int = eqx.field(static=True)
    tolerance: float | None = eqx.field(static=True)
    max_iterations: int = eqx.field(static=True)

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
        x = state.position
        kinetic = self.kinetic.traced(x)
        momentum = kinetic.draw(key_momentum, x, temperature)
        start = (state.estimate.potential, state.estimate.gradient)
        flow = self._flow(kinetic, x, temperature)
        end = generalised_leapfrog(flow, x, momentum, start, h, self.num_leapfrog_steps)
        rise = end.energies[0] + kinetic(end.position, end.momentum, temperature)
        rise = rise - start[0] - kinetic(x, momentum, temperature)
        # What can't be taken back is rejected.
        rise = jnp.where(end.reversible, rise, jnp.inf) / tree.cast(temperature, rise)
        potential, gradient = end.energies
        estimate = Estimate(gradient, potential, evaluations=state.estimate.evaluations)
        return metropolis(
            key_accept,
            state,
            (end.position, estimate),
            rise,
            step_size=h,
            evaluations=estimate.evaluations * end.num_steps,
            kinetic_temperature=kinetic_temperature(momentum, kinetic.velocity(x, momentum)),
        )

    def _flow(self, kinetic: RiemannianEnergy, position: PyTree, temperature: Any) -> Flow:
        """The Hamiltonian, with the tolerance for positions of this dtype."""
        tolerance = self.tolerance
        if tolerance is None:
            tolerance = float(jnp.finfo(tree.result_dtype(position)).eps) ** 0.7
        evaluate = self.gradient.target.value_and_gradient
        return Flow(evaluate, kinetic, temperature, tolerance, self.max_iterations)


def rmhmc(
    gradient: FullGradient | AbstractTarget,
    step_size: Any,
    metric: Any,
    *,
    num_leapfrog_steps: int | np.integer = 10,
    temperature: Any = 1.0,
    tolerance: float | None = None,
    max_iterations: int | np.integer = 100,
) -> RiemannianHamiltonianMonteCarlo:
    """Riemannian manifold Hamiltonian Monte Carlo: no bias at any step size.

    State: position x. H = U + r^T G^-1 r / 2 + (T / 2) log det G with G = G(x), D = 0,
    Q = [[0, -I], [I, 0]], Gamma = 0. Update:
        r ~ N(0, T G(x));  (x', r') = num_leapfrog_steps steps from (x, r) of
            s  = r - h/2 dH/dx(x, s)                           (implicit)
            x' = x + h/2 (G^-1(x) + G^-1(x')) s                (implicit)
            r' = s - h/2 dH/dx(x', s)
        x+ = x' with probability min(1, exp(-(H' - H) / T)), else x

    The implicit equations are solved by fixed-point iteration. A trajectory is rejected if an
    iteration does not converge, if a step is not taken back to where it came from by the
    iterations of the reverse step, or if it leaves the finite numbers or the region where G is
    positive definite. The map proposed is then its own inverse, with volume preserved, and the
    law exact up to the tolerance. Rejections of this kind have Info.acceptance 0; where they
    are frequent, take a smaller step.

    Second order in h in the energy. As stable as leapfrog with the local mass, where the
    iterations converge.

    Args:
        gradient: a target or posterior, or its ex.FullGradient: the test is invalid with a noisy
            gradient.
        step_size: h, a positive number or a schedule; about 0.5 where the metric is the local
            covariance.
        metric: function of the position that returns G^-1, the inverse metric: a number, a
            vector or tree like the position, a matrix or an operator; differentiable, and
            positive definite. Not an ex.PotentialMetric.
        num_leapfrog_steps: L, at least 1; costs L full gradients a step, and some tens of
            evaluations of the metric's derivative each.
        temperature: T, a number or a schedule; it stands before log det G as well.
        tolerance: of the iterations, relative to the norm of momentum or position; None for
            1e-5 in float32 and 1e-11 in float64.
        max_iterations: of one implicit equation.

    Returns:
        A kernel with state.position; `auxiliary` is empty.

    Raises:
        TypeError: neither a target nor its exact gradient, a metric that is not a function of the
            position alone, or an argument that is not a number.
        ValueError: a number out of range.

    Reference:
        Girolami and Calderhead, Riemann manifold Langevin and Hamiltonian Monte Carlo methods,
        2011.
    """
    if tolerance is not None:
        tolerance = real_number("tolerance", tolerance, above=0.0, below=1.0, hint="Try 1e-6.")
    return RiemannianHamiltonianMonteCarlo(
        exact_gradient(gradient, "rmhmc", "ex.sgrhmc"),
        as_schedule(step_size, "step_size"),
        as_schedule(temperature, "temperature"),
        RiemannianEnergy(exact_metric(metric)),
        whole_number("num_leapfrog_steps", num_leapfrog_steps),
        tolerance,
        whole_number("max_iterations", max_iterations),
    )
