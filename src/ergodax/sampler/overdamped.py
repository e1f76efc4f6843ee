"""Langevin dynamics of the position alone."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from ergodax import tree
from ergodax.checks import choice
from ergodax.gradient.base import GradientEstimator, known_covariance
from ergodax.integrator.euler_maruyama import EulerMaruyama, euler_maruyama
from ergodax.integrator.stepper import Moved, PositionStepper
from ergodax.kernel import Kernel, State, named
from ergodax.recipe import dynamics
from ergodax.schedule import as_schedule


@named
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

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> x = jnp.linspace(-1.0, 3.0, 100)
        >>> model = ex.Posterior(lambda m: -0.5 * m**2, lambda m, x: -0.5 * (x - m) ** 2, x)
        >>> kernel = ex.sgld(ex.Minibatch(model, 10), 1e-3)
        >>> samples = ex.sample(kernel, jnp.float32(1), 2000, key=jax.random.key(0), progress=False)
        >>> bool(abs(samples.position.mean() - 100 / 101) < 0.05)
        True

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


@named
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

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> target = ex.Target(lambda x: 0.5 * jnp.sum(x**2 / jnp.array([1.0, 4.0])))
        >>> metric = lambda x: ex.Diagonal(1.0 / (1.0 + x**2))  # D
        >>> kernel = ex.sgrld(ex.FullGradient(target), 0.1, metric)
        >>> samples = ex.sample(kernel, jnp.zeros(2), 20_000, num_chains=4, key=jax.random.key(0),
        ...     progress=False)
        >>> bool(jnp.all(jnp.abs(samples.position.mean(axis=(0, 1))) < jnp.array([0.25, 0.5])))
        True

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


FORMS = ("linear", "exact")


class ModifiedLangevin(PositionStepper):
    """The kernel that `msgld` returns for its linear form."""

    def update(self, key: PRNGKeyArray, state: State, h: Array, temperature: Array) -> Moved:
        """x - h g + sqrt(2 h T) (I - (h / 4T) V) xi."""
        key_gradient, key_noise = jax.random.split(key)
        estimate, gradient = self.gradient.estimate(key_gradient, state.gradient, state.position)
        covariance = known_covariance(estimate, self.gradient, "msgld")
        normal = tree.normal_like(key_noise, state.position)
        noise = tree.add_scaled(normal, -h / (4.0 * temperature), covariance.mv(normal))
        moved = tree.add_scaled(state.position, -h, estimate.gradient)
        position = tree.add_scaled(moved, jnp.sqrt(2.0 * h * temperature), noise)
        return Moved(position, {}, estimate, gradient)


@named
def msgld(
    gradient: GradientEstimator, step_size: Any, *, temperature: Any = 1.0, form: str = "linear"
) -> Kernel:
    """Modified stochastic-gradient Langevin dynamics (Vollmer, Zygalakis and Teh).

    State: position x. H = U, D = I, Q = 0. Update, with g an estimate of grad U of covariance V:
        linear:  x+ = x - h g + sqrt(2 h T) (I - (h / 4T) V) N(0, I)
        exact:   x+ = x - h g + N(0, 2 h T I - h^2 V), which is `sgld` with compensate=True
    The noise of the step, injected and brought, is 2 h T I in the exact form and
    2 h T I + h^3 V^2 / (8 T) in the linear one.

    First order in h: what is removed is the first-order variance inflation h V / (2 T) by gradient
    noise; the bias of Euler's discretisation, also first order, stays. The linear form needs no
    root of a matrix and is defined for every V, but too hot where h V is not well below T: by
    (h V / T)^2 / 16 of the injected variance, more than plain SGLD from h V = 8 T on. The exact
    form is possible for h V <= 2 T, and says so in `Info.feasible` where it is not.

    Args:
        gradient: an estimator that knows its covariance, such as ex.KnownCovariance.
        step_size: h, a positive number or a schedule. Vollmer et al.'s is 2 h; their factor is
            then I - (step / 8) V.
        temperature: T > 0, a number or a schedule.
        form: "linear", as published, or "exact".

    Returns:
        A kernel with state.position; `auxiliary` is empty.

    Raises:
        TypeError: not an estimator, or an argument that is not a number.
        ValueError: a number out of range, an unknown form, or, at the first step, an estimator
            that does not know its covariance.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> x = jnp.linspace(-1.0, 3.0, 100)
        >>> model = ex.Posterior(lambda m: -0.5 * m**2, lambda m, x: -0.5 * (x - m) ** 2, x)
        >>> kernel = ex.msgld(ex.ScoreCovariance(ex.Minibatch(model, 10)), 1e-3)
        >>> samples = ex.sample(kernel, jnp.float32(1), 2000, key=jax.random.key(0), progress=False)
        >>> bool(abs(samples.position.mean() - 100 / 101) < 0.05)
        True

    Reference:
        Vollmer, Zygalakis and Teh, Exploration of the (non-)asymptotic bias and variance of
        stochastic gradient Langevin dynamics, 2016.
    """
    choice("form", form, FORMS)
    power = as_schedule(temperature, "temperature")
    if form == "exact":
        return sgld(gradient, step_size, temperature=power, compensate=True)
    return ModifiedLangevin(gradient, step_size, power)
