"""What `verify.kernel` found, and what follows from it."""

import dataclasses
from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Float

from ergodax.verify import bias
from ergodax.verify.bias import Bias, Estimate

LARGE = 0.5  # sd: a bias beyond the reach of a few powers of h
ORDER_ERROR = 0.4  # standard error of a slope that still says something


class Row(NamedTuple):
    """One line of the table: the bias of a function at a step size, after `duration`.

    Attributes:
        function: its name.
        step_size: h.
        bias: in standard deviations of the function under the target.
        error: the standard error of `bias`, likewise.
    """

    function: str
    step_size: float
    bias: float
    error: float


@dataclasses.dataclass(frozen=True, eq=False)
class KernelReport:
    """What `verify.kernel` found; print it for the verdict and a table.

    All biases are in standard deviations of each function under the target.

    Attributes:
        functions: names.
        step_sizes: those at which everything stayed finite.
        one_step: bias after one step, divided by h.
        bias: bias after the time `duration`.
        duration: physical time of a run.
        num_draws: starts at each step size.
        budget: probability of a false alarm of the whole report.
        tolerance: the limit is not called right where `resolution` is coarser than this.
        diverged: the smallest step size at which a number was not finite, or None; this one and
            the larger ones are left out.
    """

    functions: tuple[str, ...]
    step_sizes: Float[np.ndarray, " steps"]
    one_step: Bias
    bias: Bias
    duration: float
    num_draws: int
    budget: float
    tolerance: float
    diverged: float | None

    @property
    def critical(self) -> float:
        """How many standard errors are no accident, each function being tested twice."""
        return float(scipy.stats.norm.isf(0.5 * self.budget / (2 * len(self.functions))))

    @property
    def fitted(self) -> int:
        """How many of the smallest step sizes the limits are taken from.

        Those at which every bias is below `LARGE`, and always three: h -> 0 is not to be seen
        from further off.
        """
        large = np.abs(self.bias.value).max(axis=1) > LARGE
        return max(3, int(np.argmax(np.append(large, True))))

    @property
    def limits(self) -> tuple[Estimate, Estimate]:
        """The limits as h -> 0 of `bias` and of `one_step`; both are 0 for a right kernel."""
        h, n = self.step_sizes[: self.fitted], self.fitted
        parts = (Bias(each.value[:n], each.error[:n]) for each in (self.bias, self.one_step))
        fixed, single = (bias.limit(h, part) for part in parts)
        return fixed, single

    @property
    def scores(self) -> Float[np.ndarray, "2 functions"]:
        """The limits in units of their standard errors."""
        return np.array([np.abs(each.value) / each.error for each in self.limits])

    @property
    def worst(self) -> str:
        """The function whose limit is the most standard errors away from 0."""
        return self.functions[int(self.scores.max(axis=0).argmax())]

    @property
    def resolution(self) -> float:
        """The error of the limit, after `duration`, that would have been seen in any function."""
        return float(self.critical * self.limits[0].error.max())

    @property
    def right_limit(self) -> bool | None:
        """Whether the limit as h -> 0 leaves the target alone; None where the data do not say."""
        if self.scores.max() > self.critical:
            return False
        return True if self.resolution <= self.tolerance else None

    @property
    def ok(self) -> bool:
        """Whether the limit is right, and known to be."""
        return self.right_limit is True

    @property
    def order(self) -> float | None:
        """The weak order at a fixed time: the slope of log |bias| against log h as h -> 0.

        That of the function whose upper limit, slope + 5 standard errors, is the lowest; None
        where no slope is known to within `ORDER_ERROR`.
        """
        return None if self._slowest is None else float(self._orders.value[self._slowest])

    @property
    def order_error(self) -> float | None:
        """The standard error of `order`."""
        return None if self._slowest is None else float(self._orders.error[self._slowest])

    @property
    def table(self) -> list[Row]:
        """The bias after `duration`, line by line."""
        return [
            Row(name, float(h), float(self.bias.value[k, f]), float(self.bias.error[k, f]))
            for f, name in enumerate(self.functions)
            for k, h in enumerate(self.step_sizes)
        ]

    @property
    def verdict(self) -> str:
        """One sentence, and another where the kernel diverged."""
        return self._of_limit if self.diverged is None else f"{self._of_limit} {self._of_steps}"

    @property
    def _of_limit(self) -> str:
        f = self.functions.index(self.worst)
        if self.right_limit is False:
            which = int(self.scores[:, f].argmax())
            limit = self.limits[which]
            when = (f"after time {self.duration:.3g}", "a unit of time, in one step")[which]
            return (
                f"Wrong limit: as h -> 0 the mean of {self.worst} is off by "
                f"{limit.value[f]:.3g} +- {limit.error[f]:.2g} sd {when}."
            )
        if self.right_limit is None:
            return (
                f"Undecided: an error of the limit below {self.resolution:.2g} sd would not be "
                f"seen, and tolerance is {self.tolerance:.2g}. Try more draws, or smaller steps."
            )
        return f"Right limit: an error of {self.resolution:.2g} sd would be seen. {self._of_order}"

    def __str__(self) -> str:
        """The verdict and a table: for each function its limits and the bias at each h."""
        wide = max(map(len, (*self.functions, "function")))
        steps = "".join(f"{f'h = {h:.3g}':>20}" for h in self.step_sizes)
        lines = [
            self.verdict,
            f"Biases in sd of each function after time {self.duration:.4g}, their limits from the "
            f"{self.fitted} smallest h, and the limit of (bias after one step) / h:",
        ]
        lines.append(f"{'function':{wide}}{'h -> 0':>20}{steps}{'one step':>20}")
        fixed, single = self.limits
        for f, name in enumerate(self.functions):
            columns = zip(self.bias.value[:, f], self.bias.error[:, f], strict=True)
            cells = [(fixed.value[f], fixed.error[f]), *columns, (single.value[f], single.error[f])]
            lines.append(f"{name:{wide}}" + "".join(f"{v:11.4f} +-{e:7.4f}" for v, e in cells))
        return "\n".join(lines)

    @property
    def _orders(self) -> Estimate:
        return bias.order(self.step_sizes, self.bias)

    @property
    def _slowest(self) -> int | None:
        slope, error = self._orders
        known = np.nan_to_num(error, nan=np.inf) <= ORDER_ERROR
        return int(np.where(known, slope + 5.0 * error, np.inf).argmin()) if known.any() else None

    @property
    def _of_order(self) -> str:
        if self._slowest is None:
            return "Too little bias is seen for an order."
        name = self.functions[self._slowest]
        return f"Weak order {self.order:.2f} +- {self.order_error:.2f}, from {name}."

    @property
    def _of_steps(self) -> str:
        return (
            f"The kernel diverged at step size {self.diverged:.3g}; it and larger "
            "ones are left out."
        )
