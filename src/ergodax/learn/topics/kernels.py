"""The four samplers of positive parameters, reflected at zero."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax.gradient.base import GradientEstimator
from ergodax.integrator.splitting import splitting
from ergodax.kernel import Info, Kernel, State, report_step
from ergodax.recipe.metric import Metric
from ergodax.recipe.operators import Diagonal
from ergodax.sampler import sgld, sgrld
from ergodax.schedule import as_schedule
from ergodax.schedule.constant import Schedule

SAMPLERS = ("sgrld", "sgrhmc", "sgld", "sghmc")
LEAST = 1e-10  # theta is kept at or above it, so that n / theta stays finite in single precision


class Reflected(Kernel):
    """A kernel whose positions are mirrored at zero, coordinate by coordinate.

    Where a step ends at x < 0 the next begins at |x|, and the momentum of that coordinate, if the
    sampler has one, changes its sign: mirrored is the motion, and a momentum that were kept
    would drive the coordinate into the wall again.

    Close to zero the forces of the prior, (beta - 1) / x, are as large as one likes for
    beta < 1. A position below the floor max(1e-10, c h^p) is raised to it, with h the step's.

    Args:
        kernel: positions of any tree; their momenta, if any, like them.
        coefficient: c >= 0.
        power: p.
        flip: change the sign of the momentum; without it the law is wrong.
    """

    kernel: Kernel
    coefficient: Float[Array, ""] = eqx.field(converter=jnp.asarray, default=0.0)
    power: Float[Array, ""] = eqx.field(converter=jnp.asarray, default=1.0)
    flip: bool = eqx.field(static=True, default=True)

    def init(self, key: PRNGKeyArray, position: PyTree) -> State:
        """As the kernel does."""
        return self.kernel.init(key, position)

    def step(self, key: PRNGKeyArray, state: State) -> tuple[State, Info]:
        """The kernel's step, then the reflection."""
        state, info = self.kernel.step(key, state)
        floor = jnp.maximum(LEAST, self.coefficient * info.step_size**self.power)
        position = jax.tree.map(
            lambda x: jnp.maximum(jnp.abs(x), floor.astype(x.dtype)), state.position
        )
        auxiliary = state.auxiliary
        if self.flip and "momentum" in auxiliary:
            flipped = jax.tree.map(
                lambda x, r: jnp.where(x < 0, -r, r), state.position, auxiliary["momentum"]
            )
            auxiliary = {**auxiliary, "momentum": flipped}
        return dataclasses.replace(state, position=position, auxiliary=auxiliary), info


class PositiveSGRHMC(Kernel):
    """Riemannian Hamiltonian Monte Carlo of theta > 0, split as BAOA.

    State: theta, momentum r. H = U + r^T r / 2, D = diag(0, gamma theta),
    Q = [[0, -theta^(1/2)], [theta^(1/2), 0]]: those of `sgrhmc` with G^-1 = diag(theta). Update,
    with g an estimate of grad U:
        B: r <- r - h (theta^(1/2) g - 1 / (2 theta^(1/2)))
        A: theta <- |theta + h / 2 theta^(1/2) r|, r changing its sign where theta would
        O: r <- e^(-h gamma theta) r + N(0, 1 - e^(-2 h gamma theta))
        A again, for `Reflected` to mirror

    The Euler step would multiply r by 1 - h gamma theta, beyond -1 where theta > 2 / (h gamma).
    Frequent words have such theta, and the step size would be bound by them. Solved exactly, the
    factor is between 0 and 1: there r is forgotten in a step, and theta moves as in `sgrld` with
    step size h^2 / 2. Where theta is small r persists, and averages over batches.

    First order in h, and stable whatever the friction.

    Args:
        gradient: an estimator of grad U.
        step_size: h, a schedule.
        friction: gamma, a schedule.

    Reference:
        Ma, Chen and Fox, A complete recipe for stochastic gradient MCMC, 2015, Section 4.2;
        Leimkuhler and Matthews, Molecular Dynamics, 2015, chapter 7, for the splitting.
    """

    gradient: GradientEstimator
    step_size: Schedule
    friction: Schedule

    def init(self, key: PRNGKeyArray, position: Array) -> State:
        """Draw r ~ N(0, I)."""
        key_momentum, key_gradient = jax.random.split(key)
        momentum = jax.random.normal(key_momentum, position.shape, position.dtype)
        state = self.gradient.init(key_gradient, position)
        return State(position, {"momentum": momentum}, state, None, jnp.int32(0))

    def step(self, key: PRNGKeyArray, state: State) -> tuple[State, Info]:
        """B, A, O, A."""
        key_gradient, key_noise = jax.random.split(key)
        theta, r = state.position, state.auxiliary["momentum"]
        estimate, gradient = self.gradient.estimate(key_gradient, state.gradient, theta)
        step_size = self.step_size(state.step)
        h = step_size.astype(theta.dtype)
        root = jnp.sqrt(theta)
        r = r - h * (root * estimate.gradient - 0.5 / root)
        theta, r = mirrored(theta + 0.5 * h * root * r, r)
        loss = h * self.friction(state.step).astype(theta.dtype) * theta
        noise = jax.random.normal(key_noise, r.shape, r.dtype)
        r = jnp.exp(-loss) * r + jnp.sqrt(-jnp.expm1(-2.0 * loss)) * noise
        theta = theta + 0.5 * h * jnp.sqrt(theta) * r
        info = report_step(estimate, theta, step_size, kinetic_temperature=jnp.mean(r**2))
        return State(theta, {"momentum": r}, gradient, None, state.step + 1), info


def mirrored(position: Array, momentum: Array) -> tuple[Array, Array]:
    """Position and momentum mirrored at zero where the position is below it."""
    return jnp.abs(position), jnp.where(position < 0, -momentum, momentum)


def own_metric() -> Metric:
    """G^-1 = diag(theta), of divergence 1: the metric of Patterson and Teh."""
    return Metric(_diagonal, divergence=_ones)


def topic_sampler(
    name: str, gradient: GradientEstimator, step_size: Any, friction: Any = 1.0
) -> Reflected:
    """A sampler of theta > 0.

    State: theta, and a momentum r for "sgrhmc" and "sghmc". H, D and Q are those of the sampler,
    with G^-1 = diag(theta) for the Riemannian ones. Update, with g an estimate of grad U, before
    the reflection:
        sgrld:   theta+ = theta - h theta g + h + N(0, 2 h theta)
        sgld:    theta+ = theta - h g + N(0, 2 h)
        sgrhmc:  BAOA with a metric, see `PositiveSGRHMC`
        sghmc:   BAOA without one, see `splitting`
    With a momentum of friction rate c (gamma, or gamma theta for sgrhmc) a step h moves theta as
    far as a step h^2 / 2 coth(h c / 2) does without: h^2 / 2 for much friction, h / c for little.
    The floor (see `Reflected`) is where the kick of the prior is as large as the sampler's own
    noise: none is needed by sgrld, where theta g is finite; (h / 2)^2 for sgrhmc, (h / 2)^(1/2)
    for sgld, and h for sghmc.

    First order in h away from zero; close to it the bias falls more slowly, and for beta < 1/2
    much more slowly.

    Args:
        name: "sgrld", "sgrhmc", "sgld" or "sghmc".
        gradient: of the topics, a TopicGradient.
        step_size: h, a positive number or a schedule.
        friction: gamma, of the samplers with a momentum.

    Returns:
        The kernel.

    Raises:
        ValueError: an unknown sampler, or a number out of range.

    Reference:
        Patterson and Teh, 2013; Ma, Chen and Fox, A complete recipe for stochastic gradient MCMC,
        2015, Section 4.2.
    """
    match name:
        case "sgrld":
            return Reflected(sgrld(gradient, step_size, own_metric()))
        case "sgrhmc":
            steps, rate = as_schedule(step_size, "step_size"), as_schedule(friction, "friction")
            return Reflected(PositiveSGRHMC(gradient, steps, rate), 0.25, 2.0)
        case "sgld":
            return Reflected(sgld(gradient, step_size), 0.5**0.5, 0.5)
        case "sghmc":
            return Reflected(splitting("BAOA", gradient, step_size, friction), 1.0, 1.0)
    raise ValueError(f"sampler must be one of {SAMPLERS}, not {name!r}.")


def _diagonal(theta: PyTree) -> Diagonal:
    return Diagonal(theta)  # as an array of two axes it would be taken for a matrix


def _ones(theta: PyTree) -> PyTree:
    return jax.tree.map(jnp.ones_like, theta)
