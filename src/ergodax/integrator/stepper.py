"""The step of a sampler with one gradient estimate: all but its update, written once."""

import abc
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from ergodax.gradient.base import Estimate, GradientEstimator, check_estimator
from ergodax.kernel import Info, Kernel, State, report_step
from ergodax.schedule import Schedule, as_schedule


class Moved(NamedTuple):
    """What an update leads to."""

    position: PyTree
    auxiliary: dict[str, PyTree]
    estimate: Estimate  # the one that the update used
    gradient: PyTree  # the estimator's next state
    told: dict[str, Any] = {}  # further fields of Info, such as the kinetic temperature


class Stepper(Kernel):
    """A kernel of one estimate a step: schedules, step count and Info are seen to here.

    A subclass says how its auxiliary variables begin, and what its update is.
    """

    gradient: GradientEstimator = eqx.field(converter=check_estimator)
    step_size: Schedule = eqx.field(converter=partial(as_schedule, name="step_size"))
    temperature: Schedule

    @abc.abstractmethod
    def begin(self, key: PRNGKeyArray, position: PyTree) -> tuple[dict[str, PyTree], PRNGKeyArray]:
        """The auxiliary variables at the start, and a key for the estimator."""

    @abc.abstractmethod
    def update(self, key: PRNGKeyArray, state: State, h: Array, temperature: Array) -> Moved:
        """The sampler's equations, with step size h."""

    def init(self, key: PRNGKeyArray, position: PyTree) -> State:
        """Begin the auxiliary variables and prepare the estimator."""
        auxiliary, key = self.begin(key, position)
        return State(position, auxiliary, self.gradient.init(key, position), None, jnp.int32(0))

    def step(self, key: PRNGKeyArray, state: State) -> tuple[State, Info]:
        """The update, at this step's step size and temperature."""
        h = self.step_size(state.step)
        new = self.update(key, state, h, self.temperature(state.step))
        info = report_step(new.estimate, new.position, h, **new.told)
        return State(new.position, new.auxiliary, new.gradient, None, state.step + 1), info


class PositionStepper(Stepper):
    """A Stepper whose state is a position and nothing else."""

    def begin(self, key: PRNGKeyArray, position: PyTree) -> tuple[dict[str, PyTree], PRNGKeyArray]:
        """No auxiliary variables."""
        return {}, key
