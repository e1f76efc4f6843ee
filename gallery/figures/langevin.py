"""Overdamped Langevin dynamics between two wells, and the exact law of its steps."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Float

import ergodax as ex
from gallery.figures import tables
from gallery.figures.chains import Chains, draw

CHAINS, STEPS, SHOWN = 64, 2000, 2
AXIS = ex.verify.Axis(-5.0, 5.0, 250)
START = -1.0
TARGETS = {
    "double well": ex.targets.double_well(1.5),
    "mixture": ex.targets.mixture([[-1.0], [1.0]], [[[0.16]], [[0.09]]], [0.7, 0.3]),
}


@dataclasses.dataclass(frozen=True)
class Summary:
    """Of a law: E x^2 and P(x > 0)."""

    square: float
    right: float


@dataclasses.dataclass(frozen=True)
class Wells:
    """Chains that start in the left well, and two laws on the grid.

    Attributes:
        chains: as drawn.
        exact: the density proportional to exp(-U / T), on the grid.
        steps: the stationary density of the discrete chain; None where it is transient.
    """

    chains: Chains
    exact: Float[np.ndarray, " points"]
    steps: Float[np.ndarray, " points"] | None

    @property
    def by_chains(self) -> Summary:
        """Of all draws."""
        x = self.chains.pooled
        return Summary(float(np.mean(x**2)), float(np.mean(x > 0)))

    @property
    def error(self) -> float:
        """The standard error of E x^2, from the spread between chains."""
        each = np.mean(self.chains.positions[:, :, 0] ** 2, axis=1)
        return float(each.std(ddof=1) / np.sqrt(len(each)))

    def on_grid(self, density: Float[np.ndarray, " points"]) -> Summary:
        """Of a density on the grid."""
        p = density * AXIS.width
        return Summary(float(p @ AXIS.centres**2), float(p @ (AXIS.centres > 0)))

    @property
    def crossings(self) -> int:
        """How often the chains went from the middle of one well to that of the other."""
        return sum(_crossings(path) for path in self.chains.positions[:, :, 0])

    def path_table(self) -> pd.DataFrame:
        """Some chains: columns step, x, path."""
        x = self.chains.positions[:SHOWN, ::2, 0]
        return tables.paths("step", 2.0 * np.arange(x.shape[1]), "x", x)

    def bars(self) -> pd.DataFrame:
        """The histogram of all draws."""
        return tables.histogram(self.chains.pooled, -2.5, 2.5, 80)

    def density_table(self) -> pd.DataFrame:
        """The densities: columns x, density, law."""
        laws = {"exact": self.exact}
        if self.steps is not None:
            laws = {"exact law of the steps": self.steps} | laws
        return tables.curves("x", AXIS.centres, "density", laws, "law")


def run(target: str, step_size: float, temperature: float, seed: int) -> Wells:
    """Run SGLD with full gradients, and compute the law of its steps.

    Args:
        target: of `TARGETS`.
        step_size: h.
        temperature: T.
        seed: of everything random.
    """
    wells = TARGETS[target]
    kernel = ex.sgld(ex.FullGradient(wells), step_size, temperature=temperature)
    chains = draw(kernel, jnp.full(1, START), STEPS, chains=CHAINS, seed=seed)
    potential = _potential(target)
    density = np.exp(-(potential - potential.min()) / temperature)
    exact = density / (density.sum() * AXIS.width)
    return Wells(chains, exact, _law(target, step_size, temperature))


@functools.cache
def _potential(target: str) -> Float[np.ndarray, " points"]:
    at = jnp.asarray(AXIS.centres)[:, None]
    return np.asarray(jax.vmap(TARGETS[target].potential)(at), float)


@functools.cache
def _force(target: str) -> Float[np.ndarray, " points"]:
    at = jnp.asarray(AXIS.centres)[:, None]
    return -np.asarray(jax.vmap(TARGETS[target].gradient)(at), float)[:, 0]


def _law(target: str, step_size: float, temperature: float) -> Float[np.ndarray, " points"] | None:
    """The stationary density of the steps, where chains do not leave the places that they can."""
    # Where h |U'| > 2 |x| a step without noise ends further out than it began.
    x, half = AXIS.centres, AXIS.points // 2
    thrown = (x > 1.0) & (step_size * np.abs(_force(target)) > 2.0 * np.abs(x))
    cells = int(np.argmax(thrown)) - half if thrown.any() else half
    axis = ex.verify.Axis(-cells * AXIS.width, cells * AXIS.width, 2 * cells)
    wells = TARGETS[target]
    try:
        law = ex.verify.transition_law(
            lambda x: -wells.gradient(x), lambda x: temperature, step_size, axis
        )
    except ValueError:  # they leave them
        return None
    return np.pad(law.stationary(), half - cells)


def _crossings(path: Float[np.ndarray, " draws"]) -> int:
    """Changes between x < -1/2 and x > 1/2."""
    side = np.sign(path[np.abs(path) > 0.5])
    return int(np.sum(side[1:] != side[:-1]))
