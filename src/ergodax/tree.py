"""Algebra on PyTrees: a position is any tree of floating-point arrays.

Scalars are cast to the dtype of each leaf, so that a float64 step size never promotes a
float32 state. Leaves that are not arrays (the activation function of a network, say) are
kept in the tree's structure by `freeze` and given back to the user's functions by `thaw`, which
also gives constrained parameters in place of the unconstrained numbers that samplers move in.
"""

import contextlib
import contextvars
import dataclasses
import fnmatch
import functools
from collections.abc import Callable, Generator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from ergodax.random_numbers import normal, rademacher

# A number, or an array of them that a formula takes in its place.
Number = float | int | np.number[Any] | np.ndarray | Array

ON_THE_HOST = 2**20  # numbers that are looked at there


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Static:
    """A leaf that is not an array, held in the structure of the tree."""

    value: Any


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["value"], meta_fields=["transform"]
)
@dataclasses.dataclass(frozen=True)
class Unconstrained:
    """A part of a position that is constrained: its unconstrained numbers, and the map back.

    Attributes:
        value: the numbers, in which samplers move.
        transform: one of `ergodax.transform`; its `forward` gives what the user's functions see.
    """

    value: PyTree
    transform: Any


class Identified(eqx.Module):
    """A module that is equal to itself alone, so that it has a hash whatever its leaves are."""

    def __hash__(self) -> int:
        """By identity."""
        return object.__hash__(self)

    def __eq__(self, other: object) -> bool:
        """By identity."""
        return self is other


def freeze(position: PyTree, name: str = "position") -> PyTree:
    """Make a user's position a tree whose leaves are all floating-point arrays.

    Args:
        position: arrays, dicts, tuples, Equinox modules, in any nesting.
        name: what to call the argument in an error.

    Returns:
        The same tree with JAX arrays as leaves; whatever is not a number becomes `Static`.

    Raises:
        TypeError: a leaf is an integer, boolean or complex array.
        ValueError: there is no floating-point leaf.
    """

    def leaf(path: tuple[Any, ...], value: Any) -> Any:
        if isinstance(value, jax.Array | np.ndarray | np.generic | float | int | complex):
            if isinstance(value, bool):
                return Static(value)
            held = getattr(value, "dtype", np.dtype(float))
            dtype = jnp.result_type(value) if jnp.issubdtype(held, np.number) else held
            if not jnp.issubdtype(dtype, jnp.floating):
                where = name + jax.tree_util.keystr(path)
                raise TypeError(
                    f"{where} has dtype {dtype}, but a position must be floating point: the "
                    f"samplers follow gradients. Try jnp.asarray({where}, float)."
                )
            if not isinstance(value, jax.Array):  # a copy: JAX may go on to use NumPy's memory
                with np.errstate(over="ignore"):
                    value = np.array(value, dtype)
            return jnp.asarray(value, dtype)  # of a full type: a weak one would compile twice
        return Static(value)

    try:
        jax.tree.structure(position)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{name} must be a tree of arrays; the keys of each dict must be of one kind, so that "
            "they can be sorted."
        ) from error
    frozen = jax.tree_util.tree_map_with_path(leaf, position)
    if not jax.tree.leaves(frozen):
        raise ValueError(f"{name} holds no floating-point array, so there is nothing to sample.")
    return frozen


def apart(tree: PyTree, others: PyTree) -> PyTree:
    """The same tree, no array of which is there twice or in `others`, so that it can be donated."""
    seen = {id(x) for x in jax.tree.leaves(others)}

    def leaf(x: Any) -> Any:
        if not eqx.is_inexact_array(x) or is_traced(x):
            return x
        if id(x) in seen:
            return jnp.array(x)
        seen.add(id(x))
        return x

    return jax.tree.map(leaf, tree)


def hide(tree: PyTree) -> PyTree:
    """Put every leaf that is not an array into the structure, whatever the arrays' dtypes."""
    return jax.tree.map(
        lambda x: x if isinstance(x, jax.Array | np.ndarray | np.generic) else Static(x), tree
    )


def thaw(tree: PyTree) -> PyTree:
    """Undo `freeze` and `hide`: give back leaves that are not arrays, and constrained values."""

    def given(node: Any) -> Any:
        if isinstance(node, Unconstrained):
            return node.transform.forward(node.value)
        return node.value if isinstance(node, Static) else node

    return jax.tree.map(given, tree, is_leaf=lambda x: isinstance(x, Static | Unconstrained))


def bare(tree: PyTree) -> PyTree:
    """A position as the samplers hold it, in the user's structure: constraints are taken off."""
    return jax.tree.map(
        lambda x: x.value if isinstance(x, Unconstrained) else x,
        tree,
        is_leaf=lambda x: isinstance(x, Unconstrained),
    )


def matched(values: PyTree, like: PyTree) -> PyTree:
    """Values that a user gave for each leaf of a position, in its structure and dtypes."""
    cast = jax.tree.map(lambda v, y: v.astype(y.dtype), bare(values), bare(like))
    return jax.tree.structure(like).unflatten(jax.tree.leaves(cast))


def is_traced(x: Any) -> bool:
    """Whether x is known only to a running transformation, so that its value can't be checked."""
    return isinstance(x, jax.core.Tracer)  # pyright: ignore[reportAttributeAccessIssue]


def is_key(x: Any) -> bool:
    """Whether x is one of JAX's typed keys, or an array of them, known or by its shape alone."""
    array = isinstance(x, jax.Array | jax.ShapeDtypeStruct)
    return array and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def map_leaves(function: Callable[..., Any], *trees: PyTree) -> PyTree:
    """Apply `function` to corresponding leaves."""
    return jax.tree.map(function, *trees)


def cast(scalar: Number, leaf: Array) -> Array:
    """`scalar` in the dtype of `leaf`."""
    return jnp.asarray(scalar).astype(leaf.dtype)


def scale(scalar: Number, tree: PyTree) -> PyTree:
    """scalar * tree."""
    return jax.tree.map(lambda x: cast(scalar, x) * x, tree)


def add(a: PyTree, b: PyTree) -> PyTree:
    """a + b."""
    return jax.tree.map(jnp.add, a, b)


def subtract(a: PyTree, b: PyTree) -> PyTree:
    """a - b."""
    return jax.tree.map(jnp.subtract, a, b)


def add_scaled(tree: PyTree, scalar: Number, direction: PyTree) -> PyTree:
    """tree + scalar * direction."""
    return jax.tree.map(lambda x, y: x + cast(scalar, x) * y, tree, direction)


def multiply(a: PyTree, b: PyTree) -> PyTree:
    """Elementwise product."""
    return jax.tree.map(jnp.multiply, a, b)


def dot(a: PyTree, b: PyTree) -> Float[Array, ""]:
    """Sum over all leaves of the inner products."""
    dtype = result_dtype(a)
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return sum((jnp.sum(x * y).astype(dtype) for x, y in pairs), start=jnp.zeros((), dtype))


def sum_rows(tree: PyTree) -> PyTree:
    """The sum over the leading axis of every leaf.

    As a product with ones, which XLA does several times faster on CPUs than a sum down columns.
    """
    return jax.tree.map(lambda x: jnp.tensordot(jnp.ones(x.shape[0], x.dtype), x, 1), tree)


def mean_rows(tree: PyTree) -> PyTree:
    """The mean over the leading axis of every leaf."""
    return jax.tree.map(lambda x, s: s / x.shape[0], tree, sum_rows(tree))


def norm(tree: PyTree) -> Float[Array, ""]:
    """Euclidean norm over all leaves."""
    return jnp.sqrt(dot(tree, tree))


def zeros_like(tree: PyTree) -> PyTree:
    """Zeros of the same structure, shapes and dtypes."""
    return jax.tree.map(jnp.zeros_like, tree)


def size(tree: PyTree) -> int:
    """The number of scalars in the tree."""
    return sum(int(np.prod(np.shape(leaf), dtype=np.int64)) for leaf in jax.tree.leaves(tree))


def result_dtype(tree: PyTree) -> Any:
    """The widest dtype among the leaves."""
    return max((leaf.dtype for leaf in jax.tree.leaves(tree)), key=lambda dtype: dtype.itemsize)


def all_finite(tree: PyTree) -> Bool[Array, ""]:
    """Whether every floating-point number in the tree is finite."""
    leaves = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(jnp.result_type(x), jnp.inexact)]
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in leaves]))


def known_finite(tree: PyTree) -> bool:
    """`all_finite` of a tree that is not traced; small ones are looked at on the host.

    There nothing has to be compiled, which takes longer than to look.
    """
    if sum(jnp.size(x) for x in jax.tree.leaves(tree)) > ON_THE_HOST:
        return bool(all_finite(tree))
    leaves = [np.asarray(x) for x in jax.tree.leaves(tree)]
    inexact = [x for x in leaves if jnp.issubdtype(x.dtype, jnp.inexact)]
    return all(bool(np.isfinite(x).all()) for x in inexact)


def ravel(tree: PyTree) -> tuple[Float[Array, " d"], Callable[[Float[Array, " d"]], PyTree]]:
    """The tree as one vector, and the function that undoes it."""
    return ravel_pytree(tree)


def matrix_of(function: Callable[[PyTree], PyTree], like: PyTree) -> Float[Array, "rows columns"]:
    """The matrix of a linear function of trees, on the raveled trees."""
    flat, unravel = ravel(like)
    basis = jnp.eye(flat.size, dtype=flat.dtype)
    return jax.vmap(lambda e: ravel(function(unravel(e)))[0], out_axes=1)(basis)


def _random_like(draw: Callable[..., Any], key: PRNGKeyArray, tree: PyTree) -> PyTree:
    # One draw for the whole tree: a flat vector and a nested position of the same size see
    # the same numbers, and a tree of many leaves costs one call of the generator.
    leaves, structure = jax.tree.flatten(tree)
    kinds = [getattr(leaf, "dtype", None) for leaf in leaves]
    if not (
        kinds and all(kind is not None and jnp.issubdtype(kind, jnp.inexact) for kind in kinds)
    ):
        raise TypeError(f"tree must be a tree of floating-point arrays, not {kinds}.")
    raw = isinstance(key, jax.Array | np.ndarray) and key.dtype == jnp.uint32
    if not (raw or is_key(key)):
        raise TypeError(f"key must be one key, such as jax.random.key(0), not {key!r}.")
    if len(leaves) == 1:
        return structure.unflatten([draw(key, leaves[0].shape, leaves[0].dtype)])
    flat = draw(key, (size(tree),), result_dtype(tree))
    ends = np.cumsum([leaf.size for leaf in leaves])
    parts = [
        flat[end - leaf.size : end].reshape(leaf.shape).astype(leaf.dtype)
        for leaf, end in zip(leaves, ends, strict=True)
    ]
    return structure.unflatten(parts)


def normal_like(key: PRNGKeyArray, tree: PyTree) -> PyTree:
    """Independent standard normal numbers in the shape of `tree`.

    Args:
        key: a fresh key.
        tree: any tree of floating-point arrays; only its shapes and dtypes matter.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> weights = {"w": jnp.zeros((3, 2)), "b": jnp.zeros(2)}
        >>> jax.tree.map(jnp.shape, ex.normal_like(jax.random.key(0), weights))
        {'b': (2,), 'w': (3, 2)}
    """
    source = _source.get()
    return _random_like(normal, key, tree) if source is None else source(key, tree)


# Two chains are coupled by the numbers that one of them drew; see `diagnostics.bias`.
_source: contextvars.ContextVar[Callable[..., Any] | None] = contextvars.ContextVar(
    "source", default=None
)


@contextlib.contextmanager
def recorded_normals() -> Generator[list[PyTree]]:
    """While active, every tree that `normal_like` draws is also put into the list it gives."""
    drawn: list[PyTree] = []

    def record(key: PRNGKeyArray, tree: PyTree) -> PyTree:
        drawn.append(_random_like(normal, key, tree))
        return drawn[-1]

    token = _source.set(record)
    try:
        yield drawn
    finally:
        _source.reset(token)


@contextlib.contextmanager
def given_normals(normals: list[PyTree]) -> Generator[None]:
    """While active, `normal_like` returns these trees in their order instead of drawing.

    Raises:
        ValueError: more, fewer or others are asked for.
    """
    left = iter(normals)

    def give(key: PRNGKeyArray, tree: PyTree) -> PyTree:
        normal = next(left, None)
        if jax.tree.structure(normal) != jax.tree.structure(tree):
            raise ValueError(f"other normal trees were asked for than the {len(normals)} given.")
        return normal

    token = _source.set(give)
    try:
        yield
    finally:
        _source.reset(token)
    if next(left, None) is not None:
        raise ValueError(f"fewer normal trees were asked for than the {len(normals)} given.")


@contextlib.contextmanager
def mixed_normals(key: PRNGKeyArray, weights: Float[Array, "2"]) -> Generator[None]:
    """While active, `normal_like` returns a weighted sum of two normal trees, new at each call.

    The two follow from `key` and from how often it was called: steps that are given one key here
    and different weights have numbers whose covariance is the product of their weights.

    Raises:
        jax.errors.UnexpectedTracerError: it was called within a compiled loop or condition, where
            each turn would have the same numbers.
    """
    drawn: list[PyTree] = []

    def mix(_: PRNGKeyArray, tree: PyTree) -> PyTree:
        keys = jax.random.split(jax.random.fold_in(key, len(drawn)))
        pair = jax.vmap(lambda key: _random_like(normal, key, tree))(keys)
        drawn.append(jax.tree.map(lambda x: jnp.tensordot(weights.astype(x.dtype), x, 1), pair))
        return drawn[-1]

    token = _source.set(mix)
    try:
        yield
    finally:
        _source.reset(token)
    jax.tree.map(jnp.negative, drawn)  # JAX refuses it of numbers that only a loop inside has


def rademacher_like(key: PRNGKeyArray, tree: PyTree) -> PyTree:
    """Independent signs, +1 or -1, in the shape of `tree`."""
    return _random_like(rademacher, key, tree)


def signs(key: PRNGKeyArray, probability: PyTree) -> PyTree:
    """Independent signs, +1 with these probabilities and else -1."""
    uniform = _random_like(jax.random.uniform, key, probability)
    return jax.tree.map(
        lambda u, p: jnp.where(u < p, 1.0, -1.0).astype(p.dtype), uniform, probability
    )


def path_name(path: tuple[Any, ...]) -> str:
    """A key path as a name: ("layers", 0, "weight") gives "layers.0.weight"."""
    return jax.tree_util.keystr(path, simple=True, separator=".")


def chosen_by_name(which: Any, tree: PyTree) -> PyTree:
    """True at the leaves of a tree whose names are chosen, else False.

    Args:
        which: a name such as "layers.0", which stands for all below it, a pattern such as "*bias",
            a list of them, or a function of a leaf's name.
        tree: any; "layers.0.weight" is the name of a leaf.

    Raises:
        TypeError: none of these.
        ValueError: no leaf is chosen.
    """
    patterns = [which] if isinstance(which, str) else which
    if not callable(which) and not (
        isinstance(patterns, list | tuple) and all(isinstance(p, str) for p in patterns)
    ):
        raise TypeError(
            "trainable must be a name or a pattern of leaves, a list of them, or a function of a "
            f"leaf's name, not {which!r}."
        )

    def fits(path: tuple[Any, ...], leaf: Any) -> bool:
        name = path_name(path)
        if callable(which):
            return bool(which(name))
        return any(
            name == p or name.startswith(f"{p}.") or fnmatch.fnmatchcase(name, p) for p in patterns
        )

    found = jax.tree_util.tree_map_with_path(fits, tree)
    if not any(jax.tree.leaves(found)):
        names = [path_name(path) for path, _ in jax.tree_util.tree_leaves_with_path(tree)]
        raise ValueError(
            f"trainable={which!r} chooses no leaf of {', '.join(names[:20])}. Try one of these "
            "names, or a pattern such as '*weight'."
        )
    return found
