"""Nested leapfrog: short steps for the part of the potential that needs them, long ones else."""

from collections.abc import Callable
from typing import Any

from jax import lax
from jaxtyping import PyTree

from ergodax.integrator import flows
from ergodax.integrator.leapfrog import Energies, leapfrog
from ergodax.recipe.operators import Operator


def nested_leapfrog(
    slow: Callable[[PyTree], Energies],
    fast: Callable[[PyTree], Energies],
    position: PyTree,
    momentum: PyTree,
    start: tuple[Energies, Energies],
    mass: Operator,
    step_size: Any,
    num_steps: int,
    num_inner_steps: int,
) -> tuple[PyTree, PyTree, tuple[Energies, Energies]]:
    """Follow the flow of U = slow + fast: half kick by slow, leapfrogs by fast, half kick by slow.

    Volume preserving and reversible, of second order, as leapfrog is.

    Args:
        slow: a potential with its gradient.
        fast: likewise.
        position: where to start.
        momentum: with which momentum.
        start: what slow and fast are at `position`, so that they are not computed again.
        mass: M.
        step_size: h of the kicks by slow; stable for h^2 lambda_max(M^-1 Hessian) < 4 of slow, if
            no period of fast is near a multiple of h.
        num_steps: at least 1; one gradient of slow each.
        num_inner_steps: leapfrogs of size h / num_inner_steps in each; one gradient of fast each.

    Returns:
        Position, momentum, and what slow and fast are at the end.
    """
    inner = step_size / num_inner_steps

    def one(_: Any, carry: tuple) -> tuple:
        x, r, (slowly, quickly) = carry
        r = flows.kick(r, slowly[1], 0.5 * step_size)
        x, r, quickly = leapfrog(fast, x, r, quickly, mass, inner, num_inner_steps)
        slowly = slow(x)
        return x, flows.kick(r, slowly[1], 0.5 * step_size), (slowly, quickly)

    return lax.fori_loop(0, num_steps, one, (position, momentum, start))
