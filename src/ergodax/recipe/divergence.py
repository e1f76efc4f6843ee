"""Gamma = div(D + Q), block by block, skipping every block that can't contribute.

A block contributes only if it depends on the variable its columns belong to. That is read
off the function's own graph while it is traced, so constant blocks cost nothing at run time.
"""

from collections.abc import Callable

import equinox as eqx
from jaxtyping import PRNGKeyArray, PyTree

from ergodax.graph import depends_on
from ergodax.recipe.operators import Operator


def block_divergence(
    field: Callable[[PyTree], Operator], at: PyTree, key: PRNGKeyArray
) -> PyTree | None:
    """The divergence of one block in the variable of its columns; None where it is zero.

    Args:
        field: operator-valued function of that variable.
        at: where.
        key: for a probe, where the operator's class uses one.
    """
    if not depends_on(field, at):
        return None
    # The class of the operator is known from the trace alone; nothing is computed here.
    kind = type(eqx.filter_eval_shape(field, at))
    return kind.divergence(field, at, key)
