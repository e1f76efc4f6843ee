"""Two chains of one sampler with two settings, driven by the same noise."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray, PyTree

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
        *keys, own = (jax.random.fold_in(key, j) for j in range(self.substeps + 1))
        fine, drawn, infos = state.fine, [], []
        for one in keys:
            with tree.recorded_normals() as normals:
                fine, info = self.fine.step(one, fine)
            drawn.append(normals)
            infos.append(info)
        if self.shared:
            with tree.given_normals([_combined(parts) for parts in zip(*drawn, strict=True)]):
                coarse, info = self.coarse.step(keys[0], state.coarse)
        else:
            coarse, info = self.coarse.step(own, state.coarse)
        return CoupledState(coarse, fine), _joined([*infos, info])


def _combined(parts: tuple[PyTree, ...]) -> PyTree:
    """Independent normal trees, summed and scaled to unit variance."""
    return jax.tree.map(lambda *x: sum(x[1:], start=x[0]) / math.sqrt(len(x)), *parts)


def _joined(infos: list[Info]) -> Info:
    """The coarse step's Info, with what concerns all the steps."""
    last = infos[-1]
    every = {
        "finite": jnp.all(jnp.stack([info.finite for info in infos])),
        "evaluations": sum((info.evaluations for info in infos[1:]), start=infos[0].evaluations),
    }
    feasible = [info.feasible for info in infos if info.feasible is not None]
    if feasible:
        every["feasible"] = jnp.all(jnp.stack(feasible))
    names = list(every)
    return eqx.tree_at(
        lambda info: [getattr(info, name) for name in names], last, [every[n] for n in names]
    )
