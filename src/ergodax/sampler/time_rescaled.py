"""Steps that follow the gradient's size, by a change of time; the draws then have weights."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.checks import instance, real_number
from ergodax.gradient.base import GradientEstimator
from ergodax.integrator.splitting import Splitting
from ergodax.integrator.stepper import Stepper
from ergodax.kernel import Info, Kernel, State, named
from ergodax.sampler.overdamped import sgld
from ergodax.sampler.underdamped import langevin
from ergodax.schedule import Constant

MONITOR = "gradient_monitor"


class TimeRescaled(Kernel):
    """A kernel and the clock that its steps follow; see `time_rescaled`."""

    kernel: Any  # a Stepper or a Splitting
    rate: Float[Array, ""] = eqx.field(converter=jnp.asarray)
    slowest: Float[Array, ""] = eqx.field(converter=jnp.asarray)
    fastest: Float[Array, ""] = eqx.field(converter=jnp.asarray)
    power: Float[Array, ""] = eqx.field(converter=jnp.asarray)
    gradient_scale: Float[Array, ""] = eqx.field(converter=jnp.asarray)

    def init(self, key: PRNGKeyArray, position: PyTree) -> State:
        """The monitor begins at the gradient of the start."""
        key, key_gradient = jax.random.split(key)
        state = self.kernel.init(key, position)
        estimate = state.estimate
        if estimate is None:
            gradient = self.kernel.gradient
            estimate, _ = gradient.estimate(key_gradient, state.gradient, state.position)
        return self._watched(state, self._size(tree.norm(estimate.gradient)))

    def step(self, key: PRNGKeyArray, state: State) -> tuple[State, Info]:
        """A step as long as the monitor says, which then follows the gradient that it used."""
        auxiliary = dict(state.auxiliary)
        monitor = auxiliary.pop(MONITOR)
        h = tree.cast(self.kernel.step_size(state.step), monitor)
        kernel = dataclasses.replace(self.kernel, step_size=Constant(h * self._speed(monitor)))
        new, info = kernel.step(key, dataclasses.replace(state, auxiliary=auxiliary))
        kept = jnp.exp(-0.5 * tree.cast(self.rate, h) * h)
        size = self._size(tree.cast(info.gradient_norm, h))
        half = kept * monitor + (1.0 - kept) * size
        full = kept * half + (1.0 - kept) * size
        return self._watched(new, full), dataclasses.replace(info, weight=h * self._speed(half))

    def _watched(self, state: State, monitor: Array) -> State:
        return dataclasses.replace(state, auxiliary={**state.auxiliary, MONITOR: monitor})

    def _size(self, norm: Array) -> Array:
        return (norm / tree.cast(self.gradient_scale, norm)) ** 2

    def _speed(self, monitor: Array) -> Array:
        """psi, between its bounds."""
        least, most, power = (
            tree.cast(x, monitor) for x in (self.slowest, self.fastest, self.power)
        )
        grown = monitor**power
        return least * (grown + most) / (grown + least)


@named
def time_rescaled(
    kernel: Any,
    *,
    rate: float | int = 1.0,
    bounds: tuple[float | int, float | int] = (0.1, 10.0),
    power: float | int = 0.25,
    gradient_scale: float | int = 1.0,
) -> TimeRescaled:
    """The same sampler with steps that shrink where gradients have been large.

    State: the sampler's, and zeta, which follows the gradient's square. H, D and Q: the sampler's;
    it is run in the time t(tau) with dt = psi(zeta) dtau, where
        d zeta = rate (|g|^2 / gradient_scale^2 - zeta) dtau
        psi(zeta) = a (zeta^power + b) / (zeta^power + a),   (a, b) = bounds
    falls from b at zeta = 0 to a. Update of step size h: one step of the sampler of step size
    psi(zeta) h; then, with e = exp(-rate h / 2) and g the gradient that it used last,
        zeta <- e zeta + (1 - e) |g|^2 / gradient_scale^2,   twice.

    Nothing feeds back on x but the length of the steps, so in the time t the dynamics are the
    sampler's own and need no correction. The draws are equally spaced in tau, though: each has
    the weight psi(zeta) h, with zeta from between the two updates, in `Info.weight`, and
    `Samples.summary` is of weighted averages. Without weights the draws have a density
    proportional to exp(-U / T) E[1 / psi | x], however small the step. Of the sampler's order in h,
    where rate h is small too. zeta is one number: with a zeta for each coordinate, as in Adam, no
    weights make the law right.

    What it is for: targets with regions so narrow that they would force small steps on all of
    the run. Where one step size fits everywhere it gains nothing, and the weights cost ESS.

    Args:
        kernel: of one gradient estimate at a time: ex.sgld, ex.sghmc, ex.langevin and others.
            Its step size, a number or a schedule, is that in tau.
        rate: of zeta's forgetting, per unit of tau, positive.
        bounds: of the step size over h, two positive numbers, the smaller one first.
        power: positive; at 1/4 psi is about proportional to |g|^(-1/2) between its bounds.
        gradient_scale: the norm of a gradient that counts as 1; best about the usual norm, which
            is sqrt(d) in coordinates in which posterior standard deviations are 1.

    Returns:
        A kernel whose states have "gradient_monitor" in `auxiliary`; its Info has the step size
        psi h and the weight.

    Raises:
        TypeError: not such a kernel, or an argument that is not a number.
        ValueError: a number out of range.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> gradient = ex.FullGradient(ex.targets.funnel(dimension=2, scale=1.0))
        >>> kernel = ex.time_rescaled(ex.sghmc(gradient, 0.05), gradient_scale=1.5)
        >>> samples = ex.sample(kernel, jnp.zeros(2), 400, key=jax.random.key(0))
        >>> float(samples.info.weight.min()) > 0.005
        True

    Reference:
        Leimkuhler, Lohmann and Whalley, A Langevin sampling algorithm inspired by the Adam
        optimizer, 2025; Rajpal, Leimkuhler and Jiang, on SA-SGLD, 2025.
    """
    instance("kernel", kernel, (Stepper, Splitting), "a sampler such as ex.sgld(gradient, 1e-3)")
    if not (isinstance(bounds, tuple | list) and len(bounds) == 2):
        raise TypeError(f"bounds must be two numbers such as (0.1, 10.0), not {bounds!r}.")
    least = real_number("bounds[0]", bounds[0], above=0.0)
    most = real_number("bounds[1]", bounds[1], above=least, hint="The smaller one comes first.")
    others = {"rate": rate, "power": power, "gradient_scale": gradient_scale}
    rate, power, scale = (real_number(name, v, above=0.0) for name, v in others.items())
    return TimeRescaled(kernel, rate, least, most, power, scale)


@named
def sa_sgld(
    gradient: GradientEstimator,
    step_size: Any,
    *,
    temperature: Any = 1.0,
    **clock: Any,
) -> TimeRescaled:
    """SGLD with steps adapted by a Sundman change of time (Rajpal, Leimkuhler and Jiang).

    State: position x, and zeta. H = U, D = I, Q = 0. Update, with g an estimate of grad U:
        x+ = x - psi(zeta) h g + N(0, 2 psi(zeta) h T),   then zeta follows |g|^2
    It is `time_rescaled(sgld(...))`: see there for psi, zeta, and the weights of the draws, which
    `Samples.summary` uses. First order in h. The step is chosen before its batch is drawn: a batch
    that decided on the length of its own step would add a bias.

    Args:
        gradient: an estimator of grad U.
        step_size: h in tau, a positive number or a schedule.
        temperature: T, a number or a schedule.
        clock: rate, bounds, power and gradient_scale of `time_rescaled`, by name.

    Returns:
        A kernel whose states have "gradient_monitor" in `auxiliary`; one gradient a step.

    Raises:
        TypeError: not an estimator, or an argument that is not a number.
        ValueError: a number out of range.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> x = jnp.linspace(-1.0, 3.0, 100)
        >>> model = ex.Posterior(lambda m: -0.5 * m**2, lambda m, x: -0.5 * (x - m) ** 2, x)
        >>> kernel = ex.sa_sgld(ex.Minibatch(model, 10), 1e-3)
        >>> samples = ex.sample(kernel, jnp.float32(1), 2000, key=jax.random.key(0), progress=False)
        >>> table = ex.postprocess.weighted(samples)  # each draw by its time
        >>> bool(abs(table["mean"].iloc[0] - 100 / 101) < 0.1)
        True

    Reference:
        Rajpal, Leimkuhler and Jiang, on SA-SGLD, 2025, arXiv 2511.11666.
    """
    return time_rescaled(sgld(gradient, step_size, temperature=temperature), **clock)


@named
def samadams(
    gradient: GradientEstimator,
    step_size: Any,
    friction: Any = 1.0,
    *,
    mass: Any = 1.0,
    temperature: Any = 1.0,
    **clock: Any,
) -> TimeRescaled:
    """Underdamped Langevin dynamics with Adam-like adaptive steps (Leimkuhler, Lohmann, Whalley).

    State: position x, momentum r, and zeta. H = U + r^T M^-1 r / 2, D = diag(0, gamma M),
    Q = [[0, -I], [I, 0]]. Update: half of zeta's, BAOAB of step size psi(zeta) h, and half of
    zeta's with the new gradient; the weight of the draw is psi(zeta) h then. It is
    `time_rescaled(langevin(...))`: see there for psi, zeta, and the weights, which
    `Samples.summary` uses. Second order in h.

    Args:
        gradient: an estimator of grad U.
        step_size: h in tau, a positive number or a schedule.
        friction: the rate gamma, a number or a schedule.
        mass: M: number, vector, matrix or operator, positive definite.
        temperature: T, a number or a schedule.
        clock: rate, bounds, power and gradient_scale of `time_rescaled`, by name.

    Returns:
        A kernel whose states have "momentum" and "gradient_monitor" in `auxiliary`; one gradient
        a step.

    Raises:
        TypeError: not an estimator, or an argument that is not a number.
        ValueError: a number out of range.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> x = jnp.linspace(-1.0, 3.0, 100)
        >>> model = ex.Posterior(lambda m: -0.5 * m**2, lambda m, x: -0.5 * (x - m) ** 2, x)
        >>> kernel = ex.samadams(ex.Minibatch(model, 10), 0.02, friction=10.0)
        >>> samples = ex.sample(kernel, jnp.float32(1), 2000, key=jax.random.key(0), progress=False)
        >>> table = ex.postprocess.weighted(samples)  # each draw by its time
        >>> bool(abs(table["mean"].iloc[0] - 100 / 101) < 0.1)
        True

    Reference:
        Leimkuhler, Lohmann and Whalley, A Langevin sampling algorithm inspired by the Adam
        optimizer, 2025, arXiv 2504.18911.
    """
    inside = langevin(gradient, step_size, friction, mass=mass, temperature=temperature)
    return time_rescaled(inside, **clock)
