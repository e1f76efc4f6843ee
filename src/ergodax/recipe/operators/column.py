"""A single column, such as the block by which a momentum drives a thermostat."""

from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, PyTree

from ergodax import tree
from ergodax.recipe.operators.base import Operator


class Column(Operator):
    """A single column: maps a number s to s * values; its transpose is a single row.

    Args:
        values: a tree like the block of the rows.
        row: True for the transpose, which maps a tree x to the inner product with values.
    """

    values: PyTree[Float[Array, "..."]]
    row: bool = eqx.field(static=True, default=False)

    def mv(self, x: PyTree) -> PyTree:
        """x * values, or the inner product of values and x for a row."""
        return tree.dot(self.values, x) if self.row else tree.scale(x, self.values)

    def scaled(self, factor: Any) -> "Column":
        """Column(factor * values)."""
        return Column(tree.scale(factor, self.values), self.row)

    def transpose(self) -> "Column":
        """A row for a column, and back."""
        return Column(self.values, not self.row)
