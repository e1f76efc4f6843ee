"""The named recipes: each function returns the (H, D, Q) of a row of the method table.

The functions of a recipe are methods of small modules rather than closures, so that two
recipes that differ only in their numbers share one compiled program.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.recipe.operators import Column, Diagonal, Operator, Scalar, as_mass, as_operator
from ergodax.recipe.recipe import Recipe, Variables


def draw_momentum(
    key: PRNGKeyArray, position: PyTree, mass: Operator, temperature: Any = 1.0
) -> PyTree:
    """A momentum r ~ N(0, T M), shaped like the position."""
    noise = mass.sqrt_mv(tree.normal_like(key, position))
    return tree.scale(jnp.sqrt(jnp.asarray(temperature, float)), noise)


def thermostat_start(friction: Any, position: PyTree, *, per_coordinate: bool) -> PyTree:
    """zeta = A at the start: one number, or a tree like the position."""
    if per_coordinate:
        return tree.map_leaves(lambda x: jnp.full_like(x, tree.cast(friction, x)), position)
    return jnp.asarray(friction).astype(tree.result_dtype(position))


def _rate(friction: Any) -> Float[Array, ""]:
    rate = as_operator(friction, "friction").factorise("friction")
    if not isinstance(rate, Scalar):
        raise TypeError("friction must be one number, a rate; the friction matrix is C = gamma M.")
    return rate.value


class _Langevin(eqx.Module):
    preconditioner: Operator

    def diffusion(self, z: Variables) -> dict[str, Operator]:
        return {"position": self.preconditioner}


def langevin(preconditioner: Any = 1.0) -> Recipe:
    """Overdamped Langevin: z = position, H = U, D = preconditioner, Q = 0.

    Args:
        preconditioner: a constant positive definite D: number, vector, matrix or operator.

    Raises:
        ValueError: not positive semidefinite.
    """
    operator = as_operator(preconditioner, "preconditioner").factorise("preconditioner")
    return Recipe(diffusion=_Langevin(operator).diffusion)


class _Underdamped(eqx.Module):
    mass: Operator
    damping: Operator

    def auxiliary(self, key: PRNGKeyArray, position: PyTree) -> Variables:
        return {"momentum": draw_momentum(key, position, self.mass)}

    def energy(self, z: Variables) -> Float[Array, ""]:
        return 0.5 * tree.dot(z["momentum"], self.mass.solve(z["momentum"]))

    def diffusion(self, z: Variables) -> dict[str, Operator]:
        return {"momentum": self.damping}

    def curl(self, z: Variables) -> dict[tuple[str, str], Operator]:
        return {("momentum", "position"): Scalar(1.0)}


def underdamped(friction: Any = 1.0, mass: Any = 1.0) -> Recipe:
    """Underdamped Langevin, the dynamics of SGHMC.

    z = (position, momentum r), H = U + r^T M^-1 r / 2, D = diag(0, gamma M),
    Q = [[0, -I], [I, 0]].

    Args:
        friction: the rate gamma >= 0; the friction matrix is C = gamma M.
        mass: M: number, vector, matrix or operator, positive definite.

    Raises:
        ValueError: a negative friction or a mass that is not positive definite.
    """
    operator = as_mass(mass)
    parts = _Underdamped(operator, operator.scaled(_rate(friction)))
    return Recipe(parts.diffusion, parts.curl, parts.energy, parts.auxiliary)


class _NoseHoover(eqx.Module):
    mass: Operator
    friction: Float[Array, ""]
    thermal_mass: float | None = eqx.field(static=True)
    per_coordinate: bool = eqx.field(static=True)

    def inertia(self, z: Variables) -> float:
        default = 1.0 if self.per_coordinate else float(tree.size(z["momentum"]))
        return default if self.thermal_mass is None else self.thermal_mass

    def auxiliary(self, key: PRNGKeyArray, position: PyTree) -> Variables:
        start = thermostat_start(self.friction, position, per_coordinate=self.per_coordinate)
        return {"momentum": draw_momentum(key, position, self.mass), "thermostat": start}

    def energy(self, z: Variables) -> Float[Array, ""]:
        offset = tree.map_leaves(lambda x: x - tree.cast(self.friction, x), z["thermostat"])
        kinetic = tree.dot(z["momentum"], self.mass.solve(z["momentum"]))
        return 0.5 * kinetic + 0.5 * self.inertia(z) * tree.dot(offset, offset)

    def diffusion(self, z: Variables) -> dict[str, Operator]:
        return {"momentum": self.mass.scaled(self.friction)}

    def curl(self, z: Variables) -> dict[tuple[str, str], Operator]:
        flow = tree.scale(1.0 / self.inertia(z), z["momentum"])
        exchange = Diagonal(flow) if self.per_coordinate else Column(flow)
        return {("momentum", "position"): Scalar(1.0), ("momentum", "thermostat"): exchange}


def nose_hoover(
    friction: Any = 1.0,
    mass: Any = 1.0,
    thermal_mass: float | None = None,
    *,
    per_coordinate: bool = False,
) -> Recipe:
    """Stochastic-gradient Nose-Hoover thermostat.

    z = (position, momentum r, thermostat zeta), H = U + r^T M^-1 r / 2 + mu (zeta - A)^2 / 2,
    D = diag(0, A M, 0), Q[momentum, position] = I, Q[momentum, thermostat] = r / mu.

    Args:
        friction: A > 0, a rate: the injected noise, and the mean of zeta for exact gradients.
        mass: M: number or vector.
        thermal_mass: mu; by default the dimension, or 1 for each coordinate.
        per_coordinate: one zeta for each coordinate instead of one for all.

    Raises:
        ValueError: a negative friction or a mass that is not positive.
    """
    parts = _NoseHoover(as_mass(mass), _rate(friction), thermal_mass, per_coordinate)
    return Recipe(parts.diffusion, parts.curl, parts.energy, parts.auxiliary)
