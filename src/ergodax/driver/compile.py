"""How programs are compiled: levels of optimisation, and functions told apart by what they do.

With XLA's optimisations a program such as a descent takes twice as long to compile, and runs five
times as fast. These numbers were measured on two cores; the environment can give others, which are
read when `ergodax` is imported. Draws depend on them by rounding alone.

| variable | what it is | |
|---|---|---|
| ERGODAX_OPTIMISATION | XLA's level of optimisation for programs that take steps, 0 to 3 | 2 |
| ERGODAX_FUSED_NUMBERS | numbers in a step that is fused on CPUs, at most; 0 for none | 32768 |
| ERGODAX_WIDE_PRODUCT | w: chains run in turn on CPUs from products of w x w numbers on | 64 |
"""

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Jaxpr, Literal
from jaxtyping import Array, PRNGKeyArray, PyTree

from ergodax.kernel import Methods
from ergodax.tree import is_key

_SHORT_RUNS: ContextVar[bool] = ContextVar("short_runs", default=False)
# Rules of differentiation are new objects at every trace. A Traced is never differentiated.
DERIVATIVES = frozenset({"jvp_jaxpr_fun", "jvp_jaxpr_thunk", "fwd_jaxpr_thunk", "bwd"})


def measured(name: str, default: int, most: int = 2**31 - 1) -> int:
    """A number that the environment may give. Raises: ValueError."""
    text = os.environ.get(name, str(default))
    if not text.isdecimal() or int(text) > most:
        raise ValueError(f"{name} must be an integer in [0, {most}], not {text!r}. Try {default}.")
    return int(text)


OPTIMISATION = measured("ERGODAX_OPTIMISATION", 2, 3)


def compiled_at(
    function: Callable, level: int = 0, more: dict[str, Any] | None = None, **options: Any
) -> Callable:
    """`eqx.filter_jit` without all the optimisations of XLA's back end, from level 0 to 3.

    At 2 the samplers that were measured ran as fast as at 3 and were compiled in four fifths of the
    time. `more` are options of XLA. What it returns can't be called within another program.
    """
    compiler = {"xla_backend_optimization_level": level} | (more or {})
    settings: Any = {"compiler_options": compiler} | options
    return eqx.filter_jit(function, **settings)


@contextlib.contextmanager
def short_runs(short: bool = True) -> Iterator[None]:
    """Within it, in this thread, the draws of `sample` are made by an unoptimised program.

    They are the same up to rounding. With `short=False` nothing is changed.
    """
    token = _SHORT_RUNS.set(short)
    try:
        yield
    finally:
        _SHORT_RUNS.reset(token)


def runs_are_short() -> bool:
    """Whether `short_runs` holds here."""
    return _SHORT_RUNS.get()


class Traced(eqx.Module):
    """A function of arguments of fixed shapes and dtypes, told apart by what it traces to.

    JAX compiles anew for each new function object, so a lambda written at a call would cost a
    compilation at every call. Equal jaxprs share one compiled program. What can't be compared by
    value, such as a callback to Python, is compared by identity.
    """

    arrays: list[Array]  # that it uses besides its arguments; they are arguments of the program
    program: "Program" = eqx.field(static=True)  # what it does with all of them

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

    def __init__(self, jaxpr: Jaxpr, shapes: PyTree, rest: PyTree) -> None:
        self.jaxpr, self.shapes, self.rest = jaxpr, shapes, rest
        results = *jax.tree.flatten(shapes), *jax.tree.flatten(rest)
        self.meaning = _of_jaxpr(jaxpr), _value(results)

    def __call__(self, arrays: list[Array], args: tuple) -> PyTree:
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
    """Trace a function of trees of arrays, or of their shapes.

    Where the function is itself a tree, the arrays in it stay arguments.
    """
    own, static = eqx.partition(function, eqx.is_array)
    leaves, structure = jax.tree.flatten(own)

    def whole(leaves: list, args: tuple) -> PyTree:
        return eqx.combine(jax.tree.unflatten(structure, leaves), static)(*args)

    closed, shapes, rest = eqx.filter_make_jaxpr(whole)(leaves, args)
    arrays = [jnp.asarray(x) for x in closed.consts] + leaves
    return Traced(arrays, Program(closed.jaxpr, shapes, rest))


def traced_kernel(kernel: Any, key: PRNGKeyArray, positions: PyTree) -> Any:
    """The kernel; one of plain functions with these traced, positions having a chain axis."""
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

    def atoms(variables: Any) -> tuple:
        return tuple(
            (
                v.aval,
                _value(v.val) if isinstance(v, Literal) else numbers.setdefault(v, len(numbers)),
            )
            for v in variables
        )

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
    if is_key(x):
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
