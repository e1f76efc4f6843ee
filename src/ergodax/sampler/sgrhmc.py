"""Stochastic-gradient Riemannian Hamiltonian Monte Carlo."""

from typing import Any

import numpy as np

from ergodax.gradient.base import GradientEstimator
from ergodax.integrator.euler_maruyama import EulerMaruyama, check_scheme, euler_maruyama
from ergodax.recipe import dynamics


def sgrhmc(
    gradient: GradientEstimator,
    step_size: Any,
    metric: Any,
    friction: Any = 1.0,
    *,
    temperature: Any = 1.0,
    scheme: str = "semi-implicit",
    resample_every: int | np.integer | None = None,
    compensate: bool = False,
    clip: bool = False,
) -> EulerMaruyama:
    """Generalised stochastic-gradient Riemannian Hamiltonian Monte Carlo (Ma, Chen and Fox).

    State: position x, momentum r. H = U + r^T r / 2, D = diag(0, C) with C = gamma L^T L,
    Q = [[0, -L], [L^T, 0]], where L(x) L(x)^T = G^-1(x); Gamma = (0, div L^T). Update, with g an
    estimate of grad U of covariance V, and L, C and Gamma at x:
        r+ = r - h L^T g + h T div L^T - h C r + N(0, 2 h T C - h^2 L^T V L)
        x+ = x + h L r+      (semi-implicit)      or      x + h L r      (euler)
    with V only where `compensate` is set. Without div L^T, as one would naively write it, the
    law is wrong at every step size (see `counterexamples.naive_sgrhmc`).

    First order in h, in general; with a constant metric it is `sghmc` with mass G.

    Args:
        gradient: an estimator of grad U, such as ex.Minibatch.
        step_size: h, a positive number or a schedule.
        metric: function of the position that returns G^-1, the inverse metric: a number, a
            vector or tree like the position, a matrix or an operator; or an ex.Metric with its
            divergence, or an ex.PotentialMetric.
        friction: gamma > 0, a number or a schedule; 1 is Ma, Chen and Fox's.
        temperature: T, a number or a schedule; multiplies the noise and Gamma.
        scheme: "semi-implicit" or "euler".
        resample_every: draw r ~ N(0, T I) anew before every step whose number is a multiple of
            this; None for never. It does not change the law.
        compensate: subtract the estimator's covariance from the injected noise; the estimator
            must know it, and 2 T gamma I - h V must be positive semidefinite, whatever G.
        clip: with `compensate`, inject none where the variance would be negative.

    Returns:
        A kernel whose states have "momentum" in `auxiliary`.

    Raises:
        TypeError: not an estimator, a metric that is not a function, or an argument that is not
            a number.
        ValueError: a number out of range, or an unknown scheme.

    Reference:
        Ma, Chen and Fox, A complete recipe for stochastic gradient MCMC, 2015, Algorithm 1.
    """
    return euler_maruyama(
        dynamics.riemannian_underdamped(metric, friction),
        gradient,
        step_size,
        temperature=temperature,
        compensate=compensate,
        clip=clip,
        semi_implicit=check_scheme(scheme),
        resample_every=resample_every,
    )
