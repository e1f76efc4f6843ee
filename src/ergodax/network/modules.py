"""An Equinox or Flax module, or a function, taken apart: what is sampled, and how it is called."""

# pyright: reportMissingImports=false
import dataclasses
import inspect
import math
from collections.abc import Callable
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
NAMES_WITHOUT_INPUTS = ("bias", "scale", "embedding", "b", "offset", "embeddings")
BIASES = ("bias", "b")  # Flax's name and Haiku's


class Function(eqx.Module):
    """A network that is a function of its parameters, such as one of Haiku, for `posterior`.

    Args:
        apply: `apply(parameters, rows)` gives the outputs of a batch of rows, such as
            `hk.without_apply_rng(hk.transform(f)).apply`.
        parameters: a tree of arrays. The default prior takes the last axis of an array for its
            outputs, and biases, scales, offsets and embeddings by their names.

    Example:
        >>> import jax.numpy as jnp
        >>> import ergodax.network as network
        >>> def apply(parameters, rows):
        ...     return rows @ parameters["w"] + parameters["b"]
        >>> module = network.Function(apply, {"w": jnp.zeros((3, 1)), "b": jnp.zeros((1, 1))})
        >>> data = jnp.ones((8, 3)), jnp.ones(8)
        >>> network.posterior(module, data, network.likelihoods.Gaussian(0.1)).paths()
        ['b', 'w']
    """

    apply: Callable[[PyTree, PyTree], Array] = eqx.field(static=True)
    parameters: PyTree

    def __call__(self, rows: PyTree) -> Array:
        """The outputs of a batch."""
        return self.apply(self.parameters, rows)


def _combined(parameters: PyTree, rest: PyTree) -> Any:
    """How an Equinox module is put together."""
    return eqx.combine(parameters, tree.thaw(rest))


@dataclasses.dataclass(frozen=True)
class _Nnx:
    """How a Flax NNX module is put together."""

    graph: Any

    def __call__(self, parameters: PyTree, rest: PyTree) -> Any:
        from flax import nnx

        # New variables: the module may draw from its own random numbers, which changes them.
        return nnx.merge(self.graph, nnx.State(parameters), jax.tree.map(lambda x: x, rest))


@dataclasses.dataclass(frozen=True)
class _Linen:
    """How a bound Flax Linen module is put together."""

    unbound: Any

    def __call__(self, parameters: PyTree, rest: PyTree) -> Any:
        return self.unbound.bind({**rest, "params": parameters})


@dataclasses.dataclass(frozen=True)
class _Function:
    """How a function is given its parameters."""

    apply: Callable[[PyTree, PyTree], Array]

    def __call__(self, parameters: PyTree, rest: PyTree) -> Any:
        return Function(self.apply, _combined(parameters, rest))


class Network(eqx.Module):
    """A module whose parameters are an argument."""

    rest: PyTree  # what the module has besides parameters
    fixed: PyTree  # parameters that stay as they are, in the structure of all; None elsewhere
    put_together: Callable[[PyTree, PyTree], Any] = eqx.field(static=True)  # of parameters and rest
    # How many inputs each parameter array has, in the order of the leaves; 1 where a prior is not
    # scaled by them.
    inputs: tuple[int, ...] = eqx.field(static=True)
    batched: bool = eqx.field(static=True)  # whether the module takes a whole batch
    convolves: bool = eqx.field(static=True, default=False)  # then by products, on a host
    compute_dtype: Any = eqx.field(static=True, default=None)  # of the forward pass; None: as given
    # The module's own dtype of each parameter array that has fewer bits than the position's
    # float32; None for others.
    own: tuple[Any, ...] = eqx.field(static=True, default=())

    def module(self, parameters: PyTree) -> Any:
        """The module with these parameters, a tree like that of `take_apart`, in its own dtypes."""
        if any(self.own):
            leaves, structure = jax.tree.flatten(parameters)
            parameters = structure.unflatten(map(_cast, self.own, leaves))
        return self._whole(parameters)

    def _whole(self, parameters: PyTree) -> Any:
        parameters = parameters if self.fixed is None else eqx.combine(parameters, self.fixed)
        return self.put_together(parameters, self.rest)

    def __call__(self, parameters: PyTree, rows: PyTree) -> Array:
        """The outputs for some rows, leading axis n; of fewer bits, in the parameters' dtype."""
        low = self.compute_dtype
        network, cast, rows = _cast(low, (self, parameters, rows))

        def outputs(parameters: PyTree, rows: PyTree) -> Array:
            module = network.module(parameters) if low is None else network._whole(parameters)
            return module(rows) if self.batched else jax.vmap(module)(rows)

        if self.convolves and jax.default_backend() == "cpu":
            outputs = as_products(outputs)
        found = outputs(cast, rows)
        fewer = low is not None or any(self.own)
        return _cast(tree.result_dtype(parameters), found) if fewer else found

    def computed_in(self, dtype: Any) -> "Network":
        """The same network with another dtype of the forward pass. Raises: TypeError for none."""
        if dtype is None:
            return self
        try:
            dtype = jnp.dtype(dtype)
        except TypeError:
            dtype = None
        if dtype is None or not jnp.issubdtype(dtype, jnp.floating):
            raise TypeError("compute_dtype must be a floating-point dtype, such as jnp.bfloat16.")
        return dataclasses.replace(self, compute_dtype=dtype)

    def fitted_to(self, parameters: PyTree, rows: PyTree) -> "Network":
        """The same network, after a look at what it does with such rows."""
        convolves = uses(lambda both: self(*both), (parameters, rows), CONVOLUTION)
        inputs = self.inputs
        if isinstance(self.put_together, _Linen):
            known = _seen_in_linen(lambda: jax.eval_shape(self, parameters, rows))
            inputs = tuple(map(known.get, _keys(parameters), inputs))
        return dataclasses.replace(self, convolves=convolves, inputs=inputs)


def _cast(dtype: Any, given: PyTree) -> PyTree:
    """A tree with its floating-point arrays in a dtype; None leaves them as they are."""

    def leaf(x: Any) -> Any:
        array = isinstance(x, jax.Array | np.ndarray)
        return x.astype(dtype) if array and jnp.issubdtype(x.dtype, jnp.floating) else x

    return given if dtype is None else jax.tree.map(leaf, given)


def take_apart(module: Any, batched: bool | None, trainable: Any = None) -> tuple[Network, PyTree]:
    """A module as a function of its parameters, and these: its floating-point arrays.

    They are the module with None in place of all else for Equinox, a dict for Flax; where
    `trainable` chooses some, the others are None too. Those in half precision are held in single.
    By default an Equinox module takes one row and all others a batch; `batched` says otherwise.
    Raises: TypeError for what is no such module, ValueError for one with no posterior.
    """
    if batched is not None:
        flag("batched", batched)
    network, parameters = _parts(module, batched)
    leaves = jax.tree_util.tree_leaves_with_path(parameters)
    if not leaves:
        raise ValueError("module has no floating-point array, so there is nothing to sample.")
    for path, leaf in leaves:
        if jnp.iscomplexobj(leaf):
            raise TypeError(f"{tree.path_name(path)} is complex; a position must be real.")
    if trainable is None:
        return _held(network, parameters)
    chosen = tree.chosen_by_name(trainable, parameters)
    moving, fixed = eqx.partition(parameters, chosen)
    which = zip(network.inputs, jax.tree.leaves(chosen), strict=True)
    inputs = tuple(count for count, moves in which if moves)
    return _held(dataclasses.replace(network, fixed=fixed, inputs=inputs), moving)


def _held(network: Network, parameters: PyTree) -> tuple[Network, PyTree]:
    """Parameters as samplers hold them: of fewer bits, in single precision.

    A step is smaller than the rounding of a weight in half precision, and would be lost.
    """

    def few(x: Array | np.ndarray) -> bool:
        return jnp.finfo(x.dtype).bits < 32

    own = tuple(x.dtype if few(x) else None for x in jax.tree.leaves(parameters))
    held = jax.tree.map(lambda x: x.astype(jnp.float32) if few(x) else x, parameters)
    return dataclasses.replace(network, own=own), held


def _parts(module: Any, batched: bool | None) -> tuple[Network, PyTree]:
    kinds = [cls.__module__ for cls in inspect.getmro(type(module))]
    if isinstance(module, Function):
        return _function(module, batched is not False)
    if isinstance(module, eqx.Module) and callable(module):
        return _equinox(module, bool(batched))
    if callable(module) and any(kind.startswith("flax.nnx") for kind in kinds):
        return _nnx(module, batched is not False)
    if any(kind.startswith("flax.linen") for kind in kinds):
        return _linen(module, batched is not False)
    what = repr(module) if not callable(module) else type(module).__name__
    raise TypeError(
        f"module must be an Equinox or Flax module, not {what}. Of a function of parameters and a "
        "batch, such as Haiku's, try network.Function(apply, parameters)."
    )


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
    return Network(tree.hide(rest), None, _combined, inputs, batched), parameters


def _inputs(path: tuple[Any, ...], leaf: Any) -> int:
    """Equinox keeps outputs first; a bias has the outputs' axis alone, or further axes of one."""
    if tree.path_name(path).rpartition(".")[2] == "bias":
        return 1
    return math.prod(leaf.shape[1:])


def _nnx(module: Any, batched: bool) -> tuple[Network, dict[str, Any]]:
    from flax import nnx

    known = {}
    for path, node in nnx.iter_graph(module):
        where = ".".join(map(str, path)) or type(node).__name__
        if isinstance(node, nnx.BatchStat | nnx.BatchNorm):
            raise ValueError(STATEFUL.format(where=where, kind="BatchStat"))
        if isinstance(node, nnx.Dropout) and not node.deterministic and node.rate > 0:
            raise ValueError(DROPOUT.format(where=where, how="module.eval()"))
        if isinstance(node, nnx.LinearGeneral):
            known[(*map(str, path), "kernel")] = math.prod(np.atleast_1d(node.in_features).tolist())
        if isinstance(node, nnx.ConvTranspose):
            known[(*map(str, path), "kernel")] = _of_transposed(node, node.kernel[...])
    graph, parameters, rest = nnx.split(module, nnx.Param, ...)
    pure = nnx.to_pure_dict(parameters)
    inputs = _inputs_by_name(pure, known)
    return Network(rest, None, _Nnx(graph), inputs, batched), pure


def _of_transposed(layer: Any, kernel: Array) -> int:
    """Inputs of a transposed convolution, whose kernel may have its outputs before them."""
    return kernel.size // kernel.shape[-2 if layer.transpose_kernel else -1]


def _seen_in_linen(call: Callable[[], Any]) -> dict[tuple[str, ...], int]:
    """Inputs of kernels whose shape alone does not tell, by the layers that are called."""
    from flax import linen

    known = {}

    def look(call: Any, args: Any, options: Any, context: Any) -> Any:
        found, layer = call(*args, **options), context.module
        if isinstance(layer, linen.DenseGeneral | linen.ConvTranspose):
            kernel = layer.get_variable("params", "kernel")
            if isinstance(layer, linen.ConvTranspose):
                count = _of_transposed(layer, kernel)
            else:
                first = np.size(layer.batch_dims)
                count = math.prod(kernel.shape[first : first + np.size(layer.axis)])
            known[(*layer.path, "kernel")] = count
        return found

    with linen.intercept_methods(look):
        call()
    return known


def _linen(module: Any, batched: bool) -> tuple[Network, dict[str, Any]]:
    if module.scope is None:
        raise TypeError(
            f"{type(module).__name__} has no parameters yet: a Linen module must be bound to them. "
            "Try network.posterior(module.bind(variables), ...)."
        )
    unbound, variables = module.unbind()
    rest = {name: values for name, values in variables.items() if name != "params"}
    if "batch_stats" in rest:
        where = tree.path_name(jax.tree_util.tree_leaves_with_path(rest["batch_stats"])[0][0])
        raise ValueError(STATEFUL.format(where=where, kind="batch_stats"))
    parameters = dict(variables.get("params", {}))
    inputs = _inputs_by_name(parameters)
    return Network(rest, None, _Linen(unbound), inputs, batched), parameters


def _function(module: Function, batched: bool) -> tuple[Network, PyTree]:
    parameters, rest = eqx.partition(module.parameters, eqx.is_inexact_array)
    inputs = _inputs_by_name(parameters)
    return Network(tree.hide(rest), None, _Function(module.apply), inputs, batched), parameters


def _keys(parameters: PyTree) -> list[tuple[str, ...]]:
    """The path of each array."""
    paths = jax.tree_util.tree_leaves_with_path(parameters)
    return [tuple(tree.path_name((key,)) for key in path) for path, _ in paths]


def _inputs_by_name(
    parameters: PyTree, known: dict[tuple[str, ...], int] | None = None
) -> tuple[int, ...]:
    """Flax and Haiku keep outputs last; a bias beside an array has their shape."""
    arrays = list(zip(_keys(parameters), jax.tree.leaves(parameters), strict=True))
    outputs = {key[:-1]: x.size for key, x in arrays if key and key[-1] in BIASES}

    def inputs(key: tuple[str, ...], x: Array) -> int:
        if x.ndim < 2 or (key and key[-1] in NAMES_WITHOUT_INPUTS):
            return 1
        return (known or {}).get(key) or max(1, x.size // outputs.get(key[:-1], x.shape[-1]))

    return tuple(inputs(key, x) for key, x in arrays)
