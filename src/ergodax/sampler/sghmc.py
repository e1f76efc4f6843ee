"""Stochastic-gradient Hamiltonian Monte Carlo."""

from typing import Any

import numpy as np

from ergodax.gradient.base import GradientEstimator
from ergodax.integrator.euler_maruyama import EulerMaruyama, check_scheme, euler_maruyama
from ergodax.recipe import dynamics


def sghmc(
    gradient: GradientEstimator,
    step_size: Any,
    friction: Any = 1.0,
    *,
    mass: Any = 1.0,
    temperature: Any = 1.0,
    scheme: str = "semi-implicit",
    resample_every: int | np.integer | None = None,
    compensate: bool = False,
    clip: bool = False,
) -> EulerMaruyama:
    """Stochastic-gradient Hamiltonian Monte Carlo (Chen, Fox and Guestrin).

    State: position x, momentum r. H = U + r^T M^-1 r / 2, D = diag(0, C) with C = gamma M,
    Q = [[0, -I], [I, 0]]. Update, with g an estimate of grad U of covariance V:
        r+ = r - h g - h gamma r + N(0, 2 h T C - h^2 V)       (V only with `compensate`)
        x+ = x + h M^-1 r+      (semi-implicit)      or      x + h M^-1 r      (euler)

    The semi-implicit scheme is second order in h for the marginal of x and stable for
    2 gamma h + h^2 k / m < 4; the Euler scheme is first order and unstable where h k >= C.
    Without compensation a noise V heats x by h V / (2 C).

    Args:
        gradient: an estimator of grad U, such as ex.Minibatch.
        step_size: h, a positive number or a schedule.
        friction: the rate gamma > 0, a number or a schedule; C = gamma M.
        mass: M: number, vector, matrix or operator, positive definite.
        temperature: T, a number or a schedule.
        scheme: "semi-implicit" or "euler".
        resample_every: draw r ~ N(0, T M) anew before every step whose number is a multiple of
            this; None for never. It does not change the law.
        compensate: subtract the estimator's covariance from the injected noise; the estimator
            must know it, and 2 T C - h V must be positive semidefinite.
        clip: with `compensate`, inject none where the variance would be negative.

    Returns:
        A kernel whose states have "momentum" in `auxiliary`.

    Raises:
        TypeError: not an estimator, or an argument that is not a number.
        ValueError: a number out of range, or an unknown scheme.

    Reference:
        Chen, Fox and Guestrin, Stochastic gradient Hamiltonian Monte Carlo, 2014.
    """
    return euler_maruyama(
        dynamics.underdamped(friction, mass),
        gradient,
        step_size,
        temperature=temperature,
        compensate=compensate,
        clip=clip,
        semi_implicit=check_scheme(scheme),
        resample_every=resample_every,
    )
