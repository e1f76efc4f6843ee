"""Timing on a machine that is not quiet: interleaved rounds, ratios within a round.

Each round runs every contestant once, beginning with another one each time. A slow minute of
the machine then hits all of them, and a ratio of two times of one round is worth more than
the ratio of two averages.
"""

import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np


@dataclasses.dataclass(frozen=True)
class Contestant:
    """Something to time.

    Attributes:
        name: unique in its race.
        run: seed -> arrays; the clock stops when they are computed.
        units: what one run is divided by, such as its number of steps.
    """

    name: str
    run: Callable[[int], Any]
    units: int


@dataclasses.dataclass(frozen=True)
class Timing:
    """The rounds of one contestant.

    Attributes:
        microseconds: for one unit, in the order of the rounds.
        scale: standard deviation of the first run's draws, mean over coordinates; a check
            that two contestants sample the same law. NaN where the result is no set of draws.
    """

    microseconds: tuple[float, ...]
    scale: float

    @property
    def minimum(self) -> float:
        """The best round."""
        return min(self.microseconds)

    @property
    def median(self) -> float:
        """The middle round."""
        return statistics.median(self.microseconds)


@dataclasses.dataclass(frozen=True)
class Ratio:
    """A ratio of two contestants: the median over rounds and the quartiles around it."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} [{self.low:.2f}, {self.high:.2f}]"


def ratio(one: Timing, other: Timing) -> Ratio:
    """How many times longer `one` takes than `other`, round by round."""
    rounds = np.array(one.microseconds) / np.array(other.microseconds)
    low, median, high = np.quantile(rounds, (0.25, 0.5, 0.75))
    return Ratio(float(median), float(low), float(high))


def race(contestants: Sequence[Contestant], rounds: int) -> dict[str, Timing]:
    """Compile everyone, check the results, then time `rounds` interleaved rounds.

    Raises:
        FloatingPointError: a contestant's draws are not finite.
    """
    scales = {c.name: _first_run(c) for c in contestants}
    times: dict[str, list[float]] = {c.name: [] for c in contestants}
    for k in range(rounds):
        shift = k % len(contestants)
        order = [*contestants[shift:], *contestants[:shift]]
        for contestant in order if k % 2 == 0 else reversed(order):
            begin = time.perf_counter()
            jax.block_until_ready(contestant.run(k + 1))
            seconds = time.perf_counter() - begin
            times[contestant.name].append(1e6 * seconds / contestant.units)
    return {name: Timing(tuple(values), scales[name]) for name, values in times.items()}


def _first_run(contestant: Contestant) -> float:
    """Compile; the standard deviation of what comes out, over all draws but the first tenth."""
    draws = np.asarray(contestant.run(0))
    if not np.all(np.isfinite(draws)):
        raise FloatingPointError(f"{contestant.name} gave values that are not finite")
    if draws.ndim < 2:
        return float("nan")
    draws = np.moveaxis(draws, -2, 0)  # draws first, coordinates last
    return float(np.mean(np.std(draws[len(draws) // 10 :], axis=0)))
