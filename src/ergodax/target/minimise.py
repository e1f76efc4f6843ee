"""Minimisation on the host, where the function is one small program or a pass over files."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy
from jaxtyping import Float

ROUNDINGS = 32.0  # by which a sum of many terms is off, at most
Function = Callable[[np.ndarray], tuple[float, np.ndarray]]


class Minimum(NamedTuple):
    """Where a search ended.

    Attributes:
        position: where; of the points that were seen, the lowest or the first that is flat enough.
        potential: U there.
        gradient_norm: of its gradient.
        iterations: of the optimiser.
        evaluations: of the function.
        converged: whether the gradient is small enough.
    """

    position: Float[np.ndarray, " d"]
    potential: float
    gradient_norm: float
    iterations: int
    evaluations: int
    converged: bool


class _Enough(Exception):
    """The gradient is small enough."""


def minimise(
    function: Function,
    start: Float[np.ndarray, " d"],
    enough: Callable[[Any], Any],
    max_iterations: int,
    rounding: float = 0.0,
    hessian: Callable[[np.ndarray], np.ndarray] | None = None,
) -> Minimum:
    """Minimise a potential by SciPy's L-BFGS, or with its Hessian by Newton's method.

    Newton's steps are kept within a trust region, and may lead over places where the potential is
    not convex.

    Near the minimum the potential changes by less than it is rounded, and a line search that
    compares values would end on a slope. There the change from the lowest point so far is taken
    from the gradients, by the trapezoidal rule.

    Args:
        function: position -> U and its gradient.
        start: where to begin.
        enough: the largest norm of a gradient that will do, given U.
        max_iterations: at most.
        rounding: of U, relative; that of its dtype.
        hessian: position -> the matrix of second derivatives of U, if Newton's method is wanted.
    """
    best, slope_there = Minimum(start, np.inf, np.inf, 0, 0, False), np.zeros_like(start)
    iterations = evaluations = 0

    def evaluate(x: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal best, slope_there, evaluations
        value, slope = function(x)
        evaluations += 1
        norm = float(np.linalg.norm(slope))
        flat = bool(norm <= enough(value))
        change = 0.5 * float((slope + slope_there) @ (x - best.position))
        if abs(change) < ROUNDINGS * rounding * abs(best.potential) < np.inf:
            value = best.potential + change
        if flat or value < best.potential:
            best = Minimum(x.copy(), value, norm, iterations, evaluations, flat)
            slope_there = slope
        if flat:
            raise _Enough
        return value, slope

    def count(x: np.ndarray) -> None:
        nonlocal iterations
        iterations += 1

    options = {"maxiter": max_iterations, "gtol": 0.0}
    settings: dict[str, Any] = {"jac": True, "options": options}
    if hessian is None:
        settings |= {"method": "L-BFGS-B", "options": options | {"ftol": 0.0}}
    else:
        settings |= {"method": "trust-exact", "hess": hessian}
    try:
        with np.errstate(all="ignore"):  # of line searches that leave the finite numbers
            scipy.optimize.minimize(evaluate, start, callback=count, **settings)
    except _Enough:
        pass
    return best._replace(iterations=iterations, evaluations=evaluations)
