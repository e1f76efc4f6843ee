"""Cycles of large and small steps, which visit one mode after another."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.checks import flag, real_number, whole_number
from ergodax.control_flow import when
from ergodax.gradient.base import GradientEstimator
from ergodax.kernel import Info, Kernel, State, named
from ergodax.schedule import Constant, Cyclical, Schedule, as_schedule


class Stages(eqx.Module):
    """The temperature of a cycle: 0 while it explores, T while it samples."""

    temperature: Schedule
    exploring_steps: Int[Array, ""]  # the first of each cycle
    period: int = eqx.field(static=True)

    def sampling(self, step: Int[Array, ""]) -> Bool[Array, ""]:
        """Whether this step samples."""
        return step % self.period >= self.exploring_steps

    def __call__(self, step: Int[Array, ""]) -> Float[Array, ""]:
        """The temperature at this step."""
        temperature = self.temperature(step)
        return jnp.where(self.sampling(step), temperature, jnp.zeros_like(temperature))


class CyclicalKernel(Kernel):
    """The kernel that `cyclical` returns."""

    kernel: Kernel  # its step size and temperature are those of the cycle
    at_one: Kernel | None  # the same at temperature 1, to draw fresh momenta; None to keep them
    stages: Stages

    def init(self, key: PRNGKeyArray, position: PyTree) -> State:
        """As the sampler does."""
        state = self.kernel.init(key, position)
        if self.at_one is not None and "momentum" not in state.auxiliary:
            raise ValueError(
                "resample=True needs a sampler with a momentum; the variables of this one are "
                f"{['position', *state.auxiliary]}. Try ex.sghmc, or resample=False."
            )
        return state

    def step(self, key: PRNGKeyArray, state: State) -> tuple[State, Info]:
        """The sampler's step, at the cycle's step size and temperature."""
        if self.at_one is not None:
            key, key_momentum = jax.random.split(key)
            state = self._restarted(self.at_one, key_momentum, state)
        sampling = self.stages.sampling(state.step)
        state, info = self.kernel.step(key, state)
        # A step that explores is not meant to have the sampler's law.
        feasible = None if info.feasible is None else info.feasible | ~sampling
        return state, dataclasses.replace(info, sampling=sampling, feasible=feasible)

    def _restarted(self, at_one: Kernel, key: PRNGKeyArray, state: State) -> State:
        """The state with a fresh momentum, where a cycle begins."""

        def fresh() -> PyTree:
            root = jnp.sqrt(self.stages.temperature(state.step))
            return tree.scale(root, at_one.init(key, state.position).auxiliary["momentum"])

        due = state.step % self.stages.period == 0
        momentum = when(due, fresh, lambda: state.auxiliary["momentum"])
        auxiliary = {**state.auxiliary, "momentum": momentum}
        return dataclasses.replace(state, auxiliary=auxiliary)


@named
def cyclical(
    sampler: Callable[..., Kernel],
    gradient: GradientEstimator,
    step_size: Any,
    *,
    period: int | np.integer,
    exploration: float | int = 0.5,
    temperature: Any = 1.0,
    resample: bool = False,
    **more: Any,
) -> CyclicalKernel:
    """Run a sampler in cycles: large steps without noise find a mode, small ones sample it.

    State, H, D and Q: the sampler's. Update at step t, r = (t mod P) / P its place in the cycle:
        h_t = (h_0 / 2) (cos(pi r) + 1)
        T_t = 0 where r < exploration, else T
        one step of the sampler with step size h_t and temperature T_t
    The draws are the positions of the sampling steps: `samples.sampling_stage()` keeps them, by
    `Info.sampling`.

    Use it to find several modes of a posterior that no chain crosses between, such as a
    network's. It is biased, and not only through the step size: a cycle ends in the mode whose
    basin the exploring stage came to rest in, so the weight of a mode among the draws is the
    size of its basin, as that stage finds it, and not its posterior mass. Within a mode the draws
    have the bias of the sampler's order at steps up to that of the stage's start. For weights
    that are right, see `replica_exchange`.

    Args:
        sampler: ex.sgld, ex.sghmc, ex.langevin or another function (gradient, step_size, ...,
            temperature=) that allows the temperature 0.
        gradient: an estimator of grad U.
        step_size: h_0, a positive number: the step at the start of a cycle.
        period: P, steps in a cycle; about a thousand or more, so that each cycle finds a mode.
        exploration: the fraction of a cycle that explores, in [0, 1).
        temperature: T of the sampling stage, a number or a schedule.
        resample: draw the momentum anew, from N(0, T M), where a cycle begins; it leaves the mode
            then in a direction of its own. Otherwise the momentum is kept.
        more: further arguments of the sampler, by name.

    Returns:
        A kernel whose states are the sampler's.

    Raises:
        TypeError: not a sampler, a step size that is not a number, or a period that is not an
            integer.
        ValueError: a number out of range, or a sampler that needs a positive temperature.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> x = jnp.linspace(-1.0, 3.0, 100)
        >>> model = ex.Posterior(lambda m: -0.5 * m**2, lambda m, x: -0.5 * (x - m) ** 2, x)
        >>> kernel = ex.cyclical(ex.sgld, ex.Minibatch(model, 10), 2e-3, period=200)
        >>> samples = ex.sample(kernel, jnp.float32(1), 2000, key=jax.random.key(0), progress=False)
        >>> bool(abs(samples.position.mean() - 100 / 101) < 0.05)
        True

    Reference:
        Zhang, Li, Zhang, Chen and Wilson, Cyclical stochastic gradient MCMC for Bayesian deep
        learning, 2020.
    """
    check_sampler(sampler)
    period = whole_number("period", period, hint="It is the number of steps in a cycle.")
    hint = "It is a fraction in [0, 1): some steps of a cycle sample."
    exploration = real_number("exploration", exploration, at_least=0.0, below=1.0, hint=hint)
    flag("resample", resample)
    initial = as_schedule(step_size, "step_size")
    if not isinstance(initial, Constant):
        raise TypeError("step_size must be a number, the first step of a cycle, not a schedule.")
    steps = Cyclical(initial.value, period)
    exploring = np.count_nonzero(np.arange(period) / period < exploration)
    hot = as_schedule(temperature, "temperature", allow_zero=True)
    stages = Stages(hot, jnp.int32(exploring), period)
    at_one = sampler(gradient, steps, temperature=1.0, **more)
    if exploring:
        _check_cold(sampler, gradient, steps, more)
    kernel = sampler(gradient, steps, temperature=stages, **more)
    return CyclicalKernel(kernel, at_one if resample else None, stages)


def check_sampler(sampler: Any) -> None:
    """Accept a function that makes kernels. Raises: TypeError."""
    if isinstance(sampler, Kernel) or not callable(sampler):
        raise TypeError(
            f"sampler must be a function that makes a kernel, such as ex.sgld itself, not "
            f"{type(sampler).__name__}. Pass its gradient and step size beside it."
        )
    try:
        taken = inspect.signature(sampler).parameters
    except ValueError:  # a function of C, which does not tell
        taken = {}
    if "temperature" not in taken and all(p.kind != p.VAR_KEYWORD for p in taken.values()):
        raise TypeError(
            f"sampler must take temperature=, as ex.sgld does; {sampler!r} does not. A sampler "
            "without a temperature can be neither cold nor hot."
        )


def _check_cold(
    sampler: Callable[..., Any], gradient: Any, steps: Any, more: dict[str, Any]
) -> None:
    try:
        sampler(gradient, steps, temperature=0.0, **more)
    except ValueError as error:
        raise ValueError(
            f"the exploring stage has temperature 0, which this sampler refuses: {error} Try "
            "ex.sgld, ex.sghmc or ex.langevin, or exploration=0."
        ) from error
