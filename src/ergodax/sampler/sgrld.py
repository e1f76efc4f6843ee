"""Stochastic-gradient Riemannian Langevin dynamics."""

from typing import Any

from ergodax.gradient.base import GradientEstimator
from ergodax.integrator.euler_maruyama import EulerMaruyama, euler_maruyama
from ergodax.recipe import dynamics


def sgrld(
    gradient: GradientEstimator,
    step_size: Any,
    metric: Any,
    *,
    temperature: Any = 1.0,
    compensate: bool = False,
    clip: bool = False,
) -> EulerMaruyama:
    """Stochastic-gradient Riemannian Langevin dynamics (Patterson and Teh).

    State: position x. H = U, D = G^-1(x), Q = 0, Gamma = div G^-1. Update, with g an estimate of
    grad U of covariance V:
        x+ = x - h G^-1 g + h T Gamma + N(0, 2 h T G^-1 - h^2 G^-1 V G^-1)  (V with `compensate`)

    First order in h; reversible in the limit. Without Gamma the law would be wrong at every
    step size; with the correction that Girolami and Calderhead print it is wrong too, but for
    metrics that are diagonal entry by entry.

    Args:
        gradient: an estimator of grad U, such as ex.Minibatch.
        step_size: h, a positive number or a schedule.
        metric: function of the position that returns G^-1, the inverse metric: a number, a
            vector or tree like the position, a matrix or an operator; or an ex.Metric with its
            divergence, or an ex.PotentialMetric.
        temperature: T, a number or a schedule; multiplies the noise and Gamma.
        compensate: subtract the estimator's covariance from the injected noise; the estimator
            must know it, and 2 T G - h V must be positive semidefinite.
        clip: with `compensate`, inject none where the variance would be negative.

    Returns:
        A kernel with state.position; `auxiliary` is empty.

    Raises:
        TypeError: not an estimator, a metric that is not a function, or a step size that is not
            a number.
        ValueError: a number out of range.

    Reference:
        Patterson and Teh, Stochastic gradient Riemannian Langevin dynamics on the probability
        simplex, 2013; Ma, Chen and Fox, A complete recipe for stochastic gradient MCMC, 2015.
    """
    return euler_maruyama(
        dynamics.riemannian_langevin(metric),
        gradient,
        step_size,
        temperature=temperature,
        compensate=compensate,
        clip=clip,
    )
