"""Parts of a recipe that depend on the step, such as a friction that is a schedule."""

from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Int, PyTree

from ergodax.recipe.operators import Operator
from ergodax.schedule.constant import Schedule


class Scheduled(eqx.Module):
    """The value of a schedule, or that multiple of an operator.

    Attributes:
        schedule: step -> number.
        operator: what it multiplies; None for the number alone.
    """

    schedule: Schedule
    operator: Operator | None = None

    def at(self, step: Int[Array, ""]) -> Any:
        """The number, or the operator, at this step."""
        value = self.schedule(step)
        return value if self.operator is None else self.operator.scaled(value)


def at_step(parts: PyTree, step: Int[Array, ""]) -> PyTree:
    """The same tree with the value of this step in place of every Scheduled."""

    def known(x: Any) -> Any:
        return x.at(step) if isinstance(x, Scheduled) else x

    return jax.tree.map(known, parts, is_leaf=lambda x: isinstance(x, Scheduled))
