"""Targets that can be differentiated in reverse mode alone, made fit for all of JAX.

`jax.custom_vjp`, as in ODE solvers and wrappers of simulators, has no forward mode, and so none of
the products with a Hessian that scales are found by. Here

    dU(x)[v] = <g(x), v>,     dg(x)[v] = grad <g(x), v>,     g = grad U,

are told to JAX as rules, the second in reverse over reverse. Where that can't be had either, as
where the gradient comes from outside of JAX, it is (g(x + e v) - g(x - e v)) / 2 e.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ergodax import tree
from ergodax.graph import uses
from ergodax.target.base import AbstractTarget


class ReverseTarget(AbstractTarget):
    """A target with rules for forward mode, which knows of no rows.

    Args:
        original: of unconstrained numbers, differentiated in reverse mode.
        exact: whether its gradient can be differentiated in reverse mode once more.
    """

    original: AbstractTarget
    exact: bool = eqx.field(static=True)
    constraints: None = eqx.field(static=True, default=None)

    @property
    def evaluations(self) -> int:
        """Likelihoods of single examples that one potential costs."""
        return self.original.evaluations

    @property
    def constrain(self) -> Any:
        """The way back for draws, where the original has one."""
        return self.original.constrain  # pyright: ignore[reportAttributeAccessIssue]

    def potential(self, position: PyTree) -> Float[Array, ""]:
        """U of the original."""
        return _potential(tree.freeze(position), self)


def forward_too(target: AbstractTarget, position: PyTree) -> AbstractTarget:
    """The target, or one of the same potential where forward mode does not go through it.

    Args:
        target: of unconstrained numbers, with data or without.
        position: where all shapes are known from; nothing is computed.
    """
    frozen = tree.freeze(position)
    if not uses(target.potential, frozen, "custom_vjp"):
        return target
    if _possible(lambda x: jax.jvp(target.gradient, (x,), (x,)), frozen):
        return target
    twice = jax.grad(lambda x: tree.dot(target.gradient(x), x))
    return ReverseTarget(target, _possible(twice, frozen))


def _possible(function: Any, position: PyTree) -> bool:
    """Whether JAX can differentiate as a function does; tracing alone would not tell."""
    try:
        jax.jit(function).lower(position)
    except (TypeError, ValueError, NotImplementedError):
        return False
    return True


@eqx.filter_custom_jvp
def _potential(position: PyTree, target: ReverseTarget) -> Float[Array, ""]:
    return target.original.potential(position)


@_potential.def_jvp
def _(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Array, Array]:
    position, target = primals
    value, slope = _value_and_slope(position, target)
    along = _filled(tangents[0], position)
    return value, tree.dot(slope, along).astype(value.dtype)


@eqx.filter_custom_jvp
def _value_and_slope(position: PyTree, target: ReverseTarget) -> tuple[Array, PyTree]:
    return target.original.value_and_gradient(position)


@_value_and_slope.def_jvp
def _(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
    (position, target), along = primals, _filled(tangents[0], primals[0])
    value, slope = _value_and_slope(position, target)
    gradient = target.original.gradient
    if target.exact:
        bend = jax.grad(lambda x: tree.dot(gradient(x), along))(position)
    else:
        size = jnp.finfo(tree.result_dtype(position)).eps ** (1 / 3)
        step = size * (1.0 + tree.norm(position)) / (tree.norm(along) + size)
        up, down = (gradient(tree.add_scaled(position, s, along)) for s in (step, -step))
        bend = jax.tree.map(lambda a, b: (a - b) / (2.0 * step).astype(a.dtype), up, down)
    return (value, slope), (tree.dot(slope, along).astype(value.dtype), bend)


def _filled(tangent: PyTree, like: PyTree) -> PyTree:
    """A tangent with zeros where JAX has none."""
    return jax.tree.map(lambda x, t: jnp.zeros_like(x) if t is None else t, like, tangent)
