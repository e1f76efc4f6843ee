"""A descent to a mode on the host, and the one program that all searches share."""

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ergodax import tree
from ergodax.gradient.expansion import whole_hessian
from ergodax.target.base import AbstractTarget
from ergodax.target.mode import TOLERANCE, Minimum, enough, minimise, potential_and_gradient
from ergodax.target.posterior import Posterior
from ergodax.tune.budget import Deadline
from ergodax.tune.whitening import Coordinates, flattened, unflattened

FLAT = 0.02  # gradient of a component in whitened coordinates: so many sds away from the mode
NEAR = 0.2  # which is near enough where rounding lets the search come no nearer


def descent(
    target: AbstractTarget,
    start: PyTree,
    max_iterations: int,
    *,
    coordinates: Coordinates | None = None,
    hessian: Callable[[PyTree], np.ndarray] | None = None,
    deadline: Deadline | None = None,
) -> Minimum:
    """Minimise the potential from a frozen position by SciPy, with its Hessian if there is one.

    The only program is the potential's with its gradient, which is soon compiled.

    Args:
        target: with data or without.
        start: a frozen position.
        max_iterations: at most.
        coordinates: centred at the start, in which to move; the search ends where the gradient in
            these is that of a place next to the mode.
        hessian: of a frozen position.
        deadline: at which it ends.

    Returns:
        The place on the raveled position; the gradient's norm is in the coordinates.
    """

    def flat(u: np.ndarray) -> np.ndarray:
        return u if coordinates is None else coordinates.flat_at(u)

    def function(u: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = potential_at(target, start, flat(u))
        return value, slope if coordinates is None else coordinates.pulled_back(slope)

    def bend(u: np.ndarray) -> np.ndarray:
        assert hessian is not None
        return hessian(tree.freeze(unflattened(start, flat(u))))

    root = np.sqrt(tree.size(start))
    small = enough(TOLERANCE, start) if coordinates is None else lambda value: FLAT * root
    begin = flattened(start) if coordinates is None else np.zeros(coordinates.dimension)
    found = minimise(
        function,
        begin,
        small,
        max_iterations,
        rounding=float(jnp.finfo(tree.result_dtype(start)).eps),
        hessian=None if hessian is None else bend,
        stop=None if deadline is None else lambda: deadline.over,
    )
    if coordinates is not None:
        near = np.isfinite(found.potential) and found.gradient_norm < NEAR * root
        found = found._replace(position=flat(found.position), converged=bool(near))
    return found


def newton(
    posterior: Posterior, start: PyTree, max_iterations: int, deadline: Deadline | None = None
) -> Minimum:
    """Newton's method for some hundred parameters at most, where L-BFGS takes too long.

    Each Hessian is a pass over the data, which are in memory.
    """
    bend = lambda x: whole_hessian(posterior, x)  # noqa: E731
    return descent(posterior, start, max_iterations, hessian=bend, deadline=deadline)


class OnRows(AbstractTarget):
    """A posterior on some of its rows, which stand for all."""

    posterior: Posterior
    rows: PyTree

    def potential(self, position: PyTree) -> Float[Array, ""]:
        """U with the likelihood of the rows, weighted as that of all."""
        return self.posterior.potential_on(position, self.rows)


def potential_at(
    target: AbstractTarget, like: PyTree, flat: Float[np.ndarray, " d"]
) -> tuple[float, Float[np.ndarray, " d"]]:
    """U and its gradient at a raveled position of the structure of a frozen one, on the host."""
    leaves, structure = jax.tree.flatten(like)
    ends = np.cumsum([leaf.size for leaf in leaves])
    with np.errstate(over="ignore"):
        parts = [  # of NumPy's: to put each on the device takes longer than most models do
            flat[end - leaf.size : end].reshape(leaf.shape).astype(leaf.dtype)
            for leaf, end in zip(leaves, ends, strict=True)
        ]
    value, gradient = potential_and_gradient(target, structure.unflatten(parts))
    slopes = [np.asarray(x, np.float64).ravel() for x in jax.tree.leaves(gradient)]
    return float(value), np.concatenate(slopes)


def seconds_of_gradient(target: AbstractTarget, position: PyTree, times_over: int = 4) -> float:
    """Of a full gradient, by the program of the search for the mode."""
    frozen, times = tree.freeze(position), []
    for _ in range(times_over):  # the first may compile
        began = time.perf_counter()
        jax.block_until_ready(potential_and_gradient(target, frozen))
        times.append(time.perf_counter() - began)
    return min(times)
