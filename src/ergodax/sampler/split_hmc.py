"""Split Hamiltonian Monte Carlo: short steps only for what is steep."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.checks import whole_number
from ergodax.gradient.full import FullGradient
from ergodax.integrator.leapfrog import Energies
from ergodax.integrator.metropolis import metropolis
from ergodax.integrator.nested_leapfrog import nested_leapfrog
from ergodax.kernel import Info, Kernel, State, kinetic_temperature
from ergodax.recipe.dynamics.momentum import draw_momentum
from ergodax.recipe.operators import Operator, as_definite
from ergodax.schedule import as_schedule
from ergodax.schedule.constant import Schedule
from ergodax.target.base import AbstractTarget


class Parts(eqx.Module):
    """The two parts of the potential at a position, with their gradients.

    Attributes:
        slow: of the part with long steps.
        fast: of the part with short ones.
        gradient: of U.
        evaluations: of both.
    """

    slow: Energies
    fast: Energies
    gradient: PyTree
    evaluations: Int[Array, ""]

    @property
    def potential(self) -> Float[Array, ""]:
        """U."""
        return self.slow[0] + self.fast[0]


class SplitHamiltonianMonteCarlo(Kernel):
    """The kernel that `split_hmc` returns."""

    slow: AbstractTarget
    fast: AbstractTarget
    step_size: Schedule
    temperature: Schedule
    mass: Operator
    num_leapfrog_steps: int = eqx.field(static=True)
    num_inner_steps: int = eqx.field(static=True)

    def init(self, key: PRNGKeyArray, position: PyTree) -> State:
        """Evaluate both parts; the momentum is drawn afresh in each step."""
        position = tree.freeze(position)
        for part in (self.slow, self.fast):
            part.check(position)
        parts = (self.slow.value_and_gradient(position), self.fast.value_and_gradient(position))
        return State(position, {}, None, self._parts(parts), jnp.int32(0))

    def step(self, key: PRNGKeyArray, state: State) -> tuple[State, Info]:
        """Refresh the momentum, follow the flow, accept or stay."""
        key_momentum, key_accept = jax.random.split(key)
        h, temperature = self.step_size(state.step), self.temperature(state.step)
        momentum = draw_momentum(key_momentum, state.position, self.mass, temperature)
        x, r, parts = nested_leapfrog(
            self.slow.value_and_gradient,
            self.fast.value_and_gradient,
            state.position,
            momentum,
            (state.estimate.slow, state.estimate.fast),
            self.mass,
            h,
            self.num_leapfrog_steps,
            self.num_inner_steps,
        )
        proposed = self._parts(parts)
        rise = proposed.potential - state.estimate.potential
        rise = rise + self._kinetic(r) - self._kinetic(momentum)
        return metropolis(
            key_accept,
            state,
            (x, proposed),
            rise / tree.cast(temperature, rise),
            step_size=h,
            kinetic_temperature=kinetic_temperature(momentum, self.mass.solve(momentum)),
        )

    def _parts(self, parts: tuple[Energies, Energies]) -> Parts:
        each = self.slow.evaluations + self.num_inner_steps * self.fast.evaluations
        gradient = tree.add(parts[0][1], parts[1][1])
        return Parts(*parts, gradient, jnp.int32(self.num_leapfrog_steps * each))

    def _kinetic(self, momentum: PyTree) -> Any:
        return 0.5 * tree.dot(momentum, self.mass.solve(momentum))


def split_hmc(
    slow: AbstractTarget | FullGradient,
    fast: AbstractTarget | FullGradient,
    step_size: Any,
    *,
    num_leapfrog_steps: int | np.integer = 10,
    num_inner_steps: int | np.integer = 10,
    mass: Any = 1.0,
    temperature: Any = 1.0,
) -> SplitHamiltonianMonteCarlo:
    """Hamiltonian Monte Carlo on a sum of two potentials, with short steps for one of them alone.

    State: position x. H = U_slow + U_fast + r^T M^-1 r / 2, D = 0, Q = [[0, -I], [I, 0]]. Update:
        r ~ N(0, T M);  then num_leapfrog_steps times:
            r <- r - h grad U_slow(x) / 2
            num_inner_steps leapfrog steps of size h / num_inner_steps with U_fast from (x, r)
            r <- r - h grad U_slow(x) / 2
        x+ = x' with probability min(1, exp(-(H' - H) / T)), else x
    It pays where the steep part is the cheap one: few rows of the data that bend sharply, a prior
    that is tight. No bias at any step size.

    Args:
        slow: U_slow, any target or its ex.FullGradient.
        fast: U_fast, likewise, on the same positions.
        step_size: h of the outer steps, a positive number or a schedule; about 0.5 in units of the
            scale of U_slow.
        num_leapfrog_steps: outer steps, at least 1; a gradient of U_slow each.
        num_inner_steps: inner steps in each, at least 1; a gradient of U_fast each.
        mass: M: number, vector, matrix or operator, positive definite.
        temperature: T, a number or a schedule.

    Returns:
        A kernel with state.position; `auxiliary` is empty.

    Raises:
        TypeError: a part is not a target, or an argument is not a number.
        ValueError: a number out of range.

    Reference:
        Sexton and Weingarten, Hamiltonian evolution for the hybrid Monte Carlo algorithm, 1992;
        Shahbaba, Lan, Johnson and Neal, Split Hamiltonian Monte Carlo, 2014.
    """
    return SplitHamiltonianMonteCarlo(
        _target(slow, "slow"),
        _target(fast, "fast"),
        as_schedule(step_size, "step_size"),
        as_schedule(temperature, "temperature"),
        as_definite(mass, "mass"),
        whole_number("num_leapfrog_steps", num_leapfrog_steps),
        whole_number("num_inner_steps", num_inner_steps),
    )


def _target(part: Any, name: str) -> AbstractTarget:
    """A target, or that of a FullGradient."""
    part = part.target if isinstance(part, FullGradient) else part
    if not isinstance(part, AbstractTarget):
        raise TypeError(f"{name} must be an ex.Target or ex.Posterior, not {type(part).__name__}.")
    return part
