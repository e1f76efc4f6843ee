"""Underdamped Langevin dynamics by splitting."""

from typing import Any

from ergodax.gradient.base import GradientEstimator
from ergodax.integrator.splitting import Splitting, splitting


def langevin(
    gradient: GradientEstimator,
    step_size: Any,
    friction: Any = 1.0,
    *,
    mass: Any = 1.0,
    temperature: Any = 1.0,
    scheme: str = "BAOAB",
) -> Splitting:
    """Underdamped Langevin dynamics, split into exactly solved parts.

    State: position x, momentum r. H = U + r^T M^-1 r / 2, D = diag(0, gamma M),
    Q = [[0, -I], [I, 0]]. The update applies the letters of `scheme` in order, each with its
    share t of the step:
        A: x += t M^-1 r     B: r -= t g     O: r = e^(-gamma t) r + N(0, T M (1 - e^(-2 gamma t)))

    BAOAB, the default, is second order in h and exact for the position on Gaussian targets at
    every stable step, h^2 k < 4 m; one gradient a step.

    Args:
        gradient: an estimator of grad U.
        step_size: h, a positive number or a schedule.
        friction: the rate gamma, a number or a schedule.
        mass: M: number, vector, matrix or operator, positive definite.
        temperature: T, a number or a schedule.
        scheme: any string of A, B and O, each at least once.

    Returns:
        A kernel whose states have "momentum" in `auxiliary`.

    Raises:
        TypeError: not an estimator, or an argument that is not a number.
        ValueError: a number out of range, or an unknown or missing letter.

    Reference:
        Leimkuhler and Matthews, Rational construction of stochastic numerical methods for
        molecular sampling, 2013.
    """
    return splitting(scheme, gradient, step_size, friction, mass=mass, temperature=temperature)
