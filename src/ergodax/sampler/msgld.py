"""Stochastic-gradient Langevin dynamics with its noise modified for the gradient's."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.gradient.base import GradientEstimator, check_estimator
from ergodax.integrator.nogin import known_covariance
from ergodax.kernel import Info, Kernel, State, report_step
from ergodax.sampler.sgld import sgld
from ergodax.schedule import as_schedule
from ergodax.schedule.constant import Schedule

FORMS = ("linear", "exact")


class ModifiedLangevin(Kernel):
    """The kernel that `msgld` returns for its linear form."""

    gradient: GradientEstimator
    step_size: Schedule
    temperature: Schedule

    def init(self, key: PRNGKeyArray, position: PyTree) -> State:
        """Prepare the estimator."""
        position = tree.freeze(position)
        return State(position, {}, self.gradient.init(key, position), None, jnp.int32(0))

    def step(self, key: PRNGKeyArray, state: State) -> tuple[State, Info]:
        """x - h g + sqrt(2 h T) (I - (h / 4T) V) xi."""
        h, temperature = self.step_size(state.step), self.temperature(state.step)
        key_gradient, key_noise = jax.random.split(key)
        estimate, gradient = self.gradient.estimate(key_gradient, state.gradient, state.position)
        covariance = known_covariance(estimate, self.gradient, "msgld")
        normal = tree.normal_like(key_noise, state.position)
        noise = tree.add_scaled(normal, -h / (4.0 * temperature), covariance.mv(normal))
        moved = tree.add_scaled(state.position, -h, estimate.gradient)
        position = tree.add_scaled(moved, jnp.sqrt(2.0 * h * temperature), noise)
        info = report_step(estimate, position, h)
        return State(position, {}, gradient, None, state.step + 1), info


def msgld(
    gradient: GradientEstimator,
    step_size: Any,
    *,
    temperature: Any = 1.0,
    form: str = "linear",
) -> Kernel:
    """Modified stochastic-gradient Langevin dynamics (Vollmer, Zygalakis and Teh).

    State: position x. H = U, D = I, Q = 0. Update, with g an estimate of grad U of covariance V:
        linear:  x+ = x - h g + sqrt(2 h T) (I - (h / 4T) V) N(0, I)
        exact:   x+ = x - h g + N(0, 2 h T I - h^2 V), which is `sgld` with compensate=True
    The noise of the step, injected and brought, is 2 h T I in the exact form and
    2 h T I + h^3 V^2 / (8 T) in the linear one.

    First order in h: what is removed is the first-order heat h V / (2 T) of the gradient's noise;
    the bias of Euler's discretisation, also first order, stays. The linear form needs no root of
    a matrix and is defined for every V, but too hot where h V is not well below T: by
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

    Reference:
        Vollmer, Zygalakis and Teh, Exploration of the (non-)asymptotic bias and variance of
        stochastic gradient Langevin dynamics, 2016.
    """
    if form not in FORMS:
        raise ValueError(f"form must be one of {FORMS}, not {form!r}.")
    estimator = check_estimator(gradient)
    step, power = as_schedule(step_size, "step_size"), as_schedule(temperature, "temperature")
    if form == "exact":
        return sgld(estimator, step, temperature=power, compensate=True)
    return ModifiedLangevin(estimator, step, power)
