"""Conditions that stay conditions when chains are mapped together, and keep to each chain's own.

Mapped over chains, `lax.cond` with a condition that differs between them computes both branches
for all of them at every step. What a kernel does from time to time (renew a snapshot, draw a fresh
momentum) would then be done, and paid for, always.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool


def when(
    flag: Bool[Array, ""],
    fresh: Callable[[], Any],
    kept: Callable[[], Any],
    instead: Callable[[Any], Any] | None = None,
) -> Any:
    """fresh() where the flag is raised, and kept() where it is not.

    Mapped over chains, `fresh` is computed only if the flag of some chain is raised. Each chain
    then has what its own flag says, in whatever phase the others are.

    Args:
        flag: the condition, of one chain.
        fresh: computes the result where it is raised.
        kept: the result otherwise, of the same structure, shapes and dtypes.
        instead: what a chain whose flag is not raised makes of fresh(), where another chain needed
            it; where that is cheaper than kept(), and says the same to rounding.
    """

    def each_by_its_own() -> Any:
        new = fresh()
        old = kept() if instead is None else instead(new)
        return jax.tree.map(lambda a, b: jnp.where(flag, a, b), new, old)

    return jax.lax.cond(_in_any_chain(flag), each_by_its_own, kept)


@jax.custom_batching.custom_vmap
def _in_any_chain(flag: Bool[Array, ""]) -> Bool[Array, ""]:
    """The flag; mapped over chains, whether it is raised in any of them."""
    return flag


@_in_any_chain.def_vmap
def _(axis_size: int, in_batched: list[bool], flag: Array) -> tuple[Array, bool]:
    return _in_any_chain(jnp.any(flag)), False
