"""Functions that are told apart by what they trace to, not by their identity.

JAX compiles anew for each new function object, so a lambda written at a call would cost a
compilation at every call. A `Traced` holds the function's jaxpr instead, and equal jaxprs share
one compiled program. Arrays that the function closes over are arguments of that program. Whatever
can't be compared by value, such as a callback to Python, is compared by identity.
"""

import hashlib
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal
from jaxtyping import PyTree

from ergodax.kernel import Methods

# Rules of differentiation are new objects at every trace. A Traced is never differentiated.
DERIVATIVES = frozenset({"jvp_jaxpr_fun", "jvp_jaxpr_thunk", "fwd_jaxpr_thunk", "bwd"})


class Traced(eqx.Module):
    """A function of arguments of fixed shapes and dtypes.

    Attributes:
        arrays: that the function uses besides its arguments.
        program: what it does with all of them.
    """

    arrays: list[Any]
    program: "Program" = eqx.field(static=True)

    def __call__(self, *args: PyTree) -> PyTree:
        """The function's value."""
        return self.program(self.arrays, args)


class Program:
    """A jaxpr with the structure of its results. Two that do the same are equal.

    Args:
        jaxpr: of arrays and arguments, flattened.
        shapes: of the results, a tree; None for a result that is not an array.
        rest: the results that are not arrays.
    """

    def __init__(self, jaxpr: Any, shapes: PyTree, rest: PyTree) -> None:
        self.jaxpr, self.shapes, self.rest = jaxpr, shapes, rest
        results = *jax.tree.flatten(shapes), *jax.tree.flatten(rest)
        self.meaning = _of_jaxpr(jaxpr), _value(results)

    def __call__(self, arrays: list[Any], args: tuple) -> PyTree:
        """The results for these arrays and arguments."""
        constants = len(self.jaxpr.constvars)
        results = jax.core.eval_jaxpr(  # pyright: ignore[reportAttributeAccessIssue]
            self.jaxpr, arrays[:constants], *arrays[constants:], *jax.tree.leaves(args)
        )
        return eqx.combine(jax.tree.unflatten(jax.tree.structure(self.shapes), results), self.rest)

    def __hash__(self) -> int:
        return hash(self.meaning)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Program) and self.meaning == other.meaning)


def traced(function: Callable, *args: PyTree) -> Traced:
    """Trace a function.

    Args:
        function: any callable. Where it is a tree, the arrays in it stay arguments.
        args: trees of arrays, or of `jax.ShapeDtypeStruct`.
    """
    own, static = eqx.partition(function, eqx.is_array)
    leaves, structure = jax.tree.flatten(own)

    def whole(leaves: list, args: tuple) -> PyTree:
        return eqx.combine(jax.tree.unflatten(structure, leaves), static)(*args)

    closed, shapes, rest = eqx.filter_make_jaxpr(whole)(leaves, args)
    arrays = [jnp.asarray(x) for x in closed.consts] + leaves
    return Traced(arrays, Program(closed.jaxpr, shapes, rest))


def traced_kernel(kernel: Any, key: Any, positions: PyTree) -> Any:
    """The kernel; one of plain functions, told apart by what they trace to.

    Args:
        kernel: any.
        key: of a run.
        positions: with a leading chain axis.
    """
    if not isinstance(kernel, Methods):
        return kernel
    position = one_of(positions)
    init = traced(kernel.init, key, position)
    state = eqx.filter_eval_shape(init, key, position)
    return Methods(init, traced(kernel.step, key, state))


def one_of(tree: PyTree) -> PyTree:
    """The shapes of one chain's part of a tree with a leading chain axis."""
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(
            x.shape[1:], x.dtype, weak_type=getattr(x, "weak_type", False)
        ),
        tree,
    )


def _value(x: Any) -> Any:
    """Something hashable that is equal for things of the same value, and for no others."""
    if hasattr(x, "eqns"):
        return _of_jaxpr(x), _value(list(getattr(x, "consts", ())))
    if isinstance(x, jax.Array | np.ndarray | np.generic):
        return _of_array(x)
    if isinstance(x, float | complex):
        return type(x), repr(x)  # tells 0.0 from -0.0, and is equal for NaN
    if isinstance(x, tuple | list):
        return type(x), tuple(_value(part) for part in x)
    if isinstance(x, dict):
        return dict, tuple((_value(name), _value(part)) for name, part in x.items())
    try:
        hash(x)
    except TypeError:
        return _Same(x)
    return type(x), x


def _of_jaxpr(x: Any) -> tuple:
    jaxpr, numbers = getattr(x, "jaxpr", x), {}

    def atom(v: Any) -> Any:
        if isinstance(v, Literal):
            return v.aval, _value(v.val)
        return v.aval, numbers.setdefault(v, len(numbers))

    def atoms(variables: Any) -> tuple:
        return tuple(atom(v) for v in variables)

    equations = tuple(
        (
            e.primitive,
            atoms(e.invars),
            tuple((k, _value(v)) for k, v in e.params.items() if k not in DERIVATIVES),
            atoms(e.outvars),
        )
        for e in jaxpr.eqns
    )
    return atoms(jaxpr.constvars), atoms(jaxpr.invars), equations, atoms(jaxpr.outvars)


def _of_array(x: Any) -> tuple:
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return str(x.dtype), _of_array(jax.random.key_data(x))
    array = np.ascontiguousarray(x)
    digest = hashlib.blake2b(array.view(np.uint8).data, digest_size=16).digest()
    return str(array.dtype), np.shape(x), getattr(x, "weak_type", False), digest


class _Same:
    """Equal to itself alone. It keeps the object alive, so that no other takes its place."""

    def __init__(self, it: Any) -> None:
        self.it = it

    def __hash__(self) -> int:
        return id(self.it)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.it is other.it
