"""The mode of a posterior, where whitening and control variates are centred."""

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
from ergodax.haste import in_haste
from ergodax.target.base import AbstractTarget
from ergodax.target.passes import minimise

FEW_CELLS = 2**20  # of the data, which are passed over sooner than the program is optimised


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
    tolerance: float = 1e-4,
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
        enough = lambda value: _enough(tolerance, value, position)  # noqa: E731
        found = minimise(target, position, enough, max_iterations)
        number = lambda x: jnp.asarray(x, tree.result_dtype(position))  # noqa: E731
        return Mode(
            tree.thaw(found.position),
            number(found.potential),
            number(found.gradient_norm),
            jnp.int32(found.iterations),
            jnp.int32(found.passes),
            jnp.array(found.gradient_norm <= enough(found.potential)),
        )
    cells = getattr(target, "num_data", np.inf) * tree.size(position)
    # Within another program it is compiled as that is.
    alone = not any(map(tree.is_traced, jax.tree.leaves((target, position))))
    descend = _descend_in_haste if alone and cells < FEW_CELLS else _descend
    return descend(target, position, max_iterations, tolerance)


def _resident_mode(
    target: AbstractTarget, position: PyTree, max_iterations: int, tolerance: float
) -> Mode:
    optimiser = optax.lbfgs()
    value_and_gradient = optax.value_and_grad_from_state(target.potential)

    def unfinished(carry: tuple) -> Bool[Array, ""]:
        _, state, gradient, count, _ = carry
        value = optax.tree.get(state, "value")
        enough = _enough(tolerance, value, position)
        return (count == 0) | ((count < max_iterations) & (tree.norm(gradient) > enough))

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
    enough = _enough(tolerance, value, position)
    return Mode(tree.thaw(x), value, norm, count, cost, norm <= enough)


_descend = eqx.filter_jit(_resident_mode)
_descend_in_haste = in_haste(_resident_mode)


def _enough(tolerance: Any, value: Any, position: PyTree) -> Any:
    """The norm of the gradient that will do."""
    return tolerance * (1.0 + jnp.sqrt(jnp.abs(value) * tree.size(position)))
