"""Two chains of one sampler with two settings, driven by the same noise."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.kernel import Info, Kernel


class CoupledState(eqx.Module):
    """The states of the two chains; `position` has both positions, "coarse" and "fine"."""

    coarse: Any
    fine: Any

    @property
    def position(self) -> dict[str, PyTree]:
        """Where the two chains stand."""
        return {"coarse": self.coarse.position, "fine": self.fine.position}


class Coupled(Kernel):
    """A coarse chain and a fine one that takes several steps to one of it.

    The normal numbers of a coarse step are the sums of the fine steps', scaled to unit variance,
    and its batch is the first of theirs. Each chain has its own law, exactly; only the joint law
    is changed. Where the dynamics contract, the chains stay close, and the difference of two
    averages has a far smaller variance than that of independent chains.

    Args:
        coarse: a kernel.
        fine: the same sampler with another setting.
        substeps: fine steps to one coarse step.
        shared: False for two independent chains, side by side.
    """

    coarse: Any
    fine: Any
    substeps: int = eqx.field(static=True, default=1)
    shared: bool = eqx.field(static=True, default=True)

    def init(self, key: PRNGKeyArray, position: PyTree) -> CoupledState:
        """Both chains from the same place, with the same momentum."""
        return CoupledState(self.coarse.init(key, position), self.fine.init(key, position))

    def step(self, key: PRNGKeyArray, state: CoupledState) -> tuple[CoupledState, Info]:
        """`substeps` fine steps, then the coarse one with their noise."""
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, _numbers(self.substeps + 1))

        def substep(fine: Any, key: PRNGKeyArray) -> tuple[Any, tuple[list[PyTree], Info]]:
            with tree.recorded_normals() as normals:
                fine, info = self.fine.step(key, fine)
            return fine, (normals, info)

        # A loop, though it is short: a step is most of the program to be compiled.
        fine, (drawn, infos) = lax.scan(substep, state.fine, keys[:-1])
        if self.shared:
            with tree.given_normals([_combined(normal) for normal in drawn]):
                coarse, info = self.coarse.step(keys[0], state.coarse)
        else:
            coarse, info = self.coarse.step(keys[-1], state.coarse)
        return CoupledState(coarse, fine), _joined(infos, info)


def _numbers(count: int) -> Int[Array, " numbers"]:
    return jnp.arange(count, dtype=jnp.int32)


def _combined(normals: PyTree) -> PyTree:
    """Independent normal trees along a leading axis, summed and scaled to unit variance."""
    return jax.tree.map(lambda x: jnp.sum(x, axis=0) / math.sqrt(len(x)), normals)


def _joined(infos: Info, last: Info) -> Info:
    """The coarse step's Info, with what concerns all the steps."""
    every = {
        "finite": jnp.all(infos.finite) & last.finite,
        "evaluations": jnp.sum(infos.evaluations, dtype=jnp.int32) + last.evaluations,
    }
    if infos.feasible is not None and last.feasible is not None:
        every["feasible"] = jnp.all(infos.feasible) & last.feasible
    names = list(every)
    return eqx.tree_at(
        lambda info: [getattr(info, name) for name in names], last, [every[n] for n in names]
    )
