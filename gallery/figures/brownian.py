"""Brownian paths: Langevin dynamics without a force."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float

import ergodax as ex
from gallery.figures import tables

PATHS, STEPS = 256, 512
DRAWN, SHOWN = 40, 128  # paths in a picture, and points of each


def no_force(position: Float[Array, " 1"]) -> Float[Array, ""]:
    """U = 0."""
    return jnp.sum(0.0 * position)


FREE = ex.Target(no_force)


@dataclasses.dataclass(frozen=True)
class Brownian:
    """Paths from 0 with dx = sqrt(2 D) dW.

    Attributes:
        diffusion: D.
        times: from 0 on, evenly.
        positions: of each path at these times.
    """

    diffusion: float
    times: Float[np.ndarray, " times"]
    positions: Float[np.ndarray, "paths times"]

    @property
    def spread(self) -> float:
        """The root mean square of the positions at the last time."""
        return float(np.sqrt(np.mean(self.positions[:, -1] ** 2)))

    @property
    def exact_spread(self) -> float:
        """sqrt(2 D t)."""
        return float(np.sqrt(2.0 * self.diffusion * self.times[-1]))

    def path_table(self) -> pd.DataFrame:
        """Some paths: columns time, position, path."""
        shown = _shown(len(self.times))
        return tables.paths("time", self.times[shown], "position", self.positions[:DRAWN, shown])

    def spread_table(self) -> pd.DataFrame:
        """The paths' spread and the exact one, above and below 0."""
        shown = _shown(len(self.times))
        measured = np.sqrt(np.mean(self.positions[:, shown] ** 2, axis=0))
        exact = np.sqrt(2.0 * self.diffusion * self.times[shown])
        both = {"sd of the paths": measured, "sqrt(2 D t)": exact}
        up = tables.curves("time", self.times[shown], "position", both)
        down = up.assign(position=-up["position"])
        return pd.concat([up.assign(side="up"), down.assign(side="down")], ignore_index=True)

    def variance_table(self) -> pd.DataFrame:
        """2 D t by time: columns time, quadratic variation, curve."""
        ends = self.times[[0, -1]]
        line = {"2 D t": 2.0 * self.diffusion * ends}
        return tables.curves("time", ends, "quadratic variation", line)

    def variation(self, pieces: int) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]]:
        """Sums of squared increments of each path, up to each of `pieces` times.

        Args:
            pieces: into how many increments the whole time is cut; a divisor of the steps.

        Returns:
            The times, shape (pieces + 1,), and the sums, shape (paths, pieces + 1).

        Raises:
            ValueError: the steps can't be cut so.
        """
        steps = len(self.times) - 1
        if pieces < 1 or steps % pieces:
            raise ValueError(f"pieces must divide {steps}, not be {pieces}. Try a power of two.")
        every = slice(None, None, steps // pieces)
        squares = np.diff(self.positions[:, every], axis=1) ** 2
        sums = np.cumsum(squares, axis=1)
        return self.times[every], np.pad(sums, ((0, 0), (1, 0)))

    def variation_table(self, pieces: int) -> pd.DataFrame:
        """Some paths' quadratic variations by time: columns time, quadratic variation, path."""
        times, sums = self.variation(pieces)
        shown = _shown(len(times))
        return tables.paths("time", times[shown], "quadratic variation", sums[:DRAWN, shown])


def run(diffusion: float, time: float, paths: int, seed: int) -> Brownian:
    """Draw paths by SGLD on U = 0, whose temperature is the diffusion.

    Args:
        diffusion: D, positive.
        time: the last one, positive.
        paths: how many of the `PATHS` that are drawn; the first are the same for every number.
        seed: of everything random.
    """
    kernel = ex.sgld(ex.FullGradient(FREE), step_size=time / STEPS, temperature=diffusion)
    key = jax.random.key(seed)
    samples = ex.sample(kernel, jnp.zeros(1), STEPS, num_chains=PATHS, key=key, progress=False)
    moved = np.asarray(samples.position[:paths, :, 0], float)
    times = np.linspace(0.0, time, STEPS + 1)
    return Brownian(diffusion, times, np.pad(moved, ((0, 0), (1, 0))))


def _shown(count: int) -> slice:
    """Every so many of `count` points, the last among them."""
    return slice(None, None, max(1, (count - 1) // SHOWN))
