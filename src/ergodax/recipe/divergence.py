"""Gamma = div(D + Q), block by block, skipping every block that can't contribute.

A block contributes only if it depends on the variable its columns belong to. That is read
off the function's own graph while it is traced, so constant blocks cost nothing at run time.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jaxtyping import PRNGKeyArray, PyTree

from ergodax.recipe.operators import Operator


def depends_on(function: Callable[[PyTree], Any], at: PyTree) -> bool:
    """Whether any array that `function` returns is computed from its argument.

    Conservative: an operation all of whose paths are dead still counts.

    Args:
        function: of one tree.
        at: the tree, or its shapes.
    """
    closed = jax.make_jaxpr(lambda z: eqx.filter(function(z), eqx.is_array))(at)
    touched = set(closed.jaxpr.invars)
    for equation in closed.jaxpr.eqns:
        if any(v in touched for v in equation.invars if not hasattr(v, "val")):
            touched.update(equation.outvars)
    return any(v in touched for v in closed.jaxpr.outvars if not hasattr(v, "val"))


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
