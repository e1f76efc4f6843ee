"""Langevin dynamics by the noisy gradient integrator."""

from typing import Any

from ergodax.gradient.base import GradientEstimator, check_estimator
from ergodax.integrator.nogin import NoisyGradientIntegrator
from ergodax.recipe.operators import as_definite
from ergodax.schedule import as_schedule


def nogin(
    gradient: GradientEstimator,
    step_size: Any,
    friction: Any = 1.0,
    *,
    mass: Any = 1.0,
    temperature: Any = 1.0,
) -> NoisyGradientIntegrator:
    """Underdamped Langevin dynamics corrected for the gradient's noise (Matthews and Weare).

    State: position x, momentum r. H = U + r^T M^-1 r / 2, D = diag(0, mu M),
    Q = [[0, -I], [I, 0]], with mu = gamma I + (h / 2T) V M^-1: the friction that balances the
    heat of a gradient of covariance V. Update, with g an estimate of grad U at x + (h/2) M^-1 r
    and l = tanh(gamma h / 2):
        p  = -(h/2) g + N(0, l T M)
        w  = ((1 + l) M + (h^2 / 4T) V)^-1 (r + p)
        x+ = x + h w,      r+ = 2 M w - r
    Written out it is a half drift; r += p; r = (I - K) (I + K)^-1 r with
    K = l I + (h^2 / 4T) V M^-1; r += p with the same p; a half drift. Algorithm 2 of the paper
    prints (h^2 T / 4) M V in K, which is right only for M = I and T = 1.

    On a Gaussian target of covariance T L^-1 with Gaussian gradient noise, x has exactly the
    target's law at every stable step, h^2 lambda_max(M^-1 L) < 4, even where V depends on x. At
    the end of a step r is independent of x with covariance T (M^-1 - (h^2/4) M^-1 L M^-1)^-1, so
    `Info.kinetic_temperature` is above T: by 1 / (1 - h^2 omega^2 / 4) in a mode of frequency
    omega. No V, however large, makes the kick unstable. On other targets it is second order in
    h, given V.

    An unbiased V estimated from the batch that gives g keeps the order, but its error, its
    correlation with g and the noise's third moment enter the constant, which is large once
    (h^2 / 4T) V is not small. Logistic regression with N = 2000, d = 20, n = 100 and
    (h^2 / 4T) V up to 1/2: with each batch's own V a mean is off by 0.7 posterior standard
    deviations and variances are 1.2 times too large; with V averaged over batches
    (ex.ScoreCovariance with `average`) neither is seen.

    Nothing is inverted but a number or a diagonal; a low rank is solved through a matrix of its
    rank, anything dense by a Cholesky factor at each step.

    Args:
        gradient: an estimator that knows its covariance, such as ex.KnownCovariance.
        step_size: h, a positive number or a schedule.
        friction: the rate gamma, at least 0, a number or a schedule; what is added to the
            friction that V needs. With 0 and no noise the chain is not ergodic.
        mass: M: number, vector, matrix or operator, positive definite.
        temperature: T > 0, a number or a schedule.

    Returns:
        A kernel whose states have "momentum" in `auxiliary`; one gradient a step.

    Raises:
        TypeError: not an estimator, or an argument that is not a number.
        ValueError: a number out of range, or, at the first step, an estimator that does not know
            its covariance.

    Reference:
        Matthews and Weare, Langevin Markov chain Monte Carlo with stochastic gradients, 2018,
        Algorithms 1 and 2.
    """
    return NoisyGradientIntegrator(
        check_estimator(gradient),
        as_schedule(step_size, "step_size"),
        as_schedule(friction, "friction", allow_zero=True),
        as_schedule(temperature, "temperature"),
        as_definite(mass, "mass"),
    )
