"""Friction of SGHMC with a noisy gradient: too little leaves heat in or goes in circles."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy import stats

import ergodax as ex
from gallery.figures import tables
from gallery.figures.momentum_law import Law
from gallery.figures.sweep import side_by_side, with_repeats, without_repeats

LEAST, MOST = 0.1, 12.0  # friction
FRICTIONS = np.geomspace(LEAST, MOST, 13)  # of the chains in the picture of errors
FINE = np.geomspace(LEAST, MOST, 41)  # of the exact curves
CHAINS, REPEATS, STEPS, TRACED, BINS = 16, 4, 1000, 250, 45
COMPENSATED, NAIVE = "noise compensated", "noise ignored"
SAMPLERS = {COMPENSATED: True, NAIVE: False}


@dataclasses.dataclass(frozen=True)
class Friction:
    """Chains of SGHMC on N(0, 1) at each of `FRICTIONS` and at one more.

    Attributes:
        step_size: h.
        noise: variance of the gradient's noise.
        friction: the one that is looked at more closely.
        draws: of each sampler at each of `FRICTIONS`.
        more: of each sampler at the one more, of which there are `REPEATS` times as many chains.
    """

    step_size: float
    noise: float
    friction: float
    draws: dict[str, Float[np.ndarray, "chains steps frictions"]]
    more: dict[str, Float[np.ndarray, "more_chains steps"]]

    @property
    def least_friction(self) -> float:
        """h V / 2, below which the gradient brings more noise than is injected."""
        return 0.5 * self.step_size * self.noise

    def law(self, sampler: str, frictions: Float[np.ndarray, " k"]) -> Law:
        """The exact law of a sampler at these frictions."""
        return Law(self.step_size, frictions, self.noise, compensate=SAMPLERS[sampler])

    @functools.cached_property
    def _fine_errors(self) -> dict[str, Float[np.ndarray, " k"]]:
        return {name: self.law(name, FINE).error_of_variance(STEPS) for name in SAMPLERS}

    def exact_errors(self) -> pd.DataFrame:
        """Root mean square error of the variance found by a chain: columns friction, error."""
        return tables.curves("friction", FINE, "error", self._fine_errors, by="sampler")

    def measured_errors(self) -> pd.DataFrame:
        """The same of the chains."""
        errors = {
            name: np.sqrt(np.mean((np.mean(x**2, axis=1) - 1.0) ** 2, axis=0))
            for name, x in self.draws.items()
        }
        return tables.curves("friction", FRICTIONS, "error", errors, by="sampler")

    def exact_times(self) -> pd.DataFrame:
        """Steps to an effective draw of mean and variance: columns friction, steps, of."""
        times = self.law(COMPENSATED, FINE).autocorrelation_times()
        return tables.curves("friction", FINE, "steps to an effective draw", times, by="of")

    def measured_times(self) -> pd.DataFrame:
        """The same, from how far the averages of independent chains lie apart.

        A sum of estimated autocorrelations would not do: where they oscillate, the usual rules stop
        it at the first trough.
        """
        x = self.draws[COMPENSATED].astype(np.float64)
        times = {name: _apart(f) for name, f in (("mean", x), ("variance", x**2))}
        return tables.curves("friction", FRICTIONS, "steps to an effective draw", times, by="of")

    def traces(self) -> pd.DataFrame:
        """One chain of each sampler at the one more friction: columns step, x, sampler."""
        steps = np.arange(1.0, TRACED + 1.0)
        paths = {name: x[0, :TRACED] for name, x in self.more.items()}
        return tables.curves("step", steps, "x", paths, by="sampler")

    def densities(self) -> pd.DataFrame:
        """Histograms of x at the one more friction beside N(0, 1): columns x, density, sampler."""
        return tables.laws("x", 4.5, BINS, stats.norm.pdf, self.more, by="sampler")

    def variance(self, sampler: str) -> float:
        """Of all draws at the one more friction."""
        return float(np.mean(self.more[sampler] ** 2, dtype=np.float64))

    def exact_variance(self, sampler: str) -> float:
        """Of the stationary law there; the target's is 1."""
        return float(self.law(sampler, np.array([self.friction])).variance[0])

    def best(self) -> tuple[float, float]:
        """The friction at which the compensated sampler's error is least, and that error."""
        errors = self._fine_errors[COMPENSATED]
        return float(FINE[errors.argmin()]), float(errors.min())


def run(step_size: float, noise: float, friction: float, seed: int) -> Friction:
    """Run both samplers from exact draws, at all frictions side by side.

    Args:
        step_size: h, at most 0.15.
        noise: variance of the gradient's noise.
        friction: one more than `FRICTIONS`.
        seed: of everything random.
    """
    key_start, key = jax.random.split(jax.random.key(seed))
    frictions = with_repeats(FRICTIONS, friction, REPEATS)
    starts = jax.random.normal(key_start, (CHAINS, len(frictions), 1))
    draws, more = {}, {}
    for name, compensate in SAMPLERS.items():
        gradient = ex.NoisyGradient(_target(), noise)
        # Where compensation is infeasible, no noise is injected, and what remains heats.
        kernels = [
            ex.sghmc(gradient, step_size, g, compensate=compensate, clip=compensate)
            for g in frictions
        ]
        samples = ex.sample(
            side_by_side(kernels), positions=starts, num_steps=STEPS, num_chains=CHAINS, key=key,
            progress=False,
        )  # fmt: skip
        draws[name], more[name] = without_repeats(samples.position[..., 0], REPEATS)
    return Friction(step_size, noise, friction, draws, more)


def _apart(values: Float[np.ndarray, "chains steps k"]) -> Float[np.ndarray, " k"]:
    """Steps to an effective draw of the mean."""
    return values.shape[1] * values.mean(axis=1).var(axis=0, ddof=1) / values.var(axis=(0, 1))


@functools.cache
def _target() -> ex.targets.Gaussian:
    return ex.targets.gaussian(jnp.zeros(1), 1.0)
