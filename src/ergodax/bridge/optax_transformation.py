"""Kernels as gradient transformations of optax: the user computes the gradients."""

from typing import Any, Literal, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import optax as library
from jax import lax
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.gradient.base import Estimate, GradientEstimator
from ergodax.kernel import check_kernel, check_key, freeze

First = Literal["by init", "at the start", "elsewhere"]  # where a run asks for its first gradient


class OptaxState(eqx.Module):
    """The state of a kernel that is run as a gradient transformation."""

    inner: Any  # of the kernel, before the step that the next gradient is for
    key: PRNGKeyArray  # of the whole run
    count: Int[Array, ""]  # updates so far

    @property
    def position(self) -> PyTree:
        """The last draw."""
        return tree.thaw(self.inner.position)


def optax(kernel: Any, *, key: Any) -> library.GradientTransformation:
    """A kernel as an optax.GradientTransformation: draws are made by a training loop of yours.

        update, state = transformation.update(gradient, state, params)
        params = optax.apply_updates(params, update)
    The gradient that you pass takes the place of the estimator's. It must be that of U, the whole
    data's potential: N times the gradient of a mean loss, and that of -log_prior. The parameters
    are where the next gradient is needed, the draws are `state.position`. In samplers that begin or
    end a step with the gradient (sgld, sghmc, BAOAB, sgnht) the two are the same; in others
    (nogin, ABOBA) the parameters are the point inside the next step, and the first update only
    goes there. The draws are those of `ex.sample` with this key, given the same gradients.

    Args:
        kernel: with one gradient a step, such as ex.sghmc(gradient, 1e-4, 1.0). Of its estimator
            only what it knows of its noise is used, such as that of ex.KnownCovariance.
        key: a key of `jax.random.key`.

    Raises:
        TypeError: not a kernel, not a key, or in `init` a kernel that doesn't ask for one gradient
            a step, or asks for more than the gradient (scores, a derivative).

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp, optax
        >>> target = ex.targets.gaussian(jnp.zeros(2), jnp.eye(2))
        >>> kernel = ex.sgld(ex.FullGradient(target), 0.1)
        >>> transformation = ex.bridge.optax(kernel, key=jax.random.key(0))
        >>> params = jnp.ones(2)
        >>> state = transformation.init(params)
        >>> update, state = transformation.update(target.gradient(params), state, params)
        >>> params = optax.apply_updates(params, update)
    """
    kernel = check_kernel(kernel)
    if hasattr(kernel, "kernels"):
        raise TypeError(
            f"{type(kernel).__name__} needs a gradient for each of its replicas, and bridge.optax "
            "has one. Try the sampler by itself."
        )
    run = _Run(kernel, check_key(key))
    return library.GradientTransformation(cast(Any, run.init), cast(Any, run.update))


class _Log:
    """The positions where a gradient has been asked for; equal to itself alone."""

    def __init__(self) -> None:
        self.positions: list[PyTree] = []


class UsersGradient(GradientEstimator):
    """What stands in a kernel for the gradient that the user has computed."""

    target: Any
    value: PyTree
    log: _Log = eqx.field(static=True)

    def init(self, key: PRNGKeyArray, position: PyTree) -> None:
        """Nothing to remember."""

    def estimate(self, key: PRNGKeyArray, state: PyTree, position: PyTree) -> tuple[Estimate, Any]:
        """The user's gradient; the potential is unknown."""
        self.log.positions.append(position)
        unknown = jnp.full((), jnp.nan, tree.result_dtype(position))
        gradient = _constant(position, self.value)
        return Estimate(gradient, unknown, evaluations=jnp.int32(0)), state


@jax.custom_jvp
def _constant(position: PyTree, value: PyTree) -> PyTree:
    return value


@_constant.defjvp
def _(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
    raise TypeError(
        "the kernel needs the derivative of the gradient, which bridge.optax does not have. Try "
        "correction=False, if the sampler is ex.psgld."
    )


class _Run:
    """The transformation's two functions."""

    def __init__(self, kernel: Any, key: PRNGKeyArray) -> None:
        self.kernel, self.key = kernel, key

    def init(self, params: PyTree) -> OptaxState:
        """The first state; a gradient that the kernel's init needs comes with the first update."""
        position = tree.freeze(params, "params")
        if jax.tree.structure(freeze(self.kernel, params)) != jax.tree.structure(position):
            raise ValueError(
                "kernel: its target has constraints, but the gradient that you pass is in the "
                "parameters themselves. Leave constraints out, and move in unconstrained ones."
            )
        self._first(position)
        inner, _ = self._begin(position, tree.zeros_like(position), self.key)
        return OptaxState(inner, self.key, jnp.int32(0))

    def update(
        self, gradient: PyTree, state: OptaxState, params: PyTree = None
    ) -> tuple[PyTree, OptaxState]:
        """The way to the place of the next gradient, and the state there."""
        if params is None:
            raise ValueError("update needs the parameters: update(gradient, state, params).")
        position = tree.freeze(params, "params")
        leaves, structure = jax.tree.flatten(gradient)
        value = jax.tree.structure(position).unflatten(leaves)
        inner, count, first = state.inner, state.count, self._first(position)
        if first == "at the start":
            inner = self._step(inner, value, state.key, count)[0]
            place = inner.position
        else:

            def begin() -> Any:
                if first == "elsewhere":
                    return inner
                return self._begin(inner.position, value, state.key)[0]

            def go_on() -> Any:
                return self._step(inner, value, state.key, count - 1)[0]

            inner = lax.cond(count == 0, begin, go_on)
            place = self._step(inner, value, state.key, count)[1].positions[0]
        way = jax.tree.leaves(tree.subtract(place, position))
        return structure.unflatten(way), OptaxState(inner, state.key, count + 1)

    def _begin(self, position: PyTree, gradient: PyTree, key: PRNGKeyArray) -> tuple[Any, _Log]:
        kernel, log = _with_gradient(self.kernel, gradient)
        key_init, _ = jax.random.split(key)
        return kernel.init(jax.random.fold_in(key_init, 0), position), log

    def _step(
        self, inner: PyTree, gradient: PyTree, key: PRNGKeyArray, number: Int[Array, ""] | int
    ) -> tuple[Any, ...]:
        """With the key that chain 0 of `ex.sample` has at this step."""
        kernel, log = _with_gradient(self.kernel, gradient)
        chain = jax.random.fold_in(jax.random.split(key)[1], 0)
        return kernel.step(jax.random.fold_in(chain, number), inner)[0], log

    def _first(self, position: PyTree) -> First:
        """Where the first gradient is asked for, found by tracing."""
        found: list[First] = []

        def trace(position: PyTree) -> None:
            zeros = tree.zeros_like(position)
            inner, asked_by_init = self._begin(position, zeros, self.key)
            asked = self._step(inner, zeros, self.key, 0)[1].positions
            if len(asked) != 1 or len(asked_by_init.positions) > 1:
                raise TypeError(
                    "bridge.optax needs a kernel that asks its estimator for one gradient a step, "
                    f"and {type(self.kernel).__name__} asks for {len(asked)}. Try ex.sgld, "
                    "ex.sghmc, ex.langevin or ex.nogin."
                )
            same = map(lambda a, b: a is b, *map(jax.tree.leaves, (asked[0], inner.position)))
            if asked_by_init.positions:
                found.append("by init")
            else:
                found.append("at the start" if all(same) else "elsewhere")

        jax.eval_shape(trace, position)
        return found[0]


def _with_gradient(kernel: Any, gradient: PyTree) -> tuple[Any, _Log]:
    """The kernel with the user's gradient in the innermost place of its estimators."""
    log = _Log()

    def innermost(part: Any) -> bool:
        return isinstance(part, GradientEstimator) and not hasattr(part, "gradient")

    def replaced(part: Any) -> Any:
        return UsersGradient(part.target, gradient, log) if innermost(part) else part

    return jax.tree.map(replaced, kernel, is_leaf=innermost), log
