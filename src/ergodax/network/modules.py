"""An Equinox or Flax module taken apart: what is sampled, and how it is called."""

import abc
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ergodax import tree

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
    """A module whose parameters are an argument.

    Attributes:
        inputs: how many inputs each parameter array has, in the order of the leaves; 1 where a
            prior is not scaled by them.
        batched: whether the module takes a whole batch.
    """

    inputs: eqx.AbstractVar[tuple[int, ...]]
    batched: eqx.AbstractVar[bool]

    @abc.abstractmethod
    def module(self, parameters: PyTree) -> Any:
        """The module with these parameters.

        Args:
            parameters: a tree like that of `take_apart`.
        """

    def __call__(self, parameters: PyTree, rows: PyTree) -> Array:
        """The outputs, leading axis n.

        Args:
            parameters: a tree like that of `take_apart`.
            rows: inputs, leading axis n.
        """
        module = self.module(parameters)
        return module(rows) if self.batched else jax.vmap(module)(rows)


class EquinoxNetwork(Network):
    """An Equinox module; see `Network`."""

    rest: PyTree
    inputs: tuple[int, ...] = eqx.field(static=True)
    batched: bool = eqx.field(static=True)

    def module(self, parameters: PyTree) -> Any:
        """The module with these parameters."""
        return eqx.combine(parameters, tree.thaw(self.rest))


def take_apart(module: Any, batched: bool | None) -> tuple[Network, PyTree]:
    """A module as a function of its parameters, and the parameters that it has.

    Args:
        module: an Equinox module, which takes one row, or a Flax NNX module, which takes a batch.
        batched: whether it takes a batch, if that is otherwise.

    Returns:
        The network, and its floating-point arrays: of an Equinox module the module with None in
        place of all else, of a Flax module a dict.

    Raises:
        TypeError: no module that can be called, or complex parameters.
        ValueError: no floating-point array, statistics of batches, or dropout.
    """
    if not callable(module):
        raise TypeError(f"module must be an Equinox or Flax NNX module, not {module!r}.")
    if isinstance(module, eqx.Module):
        network, parameters = _equinox(module, bool(batched))
    elif any(cls.__module__.startswith("flax.nnx") for cls in type(module).__mro__):
        from ergodax.network.flax_modules import take_apart_flax

        network, parameters = take_apart_flax(module, batched is not False)
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
    return network, parameters


def _equinox(module: eqx.Module, batched: bool) -> tuple[EquinoxNetwork, PyTree]:
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
    return EquinoxNetwork(rest=tree.hide(rest), inputs=inputs, batched=batched), parameters


def _inputs(path: tuple, leaf: Any) -> int:
    """Equinox keeps outputs first; a bias has the outputs' axis alone, or axes of one beside it."""
    if tree.path_name(path).rpartition(".")[2] == "bias":
        return 1
    return math.prod(leaf.shape[1:])
