"""Leapfrog: half kick, drift, half kick; volume preserving and reversible."""

from collections.abc import Callable
from typing import Any

from jax import lax
from jaxtyping import Array, Float, PyTree

from ergodax.integrator import flows
from ergodax.recipe.operators import Operator

Energies = tuple[Float[Array, ""], PyTree]  # the potential and its gradient


def leapfrog(
    value_and_gradient: Callable[[PyTree], Energies],
    position: PyTree,
    momentum: PyTree,
    start: Energies,
    mass: Operator,
    step_size: Any,
    num_steps: int,
) -> tuple[PyTree, PyTree, Energies]:
    """Follow the Hamiltonian flow for num_steps steps of size h.

    Args:
        value_and_gradient: of the potential.
        position: where to start.
        momentum: with which momentum.
        start: potential and gradient at `position`, so that they are not computed again.
        mass: M.
        step_size: h; stable for h^2 lambda_max(M^-1 Hessian) < 4.
        num_steps: at least 1; one gradient each.

    Returns:
        Position, momentum, and the potential with its gradient at the end.
    """

    def one(_: Any, carry: tuple) -> tuple:
        x, r, (_, gradient) = carry
        r = flows.kick(r, gradient, 0.5 * step_size)
        x = flows.drift(x, r, mass, step_size)
        end = value_and_gradient(x)
        return x, flows.kick(r, end[1], 0.5 * step_size), end

    return lax.fori_loop(0, num_steps, one, (position, momentum, start))
