"""The Metropolis test that makes a Hamiltonian trajectory exact."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax.kernel import Info, State, report_step


def metropolis(
    key: PRNGKeyArray,
    state: State,
    proposal: tuple[PyTree, Any],
    rise: Float[Array, ""],
    **told: Any,
) -> tuple[State, Info]:
    """Accept with probability min(1, exp(-rise)), or stay.

    Args:
        key: a fresh key.
        state: where the trajectory began, with the estimate there.
        proposal: the position it came to, and the Estimate there or what has its attributes.
        rise: of the energy, over the temperature.
        told: the fields of Info that do not depend on the outcome.

    Returns:
        The next state and its Info.
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
