"""What is measured of each contestant of a comparison."""

import dataclasses
import statistics
import time
from collections.abc import Callable

import numpy as np

from ergodax.apps.compare_problem import Problem

CHAINS = 4
OURS = "ergodax infer"


@dataclasses.dataclass(frozen=True)
class Limits:
    """How long each contestant runs.

    Attributes:
        goal: the effective sample size of a finished run.
        least: seconds of sampling, at least.
        most: seconds of sampling, at most; beyond, the time to the goal is extrapolated.
    """

    goal: float = 10_000.0
    least: float = 1.0
    most: float = 60.0


@dataclasses.dataclass(frozen=True)
class Measured:
    """One contestant on one problem.

    Attributes:
        sampler: its name.
        num_data: N.
        setup_seconds: compilation, search for the mode, warm-up and tuning.
        ess: bulk, of the component with the least, of the draws that were timed.
        seconds: that these draws took, compiled.
        steps: of each chain in that time; a step of NUTS is a trajectory.
        error_mean: the largest error of a mean, in posterior sd.
        error_sd: the largest relative error of an sd.
        to_goal: seconds to the goal, set-up included.
        extrapolated: whether the goal was not reached, and `to_goal` follows from the rate.
        note: what is particular.
        gradients: of the whole data, of each chain, in those seconds; None for minibatches.
    """

    sampler: str
    num_data: int
    setup_seconds: float
    ess: float
    seconds: float
    steps: int
    error_mean: float
    error_sd: float
    to_goal: float
    extrapolated: bool
    note: str = ""
    gradients: float | None = None

    @property
    def gradients_each(self) -> float | None:
        """Gradients of the whole data to an effective draw: what no machine's load changes."""
        return None if self.gradients is None else CHAINS * self.gradients / self.ess

    @property
    def rate(self) -> float:
        """Effective draws a second while sampling."""
        return self.ess / self.seconds

    @property
    def microseconds(self) -> float:
        """A step of all chains together."""
        return 1e6 * self.seconds / self.steps

    def all_in(self, goal: float) -> float:
        """Effective draws a second of a run to the goal, everything counted."""
        return goal / self.to_goal


def least_ess(draws: np.ndarray) -> float:
    """ArviZ's bulk ESS of the worst component of draws of shape (chains, draws, d)."""
    from arviz_stats.base.array import array_stats

    values = array_stats.ess(draws.astype(np.float64), method="bulk", chain_axis=0, draw_axis=1)
    return float(np.min(values))


def until_goal(more: Callable[[int], np.ndarray], limits: Limits) -> tuple[np.ndarray, float]:
    """Chunks of draws until there are enough or the time is up, and the seconds they took.

    The seconds are the median chunk's times their number: other work on the machine matters less.

    Args:
        more: the number of a chunk -> its draws, shape (chains, draws, d).
        limits: how many are enough, and the time.
    """
    parts, seconds, looked = [], [], 0
    while True:
        begin = time.perf_counter()
        parts.append(more(len(parts)))
        seconds.append(time.perf_counter() - begin)
        if sum(seconds) > limits.most:
            break
        if sum(seconds) >= limits.least and len(parts) >= 1.3 * looked:
            looked = len(parts)
            if least_ess(np.concatenate(parts, axis=1)) >= limits.goal:
                break
    return np.concatenate(parts, axis=1), len(parts) * statistics.median(seconds)


def measured(
    name: str,
    problem: Problem,
    set_up: float,
    draws: np.ndarray,
    seconds: float,
    limits: Limits,
    note: str,
    thin: int = 1,
    gradients: float | None = None,
) -> Measured:
    """The figures of a run.

    Args:
        name: of the sampler.
        problem: with the reference.
        set_up: seconds before sampling.
        draws: shape (chains, draws, d).
        seconds: that they took.
        limits: what the goal is.
        note: what is particular.
        thin: steps to a draw.
        gradients: of the whole data to a draw of one chain, None for minibatches.
    """
    whole = None if gradients is None else gradients * draws.shape[1]
    ess = least_ess(draws)
    return Measured(
        name, problem.num_data, set_up, ess, seconds, draws.shape[1] * thin,
        *problem.reference.errors(draws), set_up + limits.goal / ess * seconds,
        ess < limits.goal, note, whole,
    )  # fmt: skip
