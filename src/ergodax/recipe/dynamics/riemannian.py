"""Recipes with a momentum on a Riemannian manifold: gSGRHMC and Riemannian HMC."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.checks import real_number
from ergodax.graph import traced
from ergodax.recipe.dynamics.momentum import friction_rate
from ergodax.recipe.metric import Metric, PotentialMetric, as_metric
from ergodax.recipe.operators import Diagonal, Operator, Scalar
from ergodax.recipe.recipe import Recipe, Scheduled, Variables
from ergodax.tree import Number


class _RiemannianUnderdamped(eqx.Module):
    metric: Metric | PotentialMetric
    friction: Float[Array, ""] | Scheduled

    def auxiliary(self, key: PRNGKeyArray, position: PyTree) -> Variables:
        return {"momentum": tree.normal_like(key, position)}

    def energy(self, z: Variables) -> Float[Array, ""]:
        return 0.5 * tree.dot(z["momentum"], z["momentum"])

    def diffusion(self, z: Variables) -> dict[str, Operator]:
        return {"momentum": self.metric(z["position"]).factors()[1].scaled(self.friction)}

    def curl(self, z: Variables) -> dict[tuple[str, str], Operator]:
        return {("momentum", "position"): self.metric(z["position"]).factors()[0].transpose()}

    def gamma(self, z: Variables) -> Variables:
        # d sqrt(g_i) / d x_i = (d g_i / d x_i) / (2 sqrt(g_i))
        assert isinstance(self.metric, Metric)
        inverse = self.metric(z["position"])
        if not isinstance(inverse, Scalar | Diagonal):
            raise TypeError(
                "a divergence in closed form is of use here only for a metric that is a number or "
                "a diagonal; leave it out of this Metric, and it is found by differentiation."
            )
        divergence = self.metric.divergence_at(z["position"])
        return {"momentum": tree.scale(0.5, inverse.factors()[0].solve(divergence))}


def riemannian_underdamped(metric: Any, friction: Any = 1.0) -> Recipe:
    """Underdamped Langevin dynamics with a metric: the generalised SGRHMC of Ma, Chen and Fox.

    z = (position, momentum r), H = U + r^T r / 2, D = diag(0, gamma L^T L),
    Q = [[0, -L], [L^T, 0]], with G^-1 = L L^T; Gamma = (0, div L^T). L is the root of a
    number, of a diagonal or of low rank, and the Cholesky factor of a matrix.

    Args:
        metric: function of the position that returns G^-1 (see `Metric`), positive definite.
        friction: gamma >= 0, a number or a schedule; 1 is Ma, Chen and Fox's.

    Raises:
        TypeError: the metric is not a function, or the friction not a number.
        ValueError: a negative friction.

    Example:
        >>> import ergodax as ex, jax.numpy as jnp
        >>> metric = lambda x: ex.Diagonal(1.0 / (1.0 + x**2))
        >>> ex.verify.recipe(ex.dynamics.riemannian_underdamped(metric), ex.targets.banana()).ok
        True
    """
    parts = _RiemannianUnderdamped(as_metric(metric), friction_rate(friction))
    closed = isinstance(parts.metric, Metric) and parts.metric.divergence is not None
    gamma = parts.gamma if closed else None
    return Recipe(parts.diffusion, parts.curl, parts.energy, parts.auxiliary, gamma)


class RiemannianEnergy(eqx.Module):
    """The kinetic energy r^T G^-1 r / 2 + (T / 2) log det G of Riemannian HMC."""

    metric: Callable[[PyTree], Operator]

    def traced(self, position: PyTree) -> "RiemannianEnergy":
        """The same, whose metric has been called once and is not called again."""
        return RiemannianEnergy(traced(self.metric, position))

    def draw(self, key: PRNGKeyArray, position: PyTree, temperature: Number = 1.0) -> PyTree:
        """r ~ N(0, T G)."""
        inverse = self.metric(position)
        noise = inverse.solve(inverse.sqrt_mv(tree.normal_like(key, position)))
        return tree.scale(jnp.sqrt(jnp.asarray(temperature, float)), noise)

    def __call__(self, position: PyTree, momentum: PyTree, temperature: Number) -> Float[Array, ""]:
        """The energy; the temperature stands before the determinant, so that it cancels."""
        inverse = self.metric(position)
        kinetic = tree.dot(momentum, inverse.mv(momentum))
        volume = inverse.log_determinant(position)
        return 0.5 * (kinetic - tree.cast(temperature, volume) * volume)

    def velocity(self, position: PyTree, momentum: PyTree) -> PyTree:
        """G^-1 r."""
        return self.metric(position).mv(momentum)

    def force(self, position: PyTree, momentum: PyTree, temperature: Number) -> PyTree:
        """The gradient of the energy in the position."""
        return jax.grad(self)(position, momentum, temperature)


class _RiemannianHamiltonian(eqx.Module):
    kinetic: RiemannianEnergy
    friction: Float[Array, ""] | Scheduled
    temperature: Float[Array, ""]

    def auxiliary(self, key: PRNGKeyArray, position: PyTree) -> Variables:
        return {"momentum": self.kinetic.draw(key, position)}

    def energy(self, z: Variables) -> Float[Array, ""]:
        return self.kinetic(z["position"], z["momentum"], self.temperature)

    def diffusion(self, z: Variables) -> dict[str, Operator]:
        return {"momentum": Scalar(self.friction)}

    def curl(self, z: Variables) -> dict[tuple[str, str], Operator]:
        return {("momentum", "position"): Scalar(1.0)}


def riemannian_hamiltonian(metric: Any, friction: Any = 0.0, temperature: float = 1.0) -> Recipe:
    """Riemannian Hamiltonian dynamics, with friction or without.

    z = (position, momentum r), H = U + r^T G^-1 r / 2 + (T / 2) log det G, D = diag(0, C I),
    Q = [[0, -I], [I, 0]], Gamma = 0: all that depends on the state is in H.

    Args:
        metric: function of the position that returns G^-1 (see `Metric`), positive definite.
        friction: C >= 0, acting on the velocity: dr = -C G^-1 r dt.
        temperature: T, at which the recipe will be run: with another in H the law of z would be
            exp(-H / T) still, and the position's no longer exp(-U / T).

    Raises:
        TypeError: the metric is not a function of the position alone.
        ValueError: a negative friction.

    Example:
        >>> import ergodax as ex, jax.numpy as jnp
        >>> metric = lambda x: ex.Diagonal(1.0 / (1.0 + x**2))
        >>> ex.verify.recipe(ex.dynamics.riemannian_hamiltonian(metric), ex.targets.banana()).ok
        True
    """
    power = jnp.asarray(real_number("temperature", temperature, above=0.0))
    parts = _RiemannianHamiltonian(
        RiemannianEnergy(exact_metric(metric)), friction_rate(friction), power
    )
    return Recipe(parts.diffusion, parts.curl, parts.energy, parts.auxiliary)


def exact_metric(metric: Any) -> Metric:
    """A metric that can be evaluated anywhere, as Riemannian HMC must. Raises: TypeError."""
    found = as_metric(metric)
    if isinstance(found, PotentialMetric):
        raise TypeError(
            "a PotentialMetric is known only where a step begins, and this sampler needs the "
            "metric along its way. Try ex.Metric(lambda x: f(target.potential(x)))."
        )
    return found
