"""An Equinox or Flax NNX module taken apart: what is sampled, and how it is called."""

# pyright: reportMissingImports=false
import dataclasses
import inspect
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ergodax import tree
from ergodax.checks import flag
from ergodax.graph import uses
from ergodax.network.convolutions import CONVOLUTION, as_products

STATEFUL = (
    "{where} keeps statistics of the batches that it has seen ({kind}), so the likelihood of a row "
    "would depend on the other rows of its batch, and there would be no posterior. Normalise each "
    "row by itself: LayerNorm, GroupNorm or RMSNorm."
)
DROPOUT = (
    "{where} drops units at random. Dropout is an approximation of its own, not a posterior: leave "
    "it out, or turn it off by {how}."
)

# Their arrays are no weights of a sum over inputs, whatever their shapes.
WITHOUT_INPUTS = (eqx.nn.Embedding, eqx.nn.LayerNorm, eqx.nn.RMSNorm, eqx.nn.GroupNorm)


class Network(eqx.Module):
    """A module whose parameters are an argument."""

    rest: PyTree  # what the module has besides parameters
    fixed: PyTree  # parameters that stay as they are, in the structure of all; None elsewhere
    # How many inputs each parameter array has, in the order of the leaves; 1 where a prior is not
    # scaled by them.
    inputs: tuple[int, ...] = eqx.field(static=True)
    batched: bool = eqx.field(static=True)  # whether the module takes a whole batch
    graph: Any = eqx.field(static=True, default=None)  # of a Flax module
    convolves: bool = eqx.field(static=True, default=False)  # then by products, on a host

    def module(self, parameters: PyTree) -> Any:
        """The module with these parameters, a tree like that of `take_apart`."""
        parameters = parameters if self.fixed is None else eqx.combine(parameters, self.fixed)
        if self.graph is None:
            return eqx.combine(parameters, tree.thaw(self.rest))
        from flax import nnx

        return nnx.merge(self.graph, nnx.State(parameters), self.rest)

    def __call__(self, parameters: PyTree, rows: PyTree) -> Array:
        """The outputs for some rows, leading axis n."""

        def outputs(parameters: PyTree, rows: PyTree) -> Array:
            module = self.module(parameters)
            return module(rows) if self.batched else jax.vmap(module)(rows)

        if self.convolves and jax.default_backend() == "cpu":
            return as_products(outputs)(parameters, rows)
        return outputs(parameters, rows)

    def fitted_to(self, parameters: PyTree, rows: PyTree) -> "Network":
        """The same network, after a look at whether it convolves such rows."""
        convolves = uses(lambda both: self(*both), (parameters, rows), CONVOLUTION)
        return dataclasses.replace(self, convolves=convolves)


def take_apart(module: Any, batched: bool | None, trainable: Any = None) -> tuple[Network, PyTree]:
    """A module as a function of its parameters, and these: its floating-point arrays.

    They are the module with None in place of all else for Equinox, a dict for Flax; where
    `trainable` chooses some, the others are None too. By default an Equinox module takes one row
    and a Flax module a batch; `batched` says otherwise.
    Raises: TypeError for what is no such module, ValueError for one with no posterior.
    """
    if batched is not None:
        flag("batched", batched)
    if not callable(module):
        raise TypeError(f"module must be an Equinox or Flax NNX module, not {module!r}.")
    if isinstance(module, eqx.Module):
        network, parameters = _equinox(module, bool(batched))
    elif any(cls.__module__.startswith("flax.nnx") for cls in inspect.getmro(type(module))):
        network, parameters = _flax(module, batched is not False)
    else:
        raise TypeError(
            f"module must be an Equinox or Flax NNX module, not {type(module).__name__}. For other "
            "functions try ex.Posterior with batched=True."
        )
    leaves = jax.tree_util.tree_leaves_with_path(parameters)
    if not leaves:
        raise ValueError("module has no floating-point array, so there is nothing to sample.")
    for path, leaf in leaves:
        if jnp.iscomplexobj(leaf):
            raise TypeError(f"{tree.path_name(path)} is complex; a position must be real.")
    if trainable is None:
        return network, parameters
    chosen = tree.chosen_by_name(trainable, parameters)
    moving, fixed = eqx.partition(parameters, chosen)
    which = zip(network.inputs, jax.tree.leaves(chosen), strict=True)
    inputs = tuple(count for count, moves in which if moves)
    return Network(network.rest, fixed, inputs, network.batched, network.graph), moving


def _equinox(module: eqx.Module, batched: bool) -> tuple[Network, PyTree]:
    whole = (eqx.nn.StateIndex, eqx.nn.BatchNorm, eqx.nn.Dropout, *WITHOUT_INPUTS)
    nodes = jax.tree_util.tree_leaves_with_path(module, is_leaf=lambda x: isinstance(x, whole))
    without = set()
    for path, node in nodes:
        where = tree.path_name(path) or type(node).__name__
        if isinstance(node, eqx.nn.StateIndex | eqx.nn.BatchNorm):
            raise ValueError(STATEFUL.format(where=where, kind=type(node).__name__))
        if isinstance(node, eqx.nn.Dropout) and not node.inference and float(node.p) > 0:
            how = "eqx.nn.inference_mode(module)"
            raise ValueError(DROPOUT.format(where=where, how=how))
        if isinstance(node, WITHOUT_INPUTS):
            without.add(path)
    parameters, rest = eqx.partition(module, eqx.is_inexact_array)
    leaves = jax.tree_util.tree_leaves_with_path(parameters)
    inputs = tuple(
        1 if any(path[: len(p)] == p for p in without) else _inputs(path, leaf)
        for path, leaf in leaves
    )
    return Network(tree.hide(rest), None, inputs, batched), parameters


def _inputs(path: tuple[Any, ...], leaf: Any) -> int:
    """Equinox keeps outputs first; a bias has the outputs' axis alone, or further axes of one."""
    if tree.path_name(path).rpartition(".")[2] == "bias":
        return 1
    return math.prod(leaf.shape[1:])


def _flax(module: Any, batched: bool) -> tuple[Network, dict[str, Any]]:
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
    leaves = [
        (tuple(key.key for key in path), value)
        for path, value in jax.tree_util.tree_leaves_with_path(pure)
    ]
    inputs = tuple(known.get(path, _flax_inputs(path, value)) for path, value in leaves)
    return Network(rest, None, inputs, batched, graph), pure


def _flax_inputs(path: tuple[Any, ...], value: Any) -> int:
    """Flax keeps outputs last."""
    if path[-1] in ("bias", "scale", "embedding"):
        return 1
    return math.prod(value.shape[:-1]) if value.ndim > 1 else 1
