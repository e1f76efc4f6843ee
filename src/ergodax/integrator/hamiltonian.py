"""Hamiltonian trajectories, and the Metropolis test that makes them exact."""

import abc
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.integrator import flows
from ergodax.kernel import Info, Kernel, State, kinetic_temperature, report_step
from ergodax.recipe.dynamics.momentum import draw_momentum
from ergodax.recipe.dynamics.riemannian import RiemannianEnergy
from ergodax.recipe.operators import Operator
from ergodax.schedule import Schedule
from ergodax.tree import Number

Energies = tuple[Float[Array, ""], PyTree]  # a potential and its gradient


class ConstantMass(eqx.Module):
    """The kinetic energy r^T M^-1 r / 2."""

    mass: Operator

    def traced(self, position: PyTree) -> "ConstantMass":
        """Itself: nothing depends on the position."""
        return self

    def draw(self, key: PRNGKeyArray, position: PyTree, temperature: Number = 1.0) -> PyTree:
        """r ~ N(0, T M)."""
        return draw_momentum(key, position, self.mass, temperature)

    def __call__(self, position: PyTree, momentum: PyTree, temperature: Number) -> Float[Array, ""]:
        """The energy."""
        return 0.5 * tree.dot(momentum, self.mass.solve(momentum))

    def velocity(self, position: PyTree, momentum: PyTree) -> PyTree:
        """M^-1 r."""
        return self.mass.solve(momentum)


class Proposal(NamedTuple):
    """Where a trajectory ended."""

    position: PyTree
    estimate: Any  # the Estimate there, or what has its attributes
    rise: Float[Array, ""]  # of H on the way; infinite where the trajectory failed
    evaluations: Int[Array, ""]


Kinetic = TypeVar("Kinetic", ConstantMass, RiemannianEnergy)


class HamiltonianKernel(Kernel, Generic[Kinetic]):
    """A fresh momentum, a trajectory, a Metropolis test: every exact Hamiltonian sampler.

    A subclass says what is known where a step begins, and follows its trajectory.
    """

    step_size: eqx.AbstractVar[Schedule]
    temperature: eqx.AbstractVar[Schedule]
    kinetic: eqx.AbstractVar[Kinetic]

    @abc.abstractmethod
    def start(self, key: PRNGKeyArray, position: PyTree) -> Any:
        """The estimate at a position: potential, gradient and evaluations."""

    @abc.abstractmethod
    def follow(
        self, kinetic: Kinetic, state: State, momentum: PyTree, h: Array, temperature: Array
    ) -> Proposal:
        """The trajectory from the state's position with this momentum, under `kinetic`."""

    def init(self, key: PRNGKeyArray, position: PyTree) -> State:
        """Evaluate the gradient; the momentum is drawn afresh in each step."""
        return State(position, {}, None, self.start(key, position), jnp.int32(0))

    def step(self, key: PRNGKeyArray, state: State) -> tuple[State, Info]:
        """Refresh the momentum, follow the flow, accept or stay."""
        key_momentum, key_accept = jax.random.split(key)
        h, temperature = self.step_size(state.step), self.temperature(state.step)
        kinetic = self.kinetic.traced(state.position)
        momentum = kinetic.draw(key_momentum, state.position, temperature)
        end = self.follow(kinetic, state, momentum, h, temperature)
        velocity = kinetic.velocity(state.position, momentum)
        return metropolis(
            key_accept,
            state,
            (end.position, end.estimate),
            end.rise / tree.cast(temperature, end.rise),
            step_size=h,
            evaluations=end.evaluations,
            kinetic_temperature=kinetic_temperature(momentum, velocity),
        )


def metropolis(
    key: PRNGKeyArray,
    state: State,
    proposal: tuple[PyTree, Any],
    rise: Float[Array, ""],
    **told: Any,
) -> tuple[State, Info]:
    """Accept with probability min(1, exp(-rise)), or stay.

    `rise` is the energy's, over the temperature; `told` are the fields of Info that do not depend
    on the outcome.
    """
    # A trajectory that diverged is rejected, as if its energy were infinite.
    rise = jnp.where(jnp.isfinite(rise), rise, jnp.inf)
    acceptance = jnp.exp(-jnp.maximum(rise, 0.0))
    accepted = jax.random.uniform(key, dtype=acceptance.dtype) < acceptance
    position, estimate = jax.tree.map(
        lambda new, old: jnp.where(accepted, new, old), proposal, (state.position, state.estimate)
    )
    info = report_step(estimate, position, acceptance=acceptance, accepted=accepted, **told)
    return State(position, {}, state.gradient, estimate, state.step + 1), info


def leapfrog(
    value_and_gradient: Callable[[PyTree], Energies],
    position: PyTree,
    momentum: PyTree,
    start: Energies,
    mass: Operator,
    step_size: Number,
    num_steps: int,
) -> tuple[PyTree, PyTree, Energies]:
    """Half kick, drift, half kick, num_steps times; volume preserving and reversible.

    `start` is the potential with its gradient at `position`, so that they are not computed again.
    Stable for h^2 lambda_max(M^-1 Hessian) < 4; a gradient a step.
    """

    def one(_: Int[Array, ""], carry: tuple[Any, ...]) -> tuple[Any, ...]:
        x, r, (_, gradient) = carry
        r = flows.kick(r, gradient, 0.5 * step_size)
        x = flows.drift(x, r, mass, step_size)
        end = value_and_gradient(x)
        return x, flows.kick(r, end[1], 0.5 * step_size), end

    return lax.fori_loop(0, num_steps, one, (position, momentum, start))


def nested_leapfrog(
    slow: Callable[[PyTree], Energies],
    fast: Callable[[PyTree], Energies],
    position: PyTree,
    momentum: PyTree,
    start: tuple[Energies, Energies],
    mass: Operator,
    step_size: Number,
    num_steps: int,
    num_inner_steps: int,
) -> tuple[PyTree, PyTree, tuple[Energies, Energies]]:
    """Leapfrog of U = slow + fast: half kick by slow, leapfrogs by fast, half kick by slow.

    The inner steps have size h / num_inner_steps. Volume preserving and reversible, of second
    order; stable for h^2 lambda_max(M^-1 Hessian) < 4 of slow, if no period of fast is near a
    multiple of h.
    """
    inner = step_size / num_inner_steps

    def one(_: Int[Array, ""], carry: tuple[Any, ...]) -> tuple[Any, ...]:
        x, r, (slowly, quickly) = carry
        r = flows.kick(r, slowly[1], 0.5 * step_size)
        x, r, quickly = leapfrog(fast, x, r, quickly, mass, inner, num_inner_steps)
        slowly = slow(x)
        return x, flows.kick(r, slowly[1], 0.5 * step_size), (slowly, quickly)

    return lax.fori_loop(0, num_steps, one, (position, momentum, start))
