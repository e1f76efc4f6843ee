"""Convolutions as products of matrices, which a processor computes as fast inside of loops.

On a host's processor XLA computes a convolution by a library's threads, but inside of a loop, where
samplers have theirs, by plain code that is many times slower. A product of matrices is fast in
both.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Jaxpr, Literal
from jaxtyping import Array, PyTree

from ergodax.graph import uses_within

CONVOLUTION = "conv_general_dilated"
CALLS = ("jit", "pjit", "closed_call")  # that may be written out in place
LARGEST = 2**26  # numbers in the copies of an input, of which a derivative keeps one set a layer


def as_products(function: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """The same function with its convolutions as products; others than the common ones stay.

    Those inside of loops, conditions and custom rules stay too, those whose input is dilated or
    whose channels are in groups, and those for which the copies of the input would be too large.
    """

    def call(*args: Any) -> PyTree:
        closed, shape = jax.make_jaxpr(function, return_shape=True)(*args)
        found = _evaluate(closed.jaxpr, closed.consts, jax.tree.leaves(args))
        return jax.tree.unflatten(jax.tree.structure(shape), found)

    return call


def _evaluate(jaxpr: Jaxpr, constants: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
    """The outputs of a graph, its convolutions as products."""
    known: dict[Any, Any] = dict(
        zip([*jaxpr.constvars, *jaxpr.invars], [*constants, *arguments], strict=True)
    )

    def value(variable: Any) -> Any:
        return variable.val if isinstance(variable, Literal) else known[variable]

    for equation in jaxpr.eqns:
        inputs, name = [value(v) for v in equation.invars], equation.primitive.name
        if name == CONVOLUTION and _common(equation):
            found = [_product(inputs[0], inputs[1], equation.params)]
        elif name in CALLS and uses_within(equation.params["jaxpr"].jaxpr, CONVOLUTION):
            inner = equation.params["jaxpr"]
            found = _evaluate(inner.jaxpr, inner.consts, inputs)
        else:
            result = _applied(equation, inputs)
            found = result if equation.primitive.multiple_results else [result]
        known.update(zip(equation.outvars, found, strict=True))
    return [value(v) for v in jaxpr.outvars]


def _applied(equation: Any, inputs: list[Any]) -> Any:
    """What an equation makes of other inputs."""
    bound = equation.primitive.get_bind_params(equation.params)
    functions, params = bound if isinstance(bound, tuple) else ((), bound)  # JAX before 0.12
    return equation.primitive.bind(*functions, *inputs, **params)


def _common(equation: Any) -> bool:
    """Whether `_product` knows such a convolution, and has the room for it."""
    params, kernel, result = equation.params, equation.invars[1].aval, equation.outvars[0].aval
    outputs = kernel.shape[params["dimension_numbers"].rhs_spec[0]]
    copies = result.size // max(outputs, 1) * kernel.size // max(outputs, 1)
    groups = params["feature_group_count"] * params["batch_group_count"]
    return groups == 1 and all(d == 1 for d in params["lhs_dilation"]) and copies <= LARGEST


def _product(x: Array, kernel: Array, params: dict[str, Any]) -> Array:
    """Shifted copies of the input side by side, times the kernel as a matrix."""
    axes = params["dimension_numbers"]
    batch, channel, *space = axes.lhs_spec
    x = jnp.transpose(x, (batch, *space, channel))
    outputs, inputs, *places = axes.rhs_spec
    kernel = jnp.transpose(kernel, (*places, inputs, outputs))

    zero = jnp.zeros((), x.dtype)
    x = jax.lax.pad(x, zero, [(0, 0, 0), *((*p, 0) for p in params["padding"]), (0, 0, 0)])
    sizes, dilation, strides = kernel.shape[:-2], params["rhs_dilation"], params["window_strides"]
    spans = [(size - 1) * d + 1 for size, d in zip(sizes, dilation, strict=True)]
    counts = [(n - span) // s + 1 for n, span, s in zip(x.shape[1:-1], spans, strides, strict=True)]

    def shifted(place: tuple[int, ...]) -> Array:
        first = [k * d for k, d in zip(place, dilation, strict=True)]
        last = [f + (n - 1) * s + 1 for f, n, s in zip(first, counts, strides, strict=True)]
        begin, end = (0, *first, 0), (len(x), *last, x.shape[-1])
        return jax.lax.slice(x, begin, end, (1, *strides, 1))

    copies = [shifted(place) for place in itertools.product(*map(range, sizes))]
    patches = jnp.concatenate(copies, axis=-1).reshape(len(x) * int(np.prod(counts)), -1)
    found = jnp.dot(
        patches,
        kernel.reshape(patches.shape[1], kernel.shape[-1]),
        precision=params["precision"],
        preferred_element_type=params["preferred_element_type"],
    ).reshape(len(x), *counts, kernel.shape[-1])
    batch, channel, *space = axes.out_spec
    return jnp.transpose(found, np.argsort((batch, *space, channel)).tolist())
