"""Cosine cycles of Zhang et al. (2020)."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ergodax.checks import positive, whole_number


class Cyclical(eqx.Module):
    """h_t = (h_0 / 2)(cos(pi r) + 1) with r = (t mod P) / P.

    The large steps of a cycle explore, the small ones sample.

    Args:
        initial: h_0, the step at the start of each cycle.
        period: P, steps in a cycle.

    Raises:
        TypeError: not a number, or a period that is not an integer.
        ValueError: a number that is not positive and finite.

    Reference: Zhang, Li, Zhang, Chen and Wilson, Cyclical stochastic gradient MCMC, 2020.
    """

    initial: Float[Array, ""] = eqx.field(converter=positive("initial"))
    period: int = eqx.field(static=True)

    def __check_init__(self) -> None:
        """Refuse an empty cycle."""
        whole_number("period", self.period)

    def __call__(self, step: Int[Array, ""]) -> Float[Array, ""]:
        """The value at `step`, counted from 0."""
        place = (step % self.period).astype(self.initial.dtype) / self.period
        return 0.5 * self.initial * (jnp.cos(jnp.pi * place) + 1.0)
