"""What `verify.kernel` found: biases at several step sizes, their limit and order as h -> 0."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Float

from ergodax.tree import Number

Steps = Float[np.ndarray, " steps"]
SEEN = 4.0  # standard errors from which a bias counts for the order
NEXT = 0.3  # size of the next power of h in a bias, relative to the leading one
DOUBT = 0.2  # of an extrapolation; with 5 errors to a finding, the limit must be half the bias
LARGE = 0.5  # sd: a bias beyond the reach of a few powers of h
UNKNOWN = 1.0  # sd: little is known of a law whose error may be larger
ORDER_ERROR = 0.4  # standard error of a slope that still says something
LOOKS = 5  # at most, each with more draws than the one before
SUSPICION = 0.1  # probability that a right kernel is looked at again, at most


class Bias(NamedTuple):
    """A bias and its standard error at each step size, for each function."""

    value: Float[np.ndarray, "steps functions"]
    error: Float[np.ndarray, "steps functions"]


class Estimate(NamedTuple):
    """A number and its standard error for each function."""

    value: Float[np.ndarray, " functions"]
    error: Float[np.ndarray, " functions"]


def limit(h: Steps, bias: Bias) -> Estimate:
    """The a of bias = a + b h + c h^2 + d h^3, by weighted least squares.

    d is held to N(0, (largest bias)^2), in units of the largest step, so that it costs
    precision only where there is a curve to be wrong about. What the extrapolation took off
    the bias at the smallest step, and what the highest power took off the limit, are believed to
    `DOUBT` of themselves, as further errors: a limit much smaller than these, as of a curve far
    from its limit, is no finding, however many draws there are.
    """
    powers = np.vander(h / h.max(), min(h.size, 4), increasing=True)

    def intercept(y: np.ndarray, s: np.ndarray) -> tuple[float, float]:
        held = np.max(np.abs(y) + s)
        a, error = _held_fit(powers, y, s, held=held, which=0)
        before, _ = _held_fit(powers[:, :-1], y, s, held=held, which=0)
        return a, np.linalg.norm([error, DOUBT * (y[h.argmin()] - a), DOUBT * (before - a)])

    return _each(intercept, bias)


def order(h: Steps, bias: Bias) -> Estimate:
    """The p of log |bias| = a + p log h + b h, for each function; NaN where fewer than two h count.

    The last term is what the next power of h does to the slope; at the largest step it is held
    to N(0, NEXT^2). The largest steps count, down to the first at which the bias is not seen,
    but for those at which it is smaller than at the next: there two powers of h cancel.
    """
    down = np.argsort(-h)

    def slope(y: np.ndarray, s: np.ndarray) -> tuple[float, float]:
        seen = np.logical_and.accumulate(np.abs(y) > SEEN * s)
        falling = np.append(np.abs(y[:-1]) > np.abs(y[1:]), True)
        seen &= np.logical_or.accumulate(falling)
        if seen.sum() < 2:
            return np.nan, np.nan
        x, y, s = h[down][seen] / h.max(), np.abs(y[seen]), s[seen]
        terms = np.stack([np.ones_like(x), np.log(x), x], axis=1)
        return _held_fit(terms, np.log(y), s / y, held=NEXT, which=1)

    return _each(slope, Bias(bias.value[down], bias.error[down]))


def _each(number: Callable[..., tuple[float, float]], bias: Bias) -> Estimate:
    columns = zip(bias.value.T, bias.error.T, strict=True)
    return Estimate(*np.array([number(y, s) for y, s in columns]).T)


def _held_fit(
    terms: np.ndarray, y: np.ndarray, s: np.ndarray, *, held: Number, which: int
) -> tuple[float, float]:
    """A coefficient of a least-squares fit whose last is held to N(0, held^2), and its error."""
    design = np.vstack([terms / s[:, None], np.eye(terms.shape[1])[-1] / held])
    inverse = np.linalg.pinv(design)[which]
    return inverse @ np.append(y / s, 0.0), np.linalg.norm(inverse)


class Row(NamedTuple):
    """The bias of a function at a step size and its standard error, in sd of the function."""

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
        memory: of each function, its correlation at the start and after `duration`.
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
    memory: Float[np.ndarray, " functions"]

    @property
    def critical(self) -> float:
        """How many standard errors are no accident, each function being tested twice a look."""
        return self._errors(self.budget / LOOKS)

    def _errors(self, probability: float) -> float:
        """That some score is larger has at most this probability where all limits are 0."""
        return float(scipy.stats.norm.isf(0.5 * probability / (2 * len(self.functions))))

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
        fixed, single = (limit(h, part) for part in parts)
        return fixed, single

    @property
    def scores(self) -> Float[np.ndarray, "2 functions"]:
        """The limits in units of their standard errors."""
        return np.array([np.abs(each.value) / each.error for each in self.limits])

    @property
    def suspicious(self) -> bool:
        """Whether a limit may well be wrong, but not surely: more draws tell.

        An error as large as `resolution` is found suspicious with a probability above .99, where
        at the first look it would be found wrong with even odds.
        """
        return self._errors(SUSPICION) < float(self.scores.max()) <= self.critical

    @property
    def worst(self) -> str:
        """The function whose limit is the most standard errors away from 0."""
        return self.functions[int(self.scores.max(axis=0).argmax())]

    @property
    def resolution(self) -> float:
        """The error of the limit, after `duration`, that would have been seen in any function."""
        return float(self.critical * self.limits[0].error.max())

    @property
    def stationary_resolution(self) -> float:
        """The error of the stationary law that would have been seen, in any function.

        Of such an error the share 1 - r has built up after `duration`, where r is `memory`.
        """
        share = np.clip(1.0 - self.memory, 1e-3, 1.0)
        return float(self.critical * (self.limits[0].error / share).max())

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
    def orders(self) -> Estimate:
        """The slope of log |bias| against log h of each function; NaN where it is not seen."""
        return order(self.step_sizes, self.bias)

    @property
    def order(self) -> float | None:
        """The weak order at a fixed time: the slope of log |bias| against log h as h -> 0.

        That of the function whose upper limit, slope + 5 standard errors, is the lowest; None
        where no slope is known to within `ORDER_ERROR`.
        """
        return None if self._slowest is None else float(self.orders.value[self._slowest])

    @property
    def order_error(self) -> float | None:
        """The standard error of `order`."""
        return None if self._slowest is None else float(self.orders.error[self._slowest])

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
        law = self.stationary_resolution
        short = " (the start is hardly forgotten: try a longer duration)" if law > UNKNOWN else ""
        return (
            f"Right limit: an error of {self.resolution:.2g} sd would be seen, and one of "
            f"{law:.2g} sd in the stationary law{short}. {self._of_order}"
        )

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
    def _slowest(self) -> int | None:
        slope, error = self.orders
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
