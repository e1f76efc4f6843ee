"""Decreasing steps of Welling and Teh."""

import equinox as eqx
from jaxtyping import Array, Float, Int

from ergodax.checks import positive


class Polynomial(eqx.Module):
    """h_t = a (b + t)^-power, the decreasing step of Welling and Teh (2011).

    With power in (1/2, 1] the steps sum to infinity and their squares do not, so that the
    step-size-weighted averages converge to the posterior's. The draws of such a run must be
    weighted by `info.step_size`; 1/3 has the best rate of mean squared error
    (Teh, Thiery and Vollmer 2016).

    Args:
        initial: the first value, a * b^-power.
        offset: b > 0, in steps: how long the value stays near the first.
        power: how fast it falls.

    Raises:
        TypeError: not a number.
        ValueError: a number that is not positive and finite.
    """

    initial: Float[Array, ""] = eqx.field(converter=positive("initial"))
    offset: Float[Array, ""] = eqx.field(converter=positive("offset"), default=1000.0)
    power: Float[Array, ""] = eqx.field(converter=positive("power"), default=0.55)

    def __call__(self, step: Int[Array, ""]) -> Float[Array, ""]:
        """The value at `step`, counted from 0."""
        return self.initial * (1.0 + step.astype(self.initial.dtype) / self.offset) ** -self.power
