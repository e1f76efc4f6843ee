"""The four samplers as a user writes them: H, D and Q, no update and no Gamma.

Nothing says what is constant, and no derivative is given: the library finds both. The metric
is G^-1 = 1 / (1 + x^2), entry by entry, on any tree.
"""

from typing import Any

import jax
from jax import lax

import ergodax as ex

SAMPLERS = ("sgld", "sghmc", "sgrld", "sgrhmc")


def inverse_metric(x: Any) -> Any:
    """The diagonal of G^-1, a tree like the position."""
    return jax.tree.map(lambda leaf: 1 / (1 + leaf**2), x)


def kernel(sampler: str, gradient: ex.GradientEstimator, h: float, friction: float) -> ex.Kernel:
    """The recipe, run by the integrator that runs any."""
    if sampler == "sgld":
        return ex.euler_maruyama(langevin(), gradient, h)
    if sampler == "sgrld":
        return ex.euler_maruyama(riemannian_langevin(), gradient, h)
    make = underdamped if sampler == "sghmc" else riemannian_underdamped
    return ex.euler_maruyama(make(friction), gradient, h, semi_implicit=True)


def langevin() -> ex.Recipe:
    """D = I."""
    return ex.Recipe(diffusion=lambda z: {"position": 1.0})


def riemannian_langevin() -> ex.Recipe:
    """D = G^-1."""
    return ex.Recipe(diffusion=lambda z: {"position": ex.Diagonal(inverse_metric(z["position"]))})


def underdamped(friction: float) -> ex.Recipe:
    """H = U + |r|^2 / 2, D = (0, friction), Q = [[0, -I], [I, 0]]."""
    return ex.Recipe(
        auxiliary=_momentum,
        energy=_kinetic,
        diffusion=lambda z: {"momentum": friction},
        curl=lambda z: {("momentum", "position"): 1.0},
    )


def riemannian_underdamped(friction: float) -> ex.Recipe:
    """H = U + |r|^2 / 2, D = (0, friction L^2), Q = [[0, -L], [L, 0]], L the root of G^-1."""

    def root(z: dict) -> Any:
        return jax.tree.map(lambda leaf: lax.rsqrt(1 + leaf**2), z["position"])

    def diffusion(z: dict) -> dict:
        return {"momentum": ex.Diagonal(jax.tree.map(lambda leaf: friction * leaf**2, root(z)))}

    def curl(z: dict) -> dict:
        return {("momentum", "position"): ex.Diagonal(root(z))}

    return ex.Recipe(diffusion, curl, _kinetic, _momentum)


def _momentum(key: jax.Array, x: Any) -> dict:
    return {"momentum": ex.normal_like(key, x)}


def _kinetic(z: dict) -> jax.Array:
    return 0.5 * ex.tree.dot(z["momentum"], z["momentum"])
