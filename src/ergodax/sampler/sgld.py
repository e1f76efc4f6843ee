"""Stochastic-gradient Langevin dynamics."""

from typing import Any

from ergodax.gradient.base import GradientEstimator
from ergodax.integrator.euler_maruyama import EulerMaruyama, euler_maruyama
from ergodax.recipe import dynamics


def sgld(
    gradient: GradientEstimator,
    step_size: Any,
    *,
    preconditioner: Any = 1.0,
    temperature: Any = 1.0,
    compensate: bool = False,
    clip: bool = False,
) -> EulerMaruyama:
    """Stochastic-gradient Langevin dynamics (Welling and Teh).

    State: position x. H = U, D = preconditioner, Q = 0. Update, with g an estimate of grad U:
        x+ = x - h D g + N(0, 2 h T D)

    First order in h. A minibatch adds bias of relative size h V / (2 T), V the gradient's
    variance; it vanishes with h, not with the batch alone. Where h V is not small, see sghmc.
    For Welling and Teh's decreasing steps pass `schedule.Polynomial(initial)`; the draws must
    then be weighted by `info.step_size`.

    Args:
        gradient: an estimator of grad U, such as ex.Minibatch.
        step_size: h, a positive number or a schedule. Welling and Teh's epsilon is 2 h.
        preconditioner: constant D: number, vector, matrix or operator.
        temperature: T, a number or a schedule.
        compensate: subtract the estimator's covariance from the injected noise; the estimator
            must know it.
        clip: with `compensate`, inject none where the variance would be negative.

    Returns:
        A kernel with state.position; `auxiliary` is empty.

    Raises:
        TypeError: not an estimator, or a step size that is not a number.
        ValueError: a number out of range.

    Reference:
        Welling and Teh, Bayesian learning via stochastic gradient Langevin dynamics, 2011.
    """
    return euler_maruyama(
        dynamics.langevin(preconditioner),
        gradient,
        step_size,
        temperature=temperature,
        compensate=compensate,
        clip=clip,
    )
