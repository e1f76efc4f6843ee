"""Samplers that are wrong, and are known for it: kept so that their error can be measured."""

from typing import Any

import numpy as np

from ergodax.gradient.base import GradientEstimator
from ergodax.integrator.euler_maruyama import EulerMaruyama, check_scheme, euler_maruyama
from ergodax.kernel import named
from ergodax.recipe import dynamics


@named
def naive_sghmc(
    gradient: GradientEstimator,
    step_size: Any,
    *,
    mass: Any = 1.0,
    temperature: Any = 1.0,
    resample_every: int | np.integer | None = 10,
) -> EulerMaruyama:
    """COUNTEREXAMPLE: Hamiltonian dynamics with a noisy gradient and nothing against its noise.

    State: position x, momentum r. H = U + r^T M^-1 r / 2, D = 0, Q = [[0, -I], [I, 0]]. Update,
    with g an estimate of grad U of covariance V:
        r+ = r - h g,      x+ = x + h M^-1 r+
    The noise acts as a diffusion h V / 2 without the friction that belongs to it. Energy grows
    by h^2 tr(V M^-1) / 2 a step; without resampling there is no stationary law at all, and with
    it a wrong one. What corrects it is `sghmc`.

    Args:
        gradient: an estimator of grad U.
        step_size: h, a positive number or a schedule.
        mass: M: number, vector, matrix or operator, positive definite.
        temperature: T, of the momenta drawn.
        resample_every: steps between fresh momenta; None for never.

    Returns:
        A kernel whose states have "momentum" in `auxiliary`.

    Raises:
        TypeError: not an estimator, or an argument that is not a number.
        ValueError: a number out of range.

    Reference:
        Chen, Fox and Guestrin, Stochastic gradient Hamiltonian Monte Carlo, 2014, section 3.1;
        Ma, Chen and Fox, 2015, Eqs. (10) and (11).
    """
    return euler_maruyama(
        dynamics.hamiltonian(mass),
        gradient,
        step_size,
        temperature=temperature,
        semi_implicit=True,
        resample_every=resample_every,
    )


@named
def naive_sgrhmc(
    gradient: GradientEstimator,
    step_size: Any,
    metric: Any,
    friction: Any = 1.0,
    *,
    temperature: Any = 1.0,
    scheme: str = "semi-implicit",
    resample_every: int | np.integer | None = None,
) -> EulerMaruyama:
    """COUNTEREXAMPLE: SGRHMC without Gamma.

    State: position x, momentum r. H, D and Q as in `sgrhmc`. Update, with L L^T = G^-1 at x:
        r+ = r - h L^T g - h gamma L^T L r + N(0, 2 h T gamma L^T L),      x+ = x + h L r+
    The term h T div L^T is missing. With a metric that is a number, s(x)^2, the stationary
    density is exp(-U) / s at T = 1 instead of exp(-U). What corrects it is `sgrhmc`.

    Args:
        gradient: an estimator of grad U.
        step_size: h, a positive number or a schedule.
        metric: function of the position that returns G^-1, as in `sgrhmc`.
        friction: gamma > 0, a number or a schedule.
        temperature: T, a number or a schedule.
        scheme: "semi-implicit" or "euler".
        resample_every: steps between fresh momenta; None for never.

    Returns:
        A kernel whose states have "momentum" in `auxiliary`.

    Raises:
        TypeError: not an estimator, or an argument that is not a number.
        ValueError: a number out of range, or an unknown scheme.

    Reference:
        Ma, Chen and Fox, A complete recipe for stochastic gradient MCMC, 2015, Eq. (16).
    """
    return euler_maruyama(
        dynamics.naive_riemannian_underdamped(metric, friction),
        gradient,
        step_size,
        temperature=temperature,
        semi_implicit=check_scheme(scheme),
        resample_every=resample_every,
    )
