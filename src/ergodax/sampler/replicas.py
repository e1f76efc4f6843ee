"""Several chains as one batch, each at its own temperature."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from ergodax import tree
from ergodax.kernel import State


class Replicas(eqx.Module):
    """What the replicas have, the coldest first; every leaf has a leading axis of R."""

    position: PyTree
    auxiliary: dict[str, PyTree]
    gradient: PyTree
    estimate: Any

    @classmethod
    def of(cls, state: State) -> "Replicas":
        """The replicas that a State of `replica_exchange` holds."""
        auxiliary = dict(state.auxiliary)
        hotter = auxiliary.pop("hotter")
        del auxiliary["swap_rate"]
        position = jax.tree.map(
            lambda cold, hot: jnp.concatenate([cold[None], hot]), state.position, hotter
        )
        return cls(position, auxiliary, state.gradient, state.estimate)

    def state(self, swap_rate: Float[Array, " pairs"], step: Int[Array, ""]) -> State:
        """The State that holds them."""
        cold = jax.tree.map(lambda x: x[0], self.position)
        hotter = jax.tree.map(lambda x: x[1:], self.position)
        auxiliary = {**self.auxiliary, "hotter": hotter, "swap_rate": swap_rate}
        return State(cold, auxiliary, self.gradient, self.estimate, step)

    def exchanged(
        self, order: Int[Array, " replicas"], temperatures: Float[Array, " replicas"]
    ) -> "Replicas":
        """The replica order[i] in place i, its momentum in proportion to the root of T_i."""
        new = jax.tree.map(lambda x: x[order], self)
        if "momentum" not in new.auxiliary:
            return new
        root = jnp.sqrt(temperatures / temperatures[order])
        rescale = jax.vmap(tree.scale)
        momentum = rescale(root, new.auxiliary["momentum"])
        return dataclasses.replace(new, auxiliary={**new.auxiliary, "momentum": momentum})


def stack(kernels: list[Any]) -> tuple[Any, tuple[int | None, ...]]:
    """One kernel for several that differ in their numbers alone, and which leaves have an axis.

    Arrays that are the same for all are kept once; single numbers have an axis always, so that
    the program does not depend on which of them happen to be equal.

    Raises:
        TypeError: they differ in more than numbers.
    """
    parts = [eqx.partition(kernel, eqx.is_array) for kernel in kernels]
    (arrays, rest), *others = parts
    shape = jax.tree.structure(arrays)
    if any(jax.tree.structure(a) != shape or not eqx.tree_equal(r, rest) for a, r in others):
        raise TypeError(
            "step_size must be of one kind for all temperatures: all numbers, or all schedules of "
            "one class. Try ex.schedule.Phases for each."
        )
    rows = list(zip(*(jax.tree.leaves(own) for own, _ in parts), strict=True))
    axes = tuple(None if _shared(row) else 0 for row in rows)
    pairs = zip(rows, axes, strict=True)
    leaves = [row[0] if axis is None else jnp.stack(row) for row, axis in pairs]
    return eqx.combine(shape.unflatten(leaves), rest), axes


def _shared(row: tuple) -> bool:
    first = row[0]
    if all(x is first for x in row):
        return True
    if first.ndim == 0 or any(tree.is_traced(x) for x in row):
        return False
    return all(np.array_equal(x, first) for x in row)
