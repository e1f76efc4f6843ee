"""What the traced graph of a function says about it: on what it depends, and how."""

from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.extend.core import Jaxpr, jaxpr_as_fun, jaxprs_in_params
from jaxtyping import PyTree

ELEMENTWISE = frozenset(
    """abs add add_any and atan2 cbrt ceil clamp convert_element_type copy cos cosh digamma div
    eq erf erf_inv erfc exp exp2 expm1 floor ge gt integer_pow is_finite le lgamma log log1p
    logistic lt max min mul ne neg not or pow rem round rsqrt select_n sign sin sinh sqrt square
    sub tan tanh xor""".split()
)
MIXED = -1  # of a variable: it depends on the argument otherwise than entry by entry


def traced(function: Callable[[PyTree], Any], at: PyTree) -> Callable[[PyTree], Any]:
    """The same function of one tree as its graph: calling it again does not call the user's again.

    Its arguments to come are like `at` in structure, shapes and dtypes.
    """
    closed, arrays, rest = eqx.filter_make_jaxpr(function)(at)
    structure, evaluate = jax.tree.structure(arrays), jaxpr_as_fun(closed)

    def call(z: PyTree) -> Any:
        # A result that depends on nothing comes back as a constant of the graph, not as an array.
        found = [jnp.asarray(x) for x in evaluate(*jax.tree.leaves(z))]
        return eqx.combine(structure.unflatten(found), rest)

    return call


def depends_on(function: Callable[[PyTree], Any], at: PyTree) -> bool:
    """Whether any array that a function of one tree returns is computed from it.

    Conservative: an operation all of whose paths are dead still counts. Shapes will do for `at`.
    """
    closed = jax.make_jaxpr(lambda z: eqx.filter(function(z), eqx.is_array))(at)
    touched = set(closed.jaxpr.invars)
    for equation in closed.jaxpr.eqns:
        if any(v in touched for v in equation.invars if not hasattr(v, "val")):
            touched.update(equation.outvars)
    return any(v in touched for v in closed.jaxpr.outvars if not hasattr(v, "val"))


def lowered(program: Any, *args: Any) -> Any:
    """A program of `eqx.filter_jit` traced for these arguments: its `compile` holds no lock.

    The program called with the like of them then neither traces nor compiles.
    """
    return program.lower(*args)


def equations(jaxpr: Jaxpr) -> Iterator[Any]:
    """All of a graph, each before those of the graphs inside it."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in jaxprs_in_params(equation.params):
            yield from equations(inner)


def uses(function: Callable[[PyTree], Any], at: PyTree, operation: str) -> bool:
    """Whether a primitive of JAX, whose name begins so, is anywhere in a function of one tree."""
    return uses_within(jax.make_jaxpr(function)(at).jaxpr, operation)


def uses_within(jaxpr: Jaxpr, operation: str) -> bool:
    """Whether such a primitive is anywhere in a graph."""
    return any(equation.primitive.name.startswith(operation) for equation in equations(jaxpr))


def is_elementwise(function: Callable[[PyTree], PyTree], at: PyTree) -> bool:
    """Whether each entry of function(at) depends on the same entry of `at` alone.

    Conservative: True only where the graph shows it. Shapes will do for `at`.
    """
    closed, out = jax.make_jaxpr(function, return_shape=True)(at)
    shapes = [jax.tree.map(lambda x: x.shape, tree) for tree in (out, at)]
    if shapes[0] != shapes[1]:
        return False
    leaves = range(len(closed.jaxpr.invars))
    sources = _sources(closed.jaxpr, list(leaves))
    return all(source in (None, leaf) for source, leaf in zip(sources, leaves, strict=True))


def calls_python(jaxpr: Jaxpr) -> bool:
    """Whether a program calls back to Python while it runs, where an exception may end it."""
    return any("callback" in equation.primitive.name for equation in equations(jaxpr))


def _sources(jaxpr: Any, arguments: list[int | None]) -> list[int | None]:
    """For each output the argument it is an elementwise function of; None for a constant."""
    source: dict[Any, int | None] = dict(zip(jaxpr.invars, arguments, strict=True))
    shape: dict[Any, Any] = {s: v.aval.shape for v, s in source.items()}

    def of(variable: Any) -> int | None:
        return None if hasattr(variable, "val") else source.get(variable)

    for equation in jaxpr.eqns:
        inputs = [of(v) for v in equation.invars]
        found = set(inputs) - {None}
        inner = _inner(equation)
        if not found:
            outputs: list[int | None] = [None] * len(equation.outvars)
        elif len(found) > 1 or MIXED in found:
            outputs = [MIXED] * len(equation.outvars)
        elif inner is not None and len(inner.invars) == len(inputs):
            outputs = _sources(inner, inputs)
        else:
            one = next(iter(found))
            kept = equation.primitive.name in ELEMENTWISE and all(
                v.aval.shape == shape.get(one) for v in equation.outvars
            )
            outputs = [one if kept else MIXED] * len(equation.outvars)
        source.update(zip(equation.outvars, outputs, strict=True))
    return [of(v) for v in jaxpr.outvars]


def _inner(equation: Any) -> Any:
    """The graph inside a call, if the equation is one."""
    for name in ("jaxpr", "call_jaxpr"):
        if name in equation.params and equation.primitive.name not in ("scan", "while", "cond"):
            closed = equation.params[name]
            return getattr(closed, "jaxpr", closed)
    return None
