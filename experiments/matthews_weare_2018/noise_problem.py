"""Targets and samplers of section 5.1 of Matthews and Weare (2018), and the parts of their steps.

The gradient's noise has the standard deviation 1 - cos(1 + 5 x). Friction, mass and temperature
are 1. An overdamped sampler has the step size h^2 / 2, as in the paper: that is how far one
gradient moves the position in a step h of the others.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import ergodax as ex
from experiments.matthews_weare_2018.phase_grid import Drift, Kick, PhaseGrid, Weights

THERMAL_MASS = 10.0  # of the chains; the exact laws are those of a heavy thermostat
FASTEST, NUM_R = 7.5, 73  # of the grids; finer ones change no error by 1e-4 of itself

Values = Float[np.ndarray, " x"]
Parts = list[Drift | Kick]


def gradient_noise(x: Float[Array, " n"]) -> Float[Array, " n"]:
    """The variance V of the gradient at a position, or at many."""
    return (1.0 - jnp.cos(1.0 + 5.0 * x)) ** 2


@dataclasses.dataclass(frozen=True)
class Case:
    """A target on the line."""

    name: str  # what it is called
    edge: float  # beyond it there is no mass to speak of
    num_x: int  # places of a grid
    potential: Callable[[np.ndarray], np.ndarray]  # U
    slope: Callable[[np.ndarray], np.ndarray]  # its derivative

    @property
    def target(self) -> Any:
        """For the samplers."""
        if self.name == GAUSSIAN.name:
            return ex.targets.gaussian(np.zeros(1), 1.0)
        return ex.targets.double_well(0.25)

    @property
    def noisy(self) -> ex.NoisyGradient:
        """Its gradient with the noise, whose covariance is known."""
        return ex.NoisyGradient(self.target, gradient_noise)

    @property
    def grid(self) -> PhaseGrid:
        """For the laws of samplers with a momentum."""
        return PhaseGrid(self.edge, FASTEST, self.num_x, NUM_R)

    def probabilities(self, x: Values) -> Values:
        """Those of the target at evenly spaced places."""
        p = np.exp(-self.potential(x))
        return p / p.sum()

    def guess(self, grid: PhaseGrid) -> Weights:
        """Target and N(0, 1)."""
        return self.probabilities(grid.x)[:, None] * np.exp(-0.5 * grid.r**2)[None]


GAUSSIAN = Case("N(0, 1)", 7.5, 105, lambda x: 0.5 * x**2, lambda x: x)
DOUBLE_WELL = Case("(x² - 1)²/4", 4.0, 81, lambda x: 0.25 * (x**2 - 1) ** 2, lambda x: x**3 - x)
CASES = (GAUSSIAN, DOUBLE_WELL)


class Step(NamedTuple):
    """What the parts of a step are made of, on a grid."""

    h: float  # the step size
    force: Values  # -h grad U at the places
    heat: Values  # h^2 V at the places, the variance of a kick
    zeta: float = 1.0  # the thermostat


def nogin_parts(step: Step) -> Parts:
    """Half drift; r+ = ((1 - K) r + 2 p) / (1 + K), p ~ N(force / 2, K); half drift."""
    k = np.tanh(0.5 * step.h) + 0.25 * step.heat
    kick = Kick((1 - k) / (1 + k), step.force / (1 + k), 4 * k / (1 + k) ** 2)
    return [Drift(0.5 * step.h), kick, Drift(0.5 * step.h)]


def baoab_parts(step: Step) -> Parts:
    """BAOA, of the same law for x: two half kicks at one place share the noise."""
    drift = Drift(0.5 * step.h)
    return [Kick(1.0, step.force, step.heat), drift, _bath(step.h, 1.0), drift]


def thermostat_parts(step: Step) -> Parts:
    """The same with friction zeta, beside noise for a friction of 1."""
    drift = Drift(0.5 * step.h)
    return [Kick(1.0, step.force, step.heat), drift, _bath(step.h, step.zeta), drift]


def ccadl_parts(step: Step) -> Parts:
    """A drift, then a kick with the friction zeta + h V / 2."""
    slope = 1.0 - step.h * step.zeta - 0.5 * step.heat
    return [Drift(step.h), Kick(slope, step.force, 2 * step.h + step.heat)]


def sghmc_parts(step: Step) -> Parts:
    """A kick with friction 1, then a drift."""
    return [Kick(1 - step.h, step.force, 2 * step.h + step.heat), Drift(step.h)]


def compensated_parts(step: Step) -> Parts:
    """The same, and the gradient's noise is a part of the 2 h."""
    return sghmc_parts(step._replace(heat=0.0 * step.heat))


def _bath(h: float, friction: float) -> Kick:
    return Kick(np.exp(-friction * h), 0.0, -np.expm1(-2.0 * friction * h) / friction)


def seen_after_kick(kinetic: float, h: float, zeta: float) -> float:
    """What the thermostat of CC-ADL sees: E r^2 at the end of a step."""
    return kinetic


def seen_around_bath(kinetic: float, h: float, zeta: float) -> float:
    """What SGNHT's sees: E r^2 before the bath and after it, half each."""
    bath = _bath(h, zeta)
    return float(0.5 * (kinetic + (kinetic - bath.variance) / bath.slope**2))


class Sampler(NamedTuple):
    """A sampler, and what its law is found from."""

    kernel: Callable[[ex.GradientEstimator, float], ex.Kernel]  # of the gradient and h
    parts: Callable[[Step], Parts] | None = None  # of a step; None for one without momentum
    # what its thermostat brings to 1, from E r^2 at the end of a step, h and zeta
    seen: Callable[[float, float, float], float] | None = None
    # the factor of the injected noise of one without momentum, from step size and V
    injected: Callable[[float, Any], Any] | None = None


SAMPLERS = {
    "NOGIN": Sampler(lambda g, h: ex.nogin(g, h), nogin_parts),
    "SGHMC, compensated": Sampler(lambda g, h: ex.sghmc(g, h, compensate=True), compensated_parts),
    "CC-ADL": Sampler(
        lambda g, h: ex.ccadl(g, h, thermal_mass=THERMAL_MASS), ccadl_parts, seen_after_kick
    ),
    "SGNHT": Sampler(
        lambda g, h: ex.sgnht(g, h, thermal_mass=THERMAL_MASS), thermostat_parts, seen_around_bath
    ),
    "BAOAB": Sampler(lambda g, h: ex.langevin(g, h), baoab_parts),
    "SGHMC": Sampler(lambda g, h: ex.sghmc(g, h), sghmc_parts),
    "mSGLD": Sampler(
        lambda g, h: ex.msgld(g, 0.5 * h**2), injected=lambda eta, v: 1.0 - 0.25 * eta * v
    ),
    "SGLD": Sampler(lambda g, h: ex.sgld(g, 0.5 * h**2), injected=lambda eta, v: 0.0 * v + 1.0),
}
