"""One schedule after another."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ergodax import tree
from ergodax.checks import whole_number
from ergodax.schedule.constant import Schedule, as_schedule


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
