"""The mode of a posterior, where whitening and control variates are centred."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from ergodax import tree
from ergodax.data.source import Source
from ergodax.target import passes
from ergodax.target.base import AbstractTarget
from ergodax.target.minimise import minimise

TOLERANCE = 1e-4


class Mode(eqx.Module):
    """A minimum of the potential.

    Attributes:
        position: where.
        potential: U there.
        gradient_norm: the Euclidean norm of the gradient there.
        iterations: of the optimiser.
        evaluations: full gradients that they took, those of the line searches included; on a
            posterior each is the gradients of N examples.
        converged: whether the gradient fell below the tolerance.
    """

    position: PyTree
    potential: Float[Array, ""]
    gradient_norm: Float[Array, ""]
    iterations: Int[Array, ""]
    evaluations: Int[Array, ""]
    converged: Bool[Array, ""]


def find_mode(
    target: AbstractTarget,
    position: PyTree,
    *,
    max_iterations: int = 500,
    tolerance: float = TOLERANCE,
) -> Mode:
    """Minimise the potential by L-BFGS with full gradients (optax).

    Where the data are a source, each evaluation is a pass over it (and the optimiser SciPy's):
    begin near the minimum, such as at the mode of `source.subset(10_000)`.

    Args:
        target: any target.
        position: where to start.
        max_iterations: at most.
        tolerance: stop when the gradient's norm has fallen to this fraction of
            1 + sqrt(|U| d), about what single precision can resolve.

    Returns:
        A Mode; look at `converged`, since nothing is raised where it is False.
    """
    position = tree.freeze(position)
    if isinstance(getattr(target, "data", None), Source):
        return _mode_of_source(target, position, max_iterations, tolerance)
    return _resident_mode(target, position, max_iterations, tolerance)


def _mode_of_source(
    posterior: Any, position: PyTree, max_iterations: int, tolerance: float
) -> Mode:
    flat, unravel = tree.ravel(position)
    place = lambda x: unravel(jnp.asarray(x, flat.dtype))  # noqa: E731

    def function(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = passes.value_and_gradient(posterior, place(x))
        return float(value), np.asarray(tree.ravel(gradient)[0], np.float64)

    found = minimise(
        function,
        np.asarray(flat, np.float64),
        enough(tolerance, position),
        max_iterations,
        float(jnp.finfo(flat.dtype).eps),
    )
    number = lambda x: jnp.asarray(x, tree.result_dtype(position))  # noqa: E731
    return Mode(
        tree.thaw(place(found.position)),
        number(found.potential),
        number(found.gradient_norm),
        jnp.int32(found.iterations),
        jnp.int32(found.evaluations),
        jnp.array(found.converged),
    )


@eqx.filter_jit
def _resident_mode(
    target: AbstractTarget, position: PyTree, max_iterations: int, tolerance: float
) -> Mode:
    optimiser, small = optax.lbfgs(), enough(tolerance, position)
    value_and_gradient = optax.value_and_grad_from_state(target.potential)

    def unfinished(carry: tuple) -> Bool[Array, ""]:
        _, state, gradient, count, _ = carry
        value = optax.tree.get(state, "value")
        steep = tree.norm(gradient) > small(value)
        return (count == 0) | ((count < max_iterations) & steep)

    def improve(carry: tuple) -> Any:
        x, state, _, count, cost = carry
        value, gradient = value_and_gradient(x, state=state)
        updates, state = optimiser.update(
            gradient, state, x, value=value, grad=gradient, value_fn=target.potential
        )
        x = optax.apply_updates(x, updates)
        cost = cost + optax.tree.get(state, "num_linesearch_steps").astype(jnp.int32)
        return x, state, optax.tree.get(state, "grad"), count + 1, cost

    # optax mixes integer dtypes in double precision, which strict promotion would refuse.
    with jax.numpy_dtype_promotion("standard"):
        # The line search ends with the gradient of the next step, so only the first is extra.
        counts = jnp.int32(0), jnp.int32(1)
        start = (position, optimiser.init(position), tree.zeros_like(position), *counts)
        x, state, gradient, count, cost = lax.while_loop(unfinished, improve, start)
    value = optax.tree.get(state, "value")
    norm = tree.norm(gradient)
    return Mode(tree.thaw(x), value, norm, count, cost, norm <= small(value))


def enough(tolerance: float, position: PyTree) -> Callable[[Any], Any]:
    """The norm of the gradient that will do, as a function of the potential.

    Args:
        tolerance: see `find_mode`.
        position: for the dimension.
    """
    size = tree.size(position)
    return lambda value: tolerance * (1.0 + (abs(value) * size) ** 0.5)
