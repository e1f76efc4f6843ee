"""The Ornstein-Uhlenbeck process from one point: chains, a grid and the exact law."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy import stats

import ergodax as ex
from gallery.figures import tables

CHAINS, STEPS = 4096, 256
AXIS = ex.verify.Axis(-6.075, 6.075, 243)  # a start at a multiple of 0.05 is the centre of a cell
TIMES, COARSE = 40, 3  # columns of the picture of the law, and cells of the grid to one of its rows
TARGET = ex.targets.gaussian(0.0, 1.0)


@dataclasses.dataclass(frozen=True)
class Moments:
    """Mean and standard deviation of a law."""

    mean: float
    sd: float


@dataclasses.dataclass(frozen=True)
class Law:
    """dx = -friction x dt + sqrt(2 friction temperature) dW from `start`, up to a time.

    Attributes:
        time: the last one.
        friction: the rate at which the start is forgotten.
        temperature: the variance in the end.
        start: of all chains.
        draws: the chains at `time`.
        densities: of the Fokker-Planck equation on the grid, at `TIMES` times that end with it.
    """

    time: float
    friction: float
    temperature: float
    start: float
    draws: Float[np.ndarray, " chains"]
    densities: Float[np.ndarray, "times points"]

    def exact(self, time: float | Float[np.ndarray, " times"]) -> tuple:
        """Mean and sd of the Gaussian at a time."""
        left = np.exp(-self.friction * time)
        return self.start * left, np.sqrt(self.temperature * (1.0 - left**2))

    @property
    def by_chains(self) -> Moments:
        """Of the draws."""
        return Moments(float(self.draws.mean()), float(self.draws.std()))

    @property
    def by_grid(self) -> Moments:
        """Of the density on the grid."""
        p = self.densities[-1] * AXIS.width
        mean = float(p @ AXIS.centres)
        return Moments(mean, float(np.sqrt(p @ (AXIS.centres - mean) ** 2)))

    @property
    def by_formula(self) -> Moments:
        """Of the exact Gaussian."""
        return Moments(*map(float, self.exact(self.time)))

    def bars(self) -> pd.DataFrame:
        """The histogram of the draws."""
        return tables.histogram(self.draws, AXIS.low, AXIS.high, AXIS.points // COARSE)

    def density_table(self) -> pd.DataFrame:
        """The density on the grid and the exact one: columns x, density, law."""
        mean, sd = self.exact(self.time)
        x = AXIS.centres
        both = {"Fokker-Planck on a grid": self.densities[-1], "exact": stats.norm.pdf(x, mean, sd)}
        return tables.curves("x", x, "density", both, "law")

    def picture_table(self) -> pd.DataFrame:
        """Cells of time and position with the grid's density, as a share of each time's highest."""
        rows = self.densities.reshape(TIMES, -1, COARSE).mean(axis=2)
        rows = rows / rows.max(axis=1, keepdims=True)
        low = AXIS.centres.reshape(-1, COARSE)[:, 0] - 0.5 * AXIS.width
        x = np.tile(low, TIMES)
        width, step = COARSE * AXIS.width, self.time / TIMES
        t = np.repeat(np.arange(TIMES) * step, len(low))
        columns = {"time": t, "time end": t + step, "x": x, "x end": x + width}
        return pd.DataFrame(columns | {"density": rows.ravel()})

    def band_table(self) -> pd.DataFrame:
        """The exact mean and two sd on either side of it, by time."""
        times = np.linspace(0.0, self.time, 100)
        mean, sd = self.exact(times)
        parts = [("exact mean", mean), ("two sd", mean - 2.0 * sd), ("two sd", mean + 2.0 * sd)]
        made = [
            pd.DataFrame({"time": times, "x": values, "curve": name, "part": k})
            for k, (name, values) in enumerate(parts)
        ]
        return pd.concat(made, ignore_index=True)


def run(time: float, friction: float, temperature: float, start: float, seed: int) -> Law:
    """Run chains and solve the equation.

    Args:
        time: positive.
        friction: positive.
        temperature: positive.
        start: of all chains, within the axis.
        seed: of everything random.
    """
    h = time / STEPS
    kernel = ex.sgld(ex.FullGradient(TARGET), h, preconditioner=friction, temperature=temperature)
    samples = ex.sample(
        kernel, jnp.full(1, start), STEPS, thin=STEPS, num_chains=CHAINS,
        key=jax.random.key(seed), progress=False,
    )  # fmt: skip
    equation = ex.verify.fokker_planck(
        lambda x: -friction * x, lambda x: friction * temperature, AXIS
    )
    density, densities = equation.point_mass([start]), []
    for _ in range(TIMES):
        density = equation.evolve(density, time / TIMES)
        densities.append(density)
    draws = np.asarray(samples.position[:, 0, 0], float)
    return Law(time, friction, temperature, start, draws, np.stack(densities))
