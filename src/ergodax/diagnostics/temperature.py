"""Is the chain as hot as it claims: kinetic and configurational temperature."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import scipy
from jaxtyping import Float, PyTree

from ergodax.checks import choice, real_number, whole_number
from ergodax.gradient.at_draws import gradients_at
from ergodax.stats.draws import Run, columns, positions_of
from ergodax.stats.estimators import effective_size, standard_error

SHOWN = 5  # components of the printed report
BY = ("total", "leaf", "component")


@dataclasses.dataclass(frozen=True)
class Temperature:
    """One temperature, measured.

    Attributes:
        name: "kinetic", "configurational", or "configurational w[3]" of a component.
        mean: over all draws.
        error: its Monte Carlo standard error, by the effective sample size.
        expected: what it should be.
        margin: half the width of the confidence band around `mean`.
    """

    name: str
    mean: float
    error: float
    expected: float
    margin: float

    @property
    def ok(self) -> bool:
        """Whether the band holds what is expected; False where there is no band."""
        return abs(self.mean - self.expected) <= self.margin

    @property
    def excess(self) -> float:
        """The deviation in standard errors."""
        return (self.mean - self.expected) / self.error

    def __str__(self) -> str:
        """A line of the report."""
        return (
            f"  {self.name}: {self.mean:.5g} +- {self.error:.2g}, expected {self.expected:.5g}, "
            f"band [{self.mean - self.margin:.5g}, {self.mean + self.margin:.5g}]"
            f"{'' if self.ok else '  OUTSIDE'}"
        )


@dataclasses.dataclass(frozen=True)
class TemperatureReport:
    """What `temperature` found; print it for the verdict.

    Attributes:
        checks: a Temperature for each thing measured: "kinetic" first, where there is one,
            "configurational", then its leaves or components.
        temperature: T, as claimed.
        level: the probability that all bands together hold, if all is well.
    """

    checks: tuple[Temperature, ...]
    temperature: float
    level: float

    @property
    def ok(self) -> bool:
        """Whether every temperature is what it should be, within its band."""
        return all(check.ok for check in self.checks)

    @property
    def worst(self) -> Temperature:
        """The check that is the most standard errors off."""
        return max(self.checks, key=lambda check: np.nan_to_num(abs(check.excess), nan=np.inf))

    @property
    def resolution(self) -> float:
        """The relative error that the best of the bands would show."""
        return float(min(check.margin for check in self.checks) / self.temperature)

    def __getitem__(self, name: str) -> Temperature:
        """The check of that name."""
        return {check.name: check for check in self.checks}[name]

    def __str__(self) -> str:
        """A verdict, then what was measured, the worst components only."""
        verdict = (
            f"Right temperature: an error of {100 * self.resolution:.2g} % would be seen."
            if self.ok
            else f"WRONG temperature: {self.worst.name} is {self.worst.excess:+.1f} standard "
            "errors off."
        )
        head = [check for check in self.checks if " " not in check.name]
        parts = [check for check in self.checks if " " in check.name]
        parts.sort(key=lambda check: -abs(check.excess))
        lines = [verdict, *map(str, head + parts[:SHOWN])]
        if len(parts) > SHOWN:
            failed = sum(not check.ok for check in parts)
            lines.append(f"  {len(parts)} parts in all, {failed} of them outside")
        return "\n".join(lines)


def temperature(
    samples: PyTree,
    gradient: Any = None,
    *,
    temperature: float = 1.0,
    expected: float | Mapping[str, Any] | None = None,
    by: str = "total",
    thin: int = 1,
    key: Any = None,
    level: float = 0.999,
    chunk: int = 64,
) -> TemperatureReport:
    """Measure the temperature of a run in two ways and compare with the one claimed.

    kinetic: r^T M^-1 r / d, from `info`, for samplers that have a momentum.
    configurational: (x - x0) . grad U(x) / d, whose mean is T for every density exp(-U / T) on
    R^d that decays, whatever x0; gradients are computed anew at the draws. x0 is the mean of
    the other chains (of a single chain, of its other half), so that it brings no bias.

    Every sampler with a finite step size h has shifts of its own, of order h or h^2, in one or
    both; the docstrings of the samplers give them. Where the bands are finer than the shift,
    give `expected`. Kinetic too high and configurational right: h is too large for the momentum.
    Both too high: gradient noise that nobody has compensated.

    Args:
        samples: a Samples; or a tree of draws (chains, draws, ...), without kinetic temperature.
        gradient: a target or posterior, for full gradients; or an estimator, whose fresh batches
            leave the mean as it is and widen the band; None for the kinetic temperature alone.
        temperature: T, as claimed.
        expected: instead of T, what the discrete scheme should show: a number, or a dict with
            some of the names of the checks, such as {"kinetic": 0.98}.
        by: "total"; "leaf" or "component" for, in addition, (x_i - x0_i) dU/dx_i of each leaf or
            component: an error in a few of many components shows there and not in the sum.
        thin: evaluate the gradient at every thin-th draw.
        key: of the estimator's batches.
        level: confidence of all bands together (Bonferroni).
        chunk: gradients at once.

    Raises:
        ValueError: neither a gradient nor a kinetic temperature, or a number out of range.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> target = ex.Target(lambda x: 0.5 * jnp.sum(x**2 / jnp.array([1.0, 4.0])))
        >>> gradient = ex.NoisyGradient(target, 5.0)
        >>> kernel = ex.sghmc(gradient, 0.1, friction=1.0)
        >>> samples = ex.sample(kernel, jnp.zeros(2), 20_000, key=jax.random.key(0), progress=False)
        >>> report = ex.diagnostics.temperature(samples, target)
        >>> bool(report["configurational"].mean > 1.1)  # 1 + h V / 2
        True

    Reference:
        Rugh, Dynamical approach to temperature, 1997; Leimkuhler and Matthews, Molecular
        Dynamics, 2015, chapter 6.
    """
    real_number("temperature", temperature, above=0.0)
    real_number("level", level, above=0.0, below=1.0)
    whole_number("thin", thin)
    choice("by", by, tuple(BY))
    series = {}
    info = samples.info if isinstance(samples, Run) else None
    kinetic = getattr(info, "kinetic_temperature", None)
    if kinetic is not None:
        series["kinetic"] = np.asarray(kinetic, np.float64)
    if gradient is not None:
        every = jax.tree.map(lambda x: x[:, ::thin] if np.ndim(x) else x, positions_of(samples))
        slopes = gradients_at(every, gradient, key=key, chunk=chunk)
        series |= _configurational(every, slopes, by)
    if not series:
        raise ValueError(
            "gradient must be given where info has no kinetic temperature. Try "
            "ex.diagnostics.temperature(samples, posterior)."
        )
    goals = dict.fromkeys(series, temperature if expected is None else expected)
    if isinstance(expected, Mapping):
        unknown = set(expected) - set(series)
        if unknown:
            raise ValueError(f"expected names {sorted(unknown)}, but there are {sorted(series)}.")
        goals = dict.fromkeys(series, temperature) | dict(expected)
    chance = (1.0 - level) / len(series)
    checks = [_measured(name, x, goals[name], chance) for name, x in series.items()]
    return TemperatureReport(tuple(checks), float(temperature), level)


def _configurational(
    draws: PyTree, gradients: PyTree, by: str
) -> dict[str, Float[np.ndarray, "c n"]]:
    """(x - x0) dU/dx, its mean over everything and over the parts asked for."""
    x, names = columns(draws)
    product = (x - _elsewhere(x)) * columns(gradients).values
    found = {"configurational": product.mean(axis=-1)}
    if by == "total":
        return found
    labels = names if by == "component" else tuple(name.partition("[")[0] for name in names)
    for label in dict.fromkeys(labels):
        rows = [place for place, other in enumerate(labels) if other == label]
        found[f"configurational {label}"] = product[..., rows].mean(axis=-1)
    return found


def _elsewhere(x: Float[np.ndarray, "chains draws d"]) -> Float[np.ndarray, "chains draws d"]:
    """For each draw a centre that is independent of it: the mean of the other chains."""
    chains, draws, _ = x.shape
    if chains == 1:
        half = draws // 2
        means = x[:, half:].mean(axis=1), x[:, :half].mean(axis=1)
        return np.where((np.arange(draws) < half)[None, :, None], means[0], means[1])
    means = x.mean(axis=1, keepdims=True)
    others = (means.sum(axis=0, keepdims=True) - means) / (chains - 1)
    return np.broadcast_to(others, x.shape)


def _measured(
    name: str, series: Float[np.ndarray, "chains draws"], expected: Any, chance: float
) -> Temperature:
    expected = real_number(f"expected of {name!r}", expected)
    error, size = float(standard_error(series)), float(effective_size(series))
    margin = float(error * scipy.stats.t.isf(0.5 * chance, max(size - 1.0, 1.0)))
    return Temperature(name, float(series.mean()), error, expected, margin)
