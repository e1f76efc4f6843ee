"""The recipe whose friction is a variable: the Nose-Hoover thermostat."""

from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.recipe.dynamics.momentum import draw_momentum, friction_rate, thermostat_start
from ergodax.recipe.dynamics.momentum import thermal_mass as check_thermal_mass
from ergodax.recipe.operators import Column, Diagonal, Operator, Scalar, as_definite
from ergodax.recipe.recipe import Recipe, Variables
from ergodax.recipe.scheduled import Scheduled


class _NoseHoover(eqx.Module):
    mass: Operator
    friction: Float[Array, ""] | Scheduled
    thermal_mass: Float[Array, ""] | None
    per_coordinate: bool = eqx.field(static=True)

    def inertia(self, z: Variables) -> Any:
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
    thermal_mass: Any = None,
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
    mu = check_thermal_mass(thermal_mass)
    parts = _NoseHoover(as_definite(mass, "mass"), friction_rate(friction), mu, per_coordinate)
    return Recipe(parts.diffusion, parts.curl, parts.energy, parts.auxiliary)
