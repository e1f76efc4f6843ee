"""Three recipes H, D, Q on one curved density, with one step size."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float, PRNGKeyArray

import ergodax as ex
from gallery.figures import tables
from gallery.figures.chains import Chains, draw

CHAINS, STEPS, BURN_IN, SHOWN = 32, 1500, 200, 500
TARGET = ex.targets.banana()
X, Y = (-3.2, 3.2), (-2.4, 1.6)  # what is shown of the plane
RIEMANNIAN = "Riemannian"

ROTATION = np.array([[0.0, 1.0], [-1.0, 0.0]])

Variables = dict[str, Array]


def overdamped(strength: float, curl: float) -> ex.Recipe:
    """z = position, H = U, D = d I, Q = c [[0, 1], [-1, 0]]."""
    return ex.dynamics.irreversible_langevin(curl * ROTATION, strength)


class _Momentum(eqx.Module):
    strength: ex.Scalar
    curl: ex.Scalar

    def auxiliary(self, key: PRNGKeyArray, position: Array) -> Variables:
        return {"momentum": ex.normal_like(key, position)}

    def energy(self, z: Variables) -> Float[Array, ""]:
        return 0.5 * jnp.sum(z["momentum"] ** 2)

    def diffusion(self, z: Variables) -> dict:
        return {"momentum": self.strength}

    def turning(self, z: Variables) -> dict:
        return {("momentum", "position"): self.curl}


def with_momentum(strength: float, curl: float) -> ex.Recipe:
    """z = (position, momentum r), H = U + r^2 / 2, D = diag(0, d I), Q = c [[0, -I], [I, 0]]."""
    parts = _Momentum(ex.Scalar(strength), ex.Scalar(curl))
    return ex.Recipe(parts.diffusion, parts.turning, parts.energy, parts.auxiliary)


class _Riemannian(eqx.Module):
    strength: Float[Array, ""]
    rotation: ex.Dense

    def diffusion(self, z: Variables) -> dict:
        x = z["position"][0]
        one = jnp.ones_like(x)
        rows = [[one, 0.5 * x], [0.5 * x, 0.0625 + 0.25 * x**2]]
        inverse = jnp.stack([jnp.stack(row) for row in rows])
        return {"position": ex.Dense(self.strength.astype(x.dtype) * inverse)}

    def turning(self, z: Variables) -> dict:
        return {("position", "position"): self.rotation}


def riemannian(strength: float, curl: float) -> ex.Recipe:
    """z = position, H = U, D = d G^-1(x), Q = c [[0, 1], [-1, 0]]; Gamma by differentiation.

    The valley is where 4 (y + 1.2) = x^2. With J = (-2 x, 4) the gradient of the difference and
    e = (1, 0), G = e e^T + J^T J, whose inverse is a polynomial; Gamma = div D = d (0, 1/2).
    """
    parts = _Riemannian(jnp.asarray(float(strength)), ex.Dense(curl * ROTATION))
    return ex.Recipe(parts.diffusion, parts.turning)


RECIPES = {"overdamped": overdamped, "with momentum": with_momentum, RIEMANNIAN: riemannian}


@dataclasses.dataclass(frozen=True)
class Moments:
    """E x^2, E y and the sd of y; exactly where they are not measured."""

    square: float
    mean: float
    sd: float


EXACT = Moments(
    float(TARGET.covariance[0, 0]), float(TARGET.mean[1]), float(TARGET.covariance[1, 1]) ** 0.5
)


def run(
    name: str, strength: float, curl: float, step_size: float, seed: int, gamma: bool = True
) -> Chains:
    """Run a recipe by Euler-Maruyama, a momentum before the position.

    Args:
        name: of `RECIPES`.
        strength: d, which multiplies D; positive.
        curl: c, which multiplies Q.
        step_size: h.
        seed: of everything random.
        gamma: whether Gamma = div(D + Q) is in the drift, as it must.
    """
    recipe = RECIPES[name](strength, curl)
    if not gamma:
        recipe = ex.dynamics.without_correction(recipe)
    kernel = ex.euler_maruyama(recipe, ex.FullGradient(TARGET), step_size, semi_implicit=True)
    start = jnp.array([0.0, -1.2])
    return draw(kernel, start, STEPS, chains=CHAINS, seed=seed, burn_in=BURN_IN)


def moments(chains: Chains) -> Moments:
    """Of all draws."""
    x, y = chains.pooled.T
    return Moments(float(np.mean(x**2)), float(y.mean()), float(y.std()))


def autocorrelation_time(chains: Chains) -> float:
    """Of x, in steps."""
    times = ex.diagnostics.integrated_autocorrelation_time(chains.positions[:, :, :1])
    return float(np.asarray(times)[0])


def draw_table(chains: Chains) -> pd.DataFrame:
    """Some draws of all chains: columns x, y."""
    return tables.cloud(chains.pooled, ["x", "y"], SHOWN)


def bars(chains: Chains, coordinate: int) -> pd.DataFrame:
    """The histogram of a coordinate.

    Args:
        chains: of `run`.
        coordinate: 0 for x, 1 for y.
    """
    return tables.histogram(chains.pooled[:, coordinate], *(X, Y)[coordinate], 64)


@functools.cache
def density_table() -> pd.DataFrame:
    """The density in cells of the plane: columns x, x end, y, y end, density."""
    edges = [np.linspace(*ends, 41) for ends in (X, Y)]
    (left, right), (low, high) = ((e[:-1], e[1:]) for e in edges)
    x, y = (corner.ravel() for corner in np.meshgrid(left, low, indexing="ij"))
    width, height = right[0] - left[0], high[0] - low[0]
    p = np.exp(-_potential(x + 0.5 * width, y + 0.5 * height))
    columns = {"x": x, "x end": x + width, "y": y, "y end": y + height, "density": p}
    return pd.DataFrame(columns)


@functools.cache
def marginal_table(coordinate: int) -> pd.DataFrame:
    """The exact marginal density, by quadrature: columns x or y, and density.

    Args:
        coordinate: 0 for x, 1 for y.
    """
    fine = [np.linspace(-6.0, 6.0, 1201), np.linspace(-3.0, 9.0, 2401)]
    p = np.exp(-_potential(*np.meshgrid(*fine, indexing="ij")))
    marginal = p.sum(axis=1 - coordinate)
    at = fine[coordinate]
    density = marginal / (marginal.sum() * (at[1] - at[0]))
    low, high = (X, Y)[coordinate]
    shown = np.flatnonzero((at >= low) & (at <= high))[::4]
    return pd.DataFrame({"xy"[coordinate]: at[shown], "density": density[shown]})


def _potential(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    both = jnp.asarray(np.stack([x.ravel(), y.ravel()], axis=1))
    return np.asarray(jax.vmap(TARGET.potential)(both), float).reshape(x.shape)
