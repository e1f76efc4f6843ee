"""Cosine cycles of Zhang et al. (2020)."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


class Cyclical(eqx.Module):
    """h_t = (h_0 / 2)(cos(pi r) + 1) with r = (t mod P) / P.

    The large steps of a cycle explore, the small ones sample.

    Args:
        initial: h_0, the step at the start of each cycle.
        period: P, steps in a cycle.

    Raises:
        ValueError: a number that is not positive.

    Reference: Zhang, Li, Zhang, Chen and Wilson, Cyclical stochastic gradient MCMC, 2020.
    """

    initial: Float[Array, ""] = eqx.field(converter=jnp.asarray)
    period: int = eqx.field(static=True)

    def __check_init__(self) -> None:
        """Refuse an empty cycle or a step that is not positive."""
        if self.period < 1:
            raise ValueError(f"period must be at least 1 step, not {self.period}.")
        if not float(self.initial) > 0:
            raise ValueError(f"initial must be positive, not {self.initial}.")

    def __call__(self, step: Int[Array, ""]) -> Float[Array, ""]:
        """The value at `step`, counted from 0."""
        place = (step % self.period).astype(self.initial.dtype) / self.period
        return 0.5 * self.initial * (jnp.cos(jnp.pi * place) + 1.0)
