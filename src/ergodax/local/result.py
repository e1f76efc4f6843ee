"""What an estimate of a learning coefficient returns."""

import dataclasses
import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from ergodax.local.rounds import ERRORS

WIDTH = 80
NOTABLE = 0.5  # of the accuracy: a difference that is told


@dataclasses.dataclass(frozen=True)
class LearningCoefficient:
    """A local learning coefficient, how wrong it may be, and what it rests on.

    `str` begins with a verdict. The names are those of `to_xarray`, where devinterp's `llc/mean` is
    `llc_mean` and so on.

    Attributes:
        estimate: lambda-hat = t (E[L_n(w)] - L_n(w*)), t = n / temperature.
        mc_error: its Monte Carlo standard error.
        error: two Monte Carlo standard errors; where chains are too short to know them, twice the
            distance between the lowest and the highest mean of half a chain. There is no bias of a
            step or of batches: trajectories have a Metropolis test and gradients of all rows.
        accuracy: what `error` / `estimate` was wanted to be.
        converged: whether the chains agree: by R-hat, or to within the accuracy.
        r_hat: of the energies; half of the chains began at w*, half at a higher temperature.
        r_hat_distance: of |w - w*|^2.
        ess: effective sample size of the energies.
        slope: d lambda-hat / d log t, from the same draws: 0 where the model is regular, about
            (m - 1) / log(t)^2 with multiplicity m. What log t does not explain is not in it.
        slope_error: its Monte Carlo standard error.
        shortfall: t (L_n(w*) - L_n at the minimum nearby), at least 0. About the minimum the
            coefficient is `estimate` + `shortfall`. NaN where the loss at w* is not finite.
        distance: the root mean square of |w - w*|.
        norm: |w*|.
        temperature: 1 / beta.
        localization: gamma.
        num_data: n.
        num_parameters: how many move.
        initial_loss: L_n(w*).
        loss_trace: L_n(w) of each draw, the draws of the burn-in too.
        burn_in: how many of the draws do not count.
        acceptance: of the trajectories.
        evaluations: losses of single examples that were computed with their gradients.
        seconds: that it took.
        by_n: the same at the temperature of other numbers of rows.
        decisions: what was chosen, and why.
        remedy: what to do about a verdict that is not good.
    """

    estimate: float
    mc_error: float
    error: float
    accuracy: float
    converged: bool
    r_hat: float
    r_hat_distance: float
    ess: float
    slope: float
    slope_error: float
    shortfall: float
    distance: float
    norm: float
    temperature: float
    localization: float
    num_data: int
    num_parameters: int
    initial_loss: float
    loss_trace: Float[np.ndarray, "chains draws"] = dataclasses.field(repr=False)
    burn_in: int
    acceptance: float
    evaluations: int
    seconds: float
    seconds_wanted: float
    by_n: Mapping[int, "LearningCoefficient"]
    decisions: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether the error is within the accuracy, and nothing speaks against it."""
        return self.verdict == "KNOWN"

    @property
    def verdict(self) -> str:
        """KNOWN, IMPRECISE, NOT CONVERGED, NEGATIVE or NOT FINITE."""
        if not np.isfinite(self.initial_loss) or self.acceptance == 0.0:
            return "NOT FINITE"
        if self.loss_trace.shape[1] == 0:
            return "NOT CONVERGED"
        if not np.isfinite(self.estimate):
            return "NOT FINITE"
        if self.estimate <= 0.0:
            return "NEGATIVE"
        if not self.converged:
            return "NOT CONVERGED"
        return "KNOWN" if self.error <= self.accuracy * self.estimate else "IMPRECISE"

    @property
    def remedy(self) -> str:
        """What causes the verdict, and what to try; empty where it is KNOWN."""
        more = f"try max_seconds={self.seconds_wanted:.2g}"
        match self.verdict:
            case "NOT FINITE":
                return (
                    "The loss at the weights or its gradient is not finite, or no trajectory from "
                    "there is. Look at the loss of single examples at these weights."
                )
            case "NEGATIVE":
                cause = "these are no minimum. Train on, or"
                if self.shortfall < 0.1 * abs(self.estimate):
                    cause = "a lower minimum than theirs lies within reach of the law:"
                return (
                    f"Most draws have a smaller loss than the weights: {cause} try localization="
                    f"{10.0 * self.localization:g}, which stays nearer. Lambda-hat is no "
                    "coefficient of these weights."
                )
            case "NOT CONVERGED" if self.loss_trace.shape[1] == 0:
                return (
                    "The time was up while the step and the length of the trajectories were sought:"
                    f" {more}, or give fewer rows, whose passes are shorter."
                )
            case "NOT CONVERGED":
                r_hat = np.max([self.r_hat, self.r_hat_distance])
                return (
                    f"Chains from the weights and from a higher temperature differ (R-hat "
                    f"{r_hat:.2f}): the start is not forgotten, and the error is too small. Let it "
                    f"run on ({more}), or try localization="
                    f"{10.0 * self.localization:g}, a narrower law, which is another estimand."
                )
            case "IMPRECISE":
                return f"The time was up: {more}, or accuracy={self.error / self.estimate:.2g}."
            case _:
                return ""

    def __str__(self) -> str:
        """The verdict, the error's parts, what is finite n, and how it was done."""
        number = f"{self.estimate:.4g} +- {self.error:.2g}"
        parts = [f"{self.verdict}: local learning coefficient {number}."]
        if self.remedy:
            parts.append(self.remedy)
        burn = f"{self.burn_in} draws of each chain left out as burn-in"
        of = f"{ERRORS:g} x {self.mc_error:.2g} Monte Carlo"
        if self.error > 1.001 * ERRORS * self.mc_error:
            of = f"twice how far halves of chains lie apart; {of}"
        parts.append(f"Error: {of} (ESS {self.ess:.0f}, R-hat {self.r_hat:.2f}, {burn}).")
        parts.append(self._estimand())
        parts.append(self._finite_n())
        parts.extend(self.decisions)
        head, *rest = (part for part in parts if part)
        lines = textwrap.wrap(head, WIDTH)
        for part in rest:
            lines += textwrap.wrap(part, WIDTH, initial_indent="  ", subsequent_indent="    ")
        return "\n".join(lines)

    def _estimand(self) -> str:
        text = (
            f"Law: exp(-t L_n - gamma |w - w*|^2 / 2), n = {self.num_data:,}, t = n / "
            f"{self.temperature:.4g}, gamma = {self.localization:g}, {self.num_parameters:,} "
            f"parameters; L_n(w*) = {self.initial_loss:.6g}; draws lie {self.distance:.3g} from "
            f"w*, whose norm is {self.norm:.3g}."
        )
        if self.distance > self.norm > 0.0:
            narrow = self.num_parameters / self.norm**2
            text += f" That is not local: try localization={narrow:.2g}."
        return text

    def _finite_n(self) -> str:
        text = (
            f"Finite n: lambda-hat changes by {self.slope:.2g} +- {ERRORS * self.slope_error:.2g} "
            "when log t grows by 1."
        )
        if self.shortfall > NOTABLE * self.accuracy * abs(self.estimate):
            whole = self.estimate + self.shortfall
            text += (
                f" The weights are not the minimum: about that it would be {whole:.4g}, "
                f"{self.shortfall:.2g} more."
            )
        for n, other in self.by_n.items():
            text += f" At n = {n:,}: {other.estimate:.4g} +- {other.error:.2g} ({other.verdict})."
        return text

    def to_xarray(self) -> Any:
        """An xarray Dataset: llc_mean, llc_std, llc_chain, loss_trace, init_loss and the rest.

        `llc_std` is the sd between chains, as in devinterp; the error is `llc_error`. The traces
        have all draws; `counted` says which of them the estimate is of.
        """
        import xarray

        draws = np.arange(self.loss_trace.shape[1])
        scale = self.num_data / self.temperature
        llc_trace = scale * (self.loss_trace - self.initial_loss)
        chain = llc_trace[:, self.burn_in :].mean(axis=1)
        both = ("chain", "draw")
        variables = {
            "llc_mean": self.estimate,
            "llc_std": float(chain.std()),
            "llc_chain": ("chain", chain),
            "llc_trace": (both, llc_trace),
            "loss_trace": (both, self.loss_trace),
            "init_loss": self.initial_loss,
            "counted": ("draw", draws >= self.burn_in),
            "llc_error": self.error,
        }
        scalars = ("mc_error", "r_hat", "ess", "slope", "slope_error", "shortfall")
        variables |= {name: getattr(self, name) for name in scalars}
        settings = ("temperature", "localization", "num_data", "num_parameters", "verdict")
        attributes = {name: getattr(self, name) for name in settings}
        coords = {"chain": np.arange(len(chain)), "draw": draws}
        return xarray.Dataset(variables, coords, attributes)

    def plot(self, axes: Any = None) -> Any:
        """The loss of each chain by draw, with L_n(w*) and the end of the burn-in.

        Args:
            axes: of matplotlib; by default new ones.

        Returns:
            The axes.
        """
        import matplotlib.pyplot as plt

        axes = plt.subplots()[1] if axes is None else axes
        for number, trace in enumerate(self.loss_trace):
            start = "from w*" if number % 2 == 0 else "from a higher temperature"
            label = start if number < 2 else None
            axes.plot(trace, lw=0.8, color=f"C{number % 2}", alpha=0.7, label=label)
        axes.axhline(self.initial_loss, color="k", lw=0.8, ls=":", label="L_n(w*)")
        axes.axvspan(0, self.burn_in, color="k", alpha=0.08, label="burn-in")
        axes.set(xlabel="draw", ylabel="L_n(w)", title=str(self).splitlines()[0])
        axes.legend()
        return axes
