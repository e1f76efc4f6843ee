"""Langevin dynamics with a diffusion that varies and a share of Gamma: its law, a verdict."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float, PRNGKeyArray

import ergodax as ex
from gallery.figures import tables

CHAINS, STEPS, BURN_IN, STEP_SIZE = 2048, 200, 200, 0.02
EDGE, BINS = 2.0, 60
GRID = np.linspace(-EDGE, EDGE, 241)
WELLS = ex.targets.double_well(1.0)
RIGHT, OFF, FOUND = "exp(-U)", "law of the equation", "chains"


class Equation(ex.Kernel):
    """dx = (-D U' + c D') dt + sqrt(2 D) dW by short steps, D = 1 / (1 + a x^2).

    Its law is exp(-U) D^(c - 1), whatever the step: the right one for c = 1 alone.

    Attributes:
        share: c, of Gamma = D'.
        strength: a, of the metric.
    """

    share: Array
    strength: Array

    def diffusion(self, x: Array) -> Array:
        """D, in the shape of x."""
        return 1.0 / (1.0 + self.strength.astype(x.dtype) * x**2)

    def drift(self, x: Array) -> Array:
        """-D U' + c D'."""
        gamma = jax.grad(lambda y: jnp.sum(self.diffusion(y)))(x)
        return -self.diffusion(x) * WELLS.gradient(x) + self.share.astype(x.dtype) * gamma

    def init(self, key: PRNGKeyArray, position: Array) -> ex.State:
        """The position alone."""
        return ex.State(position, {}, None, None, jnp.int32(0))

    def step(self, key: PRNGKeyArray, state: ex.State) -> tuple[ex.State, ex.Info]:
        """One step of Euler and Maruyama's."""
        x, h = state.position, STEP_SIZE
        new = x + h * self.drift(x) + jnp.sqrt(2.0 * h * self.diffusion(x)) * ex.normal_like(key, x)
        nothing = jnp.float32(0.0)
        info = ex.Info(jnp.float32(h), nothing, nothing, jnp.isfinite(new).all(), jnp.int32(1))
        return eqx.tree_at(lambda s: (s.position, s.step), state, (new, state.step + 1)), info


@dataclasses.dataclass(frozen=True)
class Verified:
    """Chains of the equation, its law and the right one.

    Attributes:
        equation: what was run.
        draws: of all chains.
    """

    equation: Equation
    draws: Float[np.ndarray, "chains draws"]

    def law(self, share: float) -> Float[np.ndarray, " points"]:
        """The density exp(-U) D^(share - 1) on the grid."""
        diffusion = np.asarray(self.equation.diffusion(jnp.asarray(GRID)), float)
        density = np.exp(-((GRID**2 - 1.0) ** 2)) * diffusion ** (share - 1.0)
        return density / (density.sum() * (GRID[1] - GRID[0]))

    def densities(self) -> pd.DataFrame:
        """Columns x, density and law."""
        laws = {RIGHT: self.law(1.0), OFF: self.law(float(self.equation.share))}
        return tables.curves("x", GRID, "density", laws, "law")

    def bars(self) -> pd.DataFrame:
        """The histogram of all draws."""
        return tables.histogram(self.draws, -EDGE, EDGE, BINS)

    def residual(self) -> pd.DataFrame:
        """div J / pi of the density exp(-U) along x: (c - 1)(D'' - D' U')."""
        slope = jax.grad(lambda x: self.equation.diffusion(x))
        x = jnp.asarray(GRID, jnp.float32)
        first, second = jax.vmap(slope)(x), jax.vmap(jax.grad(slope))(x)
        force = 4.0 * x * (x**2 - 1.0)
        values = (self.equation.share - 1.0) * (second - first * force)
        return pd.DataFrame({"x": GRID, "div J / pi": np.asarray(values, float)})

    @property
    def square(self) -> tuple[float, float, float]:
        """E x^2: of exp(-U), of the equation's law, of the chains."""
        square = GRID**2 * (GRID[1] - GRID[0])
        right, law = self.law(1.0) @ square, self.law(float(self.equation.share)) @ square
        return float(right), float(law), float(np.mean(self.draws**2))


def run(share: float, strength: float, seed: int) -> Verified:
    """Chains of the equation from the bottoms of both wells.

    Args:
        share: c, of Gamma.
        strength: a, of the metric.
        seed: of everything random.
    """
    equation = Equation(jnp.float32(share), jnp.float32(strength))
    starts = jnp.where(jnp.arange(CHAINS) % 2, 1.0, -1.0)[:, None]
    samples = ex.sample(
        equation, positions=starts, num_steps=STEPS, burn_in=BURN_IN, key=jax.random.key(seed),
        num_chains=CHAINS, progress=False,
    )  # fmt: skip
    return Verified(equation, np.asarray(samples.position[..., 0], float))


def verdict(equation: Equation) -> ex.verify.Report:
    """What `verify.sde` says of the equation."""
    points = jnp.linspace(-0.9 * EDGE, 0.9 * EDGE, 64)[:, None]
    return ex.verify.sde(equation.drift, equation.diffusion, WELLS.potential, points)
