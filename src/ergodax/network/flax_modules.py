"""Flax NNX modules taken apart; Flax is imported when there is one."""

# pyright: reportMissingImports=false
import math
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, PyTree

from ergodax.network.modules import DROPOUT, STATEFUL, Network


class FlaxNetwork(Network):
    """A Flax NNX module; see `Network`."""

    rest: PyTree
    graph: Any = eqx.field(static=True)
    inputs: tuple[int, ...] = eqx.field(static=True)
    batched: bool = eqx.field(static=True)

    def module(self, parameters: PyTree) -> Any:
        """The module with these parameters."""
        from flax import nnx

        return nnx.merge(self.graph, nnx.State(parameters), self.rest)


def take_apart_flax(module: Any, batched: bool) -> tuple[FlaxNetwork, dict]:
    """A Flax module as a function of its parameters, and these as a dict.

    Args:
        module: an `nnx.Module`.
        batched: whether it takes a whole batch.

    Raises:
        ValueError: statistics of batches, or dropout.
    """
    from flax import nnx

    known = {}
    for path, node in nnx.iter_graph(module):
        where = ".".join(map(str, path)) or type(node).__name__
        if isinstance(node, nnx.BatchStat | nnx.BatchNorm):
            raise ValueError(STATEFUL.format(where=where, kind="BatchStat"))
        if isinstance(node, nnx.Dropout) and not node.deterministic and node.rate > 0:
            raise ValueError(DROPOUT.format(where=where, how="module.eval()"))
        if isinstance(node, nnx.LinearGeneral):
            known[(*path, "kernel")] = math.prod(np.atleast_1d(node.in_features).tolist())
    graph, parameters, rest = nnx.split(module, nnx.Param, ...)
    pure = nnx.to_pure_dict(parameters)
    inputs = tuple(known.get(path, _inputs(path, value)) for path, value in _leaves(pure))
    return FlaxNetwork(rest=rest, graph=graph, inputs=inputs, batched=batched), pure


def _leaves(pure: dict, path: tuple = ()) -> list[tuple[tuple, Array]]:
    """The arrays in the order of JAX's leaves."""
    out = []
    for name in sorted(pure):
        value = pure[name]
        out += (
            _leaves(value, (*path, name)) if isinstance(value, dict) else [((*path, name), value)]
        )
    return out


def _inputs(path: tuple, value: Any) -> int:
    """Flax keeps outputs last."""
    if path[-1] in ("bias", "scale", "embedding"):
        return 1
    return math.prod(value.shape[:-1]) if value.ndim > 1 else 1
