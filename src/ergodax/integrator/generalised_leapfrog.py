"""Generalised leapfrog: reversible and volume preserving where mass depends on the position.

Half of a step is implicit, and solved by fixed-point iteration. Where an implicit equation has
several solutions, or the iteration fails, the step is not its own inverse under a change of
sign of the momentum. So each step is also taken back: only a step that converges, and whose
reverse converges to where it came from, counts as reversible.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from ergodax import tree
from ergodax.integrator.hamiltonian import Energies
from ergodax.recipe.dynamics.riemannian import RiemannianEnergy
from ergodax.tree import Number

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
