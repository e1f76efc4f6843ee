"""Step sizes and temperatures as functions of the step; those of optax are accepted as well."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ergodax import tree
from ergodax.checks import numbers, plain, positive, shown, whole_number

__all__ = ["Constant", "Cyclical", "Phases", "Polynomial", "as_schedule"]

Schedule = Callable[[Any], Any]  # the step, an int32 scalar -> a scalar


class Constant(eqx.Module):
    """The same value at every step.

    Args:
        value: a number. It is held as an array, so that a new value needs no recompilation.

    Example:
        >>> import ergodax as ex, jax.numpy as jnp
        >>> float(ex.schedule.Constant(0.5)(jnp.int32(1_000)))
        0.5
    """

    value: Float[Array, ""] = eqx.field(converter=lambda v: jnp.asarray(numbers("value", v)))

    def __call__(self, step: Int[Array, ""]) -> Float[Array, ""]:
        """The value."""
        return self.value


class Function(eqx.Module):
    """A user's function of the step, whatever kind of number it returns.

    Raises:
        TypeError: it does not return one number.
    """

    function: Schedule
    name: str = eqx.field(static=True)

    def __check_init__(self) -> None:
        """Ask for one value, without computing it."""
        try:
            shape = jax.eval_shape(self, jax.ShapeDtypeStruct((), jnp.int32)).shape
        except Exception as error:  # of any kind: it is the user's function
            raise TypeError(
                f"{self.name} is a function that fails for a step: {shown(str(error))} It must "
                "take the step, an integer that JAX traces, and return one number."
            ) from error
        if shape != ():
            raise TypeError(
                f"{self.name} must return one number for a step, not an array of shape {shape}. "
                "Try a schedule of ergodax.schedule or optax."
            )

    def __call__(self, step: Int[Array, ""]) -> Array:
        """The function's value as a floating-point array."""
        value = jnp.asarray(self.function(step))
        return value if jnp.issubdtype(value.dtype, jnp.floating) else value.astype(float)


def as_schedule(value: Any, name: str, *, allow_zero: bool = False) -> Schedule:
    """Make a number or a function of the step a schedule.

    Raises:
        TypeError: neither a real number nor a function.
        ValueError: a number that is not positive and finite.
    """
    if isinstance(value, Constant | Function):
        return value
    if callable(value):
        return Function(value, name)
    if not tree.is_traced(value) and plain(value) is None:
        raise TypeError(
            f"{name} must be a number or a function of the step, not {value!r}. "
            f"Try {name}=1e-3, or an ergodax.schedule or optax schedule."
        )
    return Constant(positive(name, allow_zero=allow_zero)(value))


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

    Example:
        >>> import ergodax as ex, jax.numpy as jnp
        >>> h = ex.schedule.Polynomial(0.1, offset=100.0, power=0.5)
        >>> [round(float(h(jnp.int32(step))), 3) for step in (0, 300)]  # 0.1 (1 + t / 100)^-1/2
        [0.1, 0.05]
    """

    initial: Float[Array, ""] = eqx.field(converter=positive("initial"))
    offset: Float[Array, ""] = eqx.field(converter=positive("offset"), default=1000.0)
    power: Float[Array, ""] = eqx.field(converter=positive("power"), default=0.55)

    def __call__(self, step: Int[Array, ""]) -> Float[Array, ""]:
        """The value at `step`, counted from 0."""
        return self.initial * (1.0 + step.astype(self.initial.dtype) / self.offset) ** -self.power


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

    Example:
        >>> import ergodax as ex, jax.numpy as jnp
        >>> h = ex.schedule.Cyclical(0.1, period=100)
        >>> [round(float(h(jnp.int32(step))), 3) for step in (0, 50, 100)]  # a cosine
        [0.1, 0.05, 0.1]
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


class Phases(eqx.Module):
    """One schedule after another, each counted from the start of its own phase.

    For a step size that is constant while the chain finds the posterior and then decreases, a
    temperature that falls to 1, or a friction that is raised after burn-in. The lengths and the
    values are arguments of the compiled program; only how many phases there are is not.

    Args:
        phases: pairs (steps, value): how long, an integer of at least 1, and a number or a
            schedule. The last pair has None for its steps, since it never ends.

    Raises:
        TypeError: not pairs, or steps that are not an integer.
        ValueError: no phase, a phase without steps, an end where there must be none, or none
            where there must be one.

    Example:
        >>> import ergodax as ex, jax.numpy as jnp
        >>> hot_first = ex.schedule.Phases([(100, 4.0), (None, 1.0)])
        >>> float(hot_first(jnp.int32(99))), float(hot_first(jnp.int32(100)))
        (4.0, 1.0)
    """

    values: tuple[Schedule, ...]
    starts: Int[Array, " phases"]

    def __init__(self, phases: Sequence[tuple[int | None, Any]]) -> None:
        if not isinstance(phases, Sequence) or isinstance(phases, str | bytes):
            raise TypeError(
                f"phases must be a list of pairs (steps, value), not {shown(phases)}. Try "
                "[(1000, 0.1), (None, 0.01)]."
            )
        pairs = [_pair(phase) for phase in phases]
        if not pairs or pairs[-1][0] is not None:
            raise ValueError(
                f"phases must end with (None, value), the phase that goes on for ever, not with "
                f"{pairs[-1] if pairs else 'nothing'}. Try [(1000, 0.1), (None, 0.01)]."
            )
        lengths = [_checked(steps) for steps, _ in pairs[:-1]]
        self.starts = jnp.asarray(np.cumsum([0, *lengths]), jnp.int32)
        self.values = tuple(as_schedule(value, "value", allow_zero=True) for _, value in pairs)

    def __call__(self, step: Int[Array, ""]) -> Float[Array, ""]:
        """The value at `step`, counted from 0."""
        # A phase that has not begun is asked for its first value, which a schedule has.
        places = [jnp.maximum(step - start, 0) for start in self.starts]
        each = [value(place) for value, place in zip(self.values, places, strict=True)]
        dtype = tree.result_dtype(each)
        phase = jnp.sum(step >= self.starts) - 1
        return jnp.stack([value.astype(dtype) for value in each])[phase]


def _pair(phase: Any) -> tuple[Any, Any]:
    if not isinstance(phase, tuple | list) or len(phase) != 2:
        raise TypeError(f"each of phases must be a pair (steps, value), not {phase!r}.")
    return phase[0], phase[1]


def _checked(steps: Any) -> int:
    if steps is None:
        raise ValueError("only the last of phases may have None for its steps: it never ends.")
    return whole_number("the steps of a phase", steps)
