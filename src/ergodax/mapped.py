"""Conditions that stay conditions when many chains are mapped together."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool


@jax.custom_batching.custom_vmap
def in_any_chain(flag: Bool[Array, ""]) -> Bool[Array, ""]:
    """The flag; mapped over chains, whether it is raised in any of them.

    A condition that differs between chains makes `cond` compute both branches for all of them.
    """
    return flag


@in_any_chain.def_vmap
def _in_any_chain(axis_size: int, in_batched: list[bool], flag: Array) -> tuple[Array, bool]:
    return in_any_chain(jnp.any(flag)), False
