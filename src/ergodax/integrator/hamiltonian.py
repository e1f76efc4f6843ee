"""Hamiltonian trajectories, and the Metropolis test that makes them exact.

Where the mass depends on the position, generalised leapfrog is reversible and volume preserving.
Half of its step is implicit, and solved by fixed-point iteration. Where an implicit equation has
several solutions, or the iteration fails, the step is not its own inverse under a change of
sign of the momentum. So each step is also taken back: only a step that converges, and whose
reverse converges to where it came from, counts as reversible.
"""

import abc
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.integrator import flows
from ergodax.kernel import Info, Kernel, State, kinetic_temperature, report_step
from ergodax.recipe.dynamics.momentum import draw_momentum
from ergodax.recipe.dynamics.riemannian import RiemannianEnergy
from ergodax.recipe.operators import Operator
from ergodax.schedule import Schedule, as_schedule
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

    step_size: Schedule = eqx.field(converter=partial(as_schedule, name="step_size"))
    temperature: Schedule = eqx.field(converter=partial(as_schedule, name="temperature"))
    kinetic: Kinetic
    num_leapfrog_steps: int = eqx.field(static=True)

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
    num_steps: Number,
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


SLACK = 10.0  # the way back may miss the start by this many tolerances


class Trajectory(NamedTuple):
    """Where a trajectory ended, whether every step was reversible, and how many there were."""

    position: PyTree
    momentum: PyTree
    energies: Energies  # the potential and its gradient there
    reversible: Bool[Array, ""]
    num_steps: Int[Array, ""]


class Flow(NamedTuple):
    """The Hamiltonian U + kinetic and how finely its implicit equations are solved."""

    value_and_gradient: Callable[[PyTree], Energies]
    kinetic: RiemannianEnergy
    temperature: Any
    tolerance: float
    max_iterations: int


def generalised_leapfrog(
    flow: Flow,
    position: PyTree,
    momentum: PyTree,
    start: Energies,
    step_size: Number,
    num_steps: int,
) -> Trajectory:
    """Follow H = U(x) + K(x, r) for num_steps steps of size h, or up to one that fails.

    A step is, with F = grad U + dK/dx and v = dK/dr = G^-1 r:
        s  = r - h/2 F(x, s)                     (implicit)
        x' = x + h/2 (v(x, s) + v(x', s))        (implicit)
        r' = s - h/2 F(x', s)
    Second order in h; with a constant metric it is leapfrog. A step costs one gradient of U, which
    is known at the start; to take it back costs none.
    """

    def going(at: Trajectory) -> Bool[Array, ""]:
        return at.reversible & (at.num_steps < num_steps)

    def one(at: Trajectory) -> Trajectory:
        x, r, (_, gradient), _, count = at
        new, half, converged = _implicit_half(flow, x, r, gradient, step_size)
        end = flow.value_and_gradient(new)
        last = _kicked(flow, half, new, half, end[1], step_size)
        back, back_half, returned = _implicit_half(flow, new, last, end[1], -step_size)
        allowed = SLACK * flow.tolerance
        same = (_distance(back, x, new) <= allowed) & (_distance(back_half, half, last) <= allowed)
        return Trajectory(new, last, end, converged & returned & same, count + 1)

    begin = Trajectory(position, momentum, start, jnp.bool_(True), jnp.int32(0))
    return lax.while_loop(going, one, begin)


def _implicit_half(
    flow: Flow, position: PyTree, momentum: PyTree, gradient: PyTree, step_size: Number
) -> tuple[PyTree, PyTree, Bool[Array, ""]]:
    """The new position, the momentum half-way, and whether both iterations converged."""

    def kicked(half: PyTree) -> PyTree:
        return _kicked(flow, momentum, position, half, gradient, step_size)

    half, first = fixed_point(kicked, momentum, flow.tolerance, flow.max_iterations)
    velocity = flow.kinetic.velocity(position, half)

    def drifted(new: PyTree) -> PyTree:
        mean = tree.add(velocity, flow.kinetic.velocity(new, half))
        return tree.add_scaled(position, 0.5 * step_size, mean)

    new, second = fixed_point(drifted, position, flow.tolerance, flow.max_iterations)
    return new, half, first & second


def _kicked(
    flow: Flow, momentum: PyTree, at: PyTree, half: PyTree, gradient: PyTree, step_size: Number
) -> PyTree:
    """Momentum - h/2 F(at, half)."""
    force = tree.add(gradient, flow.kinetic.force(at, half, flow.temperature))
    return tree.add_scaled(momentum, -0.5 * step_size, force)


def fixed_point(
    function: Callable[[PyTree], PyTree], start: PyTree, tolerance: float, max_iterations: int
) -> tuple[PyTree, Bool[Array, ""]]:
    """Solve y = function(y) by iteration from `start`: the last iterate, and whether it converged.

    The tolerance is relative to the norms of start and solution; NaN is not convergence.
    """

    def going(carry: tuple[PyTree, Float[Array, ""], Int[Array, ""]]) -> Bool[Array, ""]:
        _, change, count = carry
        return (change > tolerance) & (count < max_iterations)

    def iterate(carry: tuple[PyTree, Float[Array, ""], Int[Array, ""]]) -> tuple[Any, ...]:
        y, _, count = carry
        new = function(y)
        return new, _distance(new, y, start), count + 1

    far = jnp.asarray(jnp.inf, tree.result_dtype(start))
    y, change, _ = lax.while_loop(going, iterate, (start, far, jnp.int32(0)))
    return y, change <= tolerance


def _distance(a: PyTree, b: PyTree, scale: PyTree) -> Float[Array, ""]:
    """|a - b| relative to |a| + |scale|."""
    gap = tree.norm(tree.subtract(a, b))
    return jnp.where(gap == 0.0, 0.0, gap / (tree.norm(a) + tree.norm(scale)))
