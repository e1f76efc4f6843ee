"""SGLD, SGHMC and NOGIN on N(0, 1) with a noisy gradient: the variance of each by step size."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy import stats

import ergodax as ex
from gallery.figures import autoregression, tables
from gallery.figures.momentum_law import Law
from gallery.figures.sweep import side_by_side, with_repeats, without_repeats

LEAST, MOST = 0.05, 1.0  # step size
SIZES = np.geomspace(LEAST, MOST, 9)  # of the chains in the picture
FINE = np.geomspace(LEAST, MOST, 41)  # of the exact curves
CHAINS, REPEATS, STEPS, BURN_IN, FRICTION, BINS = 32, 4, 250, 150, 1.0, 48
SGLD, SGHMC, NOGIN = "SGLD", "SGHMC", "NOGIN"
TARGET = ex.targets.gaussian(jnp.zeros(1), 1.0)


@dataclasses.dataclass(frozen=True)
class Noise:
    """Chains of the three samplers at each of `SIZES` and at one more.

    Attributes:
        noise: V, the variance of the gradient's noise.
        step_size: the one more.
        draws: of each sampler at each of `SIZES`.
        more: of each sampler at the one more, of which there are `REPEATS` times as many chains.
    """

    noise: float
    step_size: float
    draws: dict[str, Float[np.ndarray, "chains steps sizes"]]
    more: dict[str, Float[np.ndarray, "more_chains steps"]]

    def exact(self, sampler: str, sizes: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
        """The variance of the stationary law; that of the target is 1."""
        if sampler == SGLD:
            return autoregression.variance(sizes, self.noise)
        if sampler == NOGIN:
            return np.ones_like(sizes)
        rates = np.array([FRICTION])
        laws = [Law(float(h), rates, self.noise, compensate=False) for h in sizes]
        return np.array([law.variance[0] for law in laws])

    def exact_variances(self) -> pd.DataFrame:
        """Columns step size, variance and sampler."""
        each = {name: self.exact(name, FINE) for name in self.draws}
        return tables.curves("step size", FINE, "variance", each, by="sampler")

    def measured_variances(self) -> pd.DataFrame:
        """The same of the chains."""
        each = {
            name: np.mean(x**2, axis=(0, 1), dtype=np.float64) for name, x in self.draws.items()
        }
        return tables.curves("step size", SIZES, "variance", each, by="sampler")

    def densities(self) -> pd.DataFrame:
        """Histograms at the one more step size beside N(0, 1): columns x, density, sampler."""
        return tables.laws("x", 6.0, BINS, stats.norm.pdf, self.more, by="sampler")

    def variance(self, sampler: str) -> tuple[float, float]:
        """Of all draws at the one more step size, and of the exact law there."""
        found = np.mean(self.more[sampler] ** 2, dtype=np.float64)
        return float(found), float(self.exact(sampler, np.array([self.step_size]))[0])


def run(noise: float, step_size: float, seed: int) -> Noise:
    """Run the samplers from exact draws, at all step sizes side by side.

    Args:
        noise: V.
        step_size: one more than `SIZES`, in (0, 1].
        seed: of everything random.
    """
    gradient = ex.NoisyGradient(TARGET, noise)
    sizes = with_repeats(SIZES, step_size, REPEATS)
    key_start, key = jax.random.split(jax.random.key(seed))
    starts = jax.random.normal(key_start, (CHAINS, len(sizes), 1))
    samplers = {
        SGLD: lambda h: ex.sgld(gradient, h),
        SGHMC: lambda h: ex.sghmc(gradient, h, FRICTION),
        NOGIN: lambda h: ex.nogin(gradient, h, FRICTION),
    }
    draws, more = {}, {}
    for name, sampler in samplers.items():
        samples = ex.sample(
            side_by_side([sampler(h) for h in sizes]), positions=starts, num_steps=STEPS,
            burn_in=BURN_IN, num_chains=CHAINS, key=key, progress=False,
        )  # fmt: skip
        draws[name], more[name] = without_repeats(samples.position[..., 0], REPEATS)
    return Noise(noise, step_size, draws, more)
