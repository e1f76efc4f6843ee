"""Recipes with a momentum of constant mass: Hamiltonian, underdamped Langevin, Nose-Hoover."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.checks import flag, real_number
from ergodax.recipe.operators import Column, Diagonal, Operator, Scalar, as_definite, as_operator
from ergodax.recipe.recipe import Recipe, Scheduled, Variables
from ergodax.schedule import as_schedule
from ergodax.tree import Number


class _Hamiltonian(eqx.Module):
    mass: Operator

    def auxiliary(self, key: PRNGKeyArray, position: PyTree) -> Variables:
        return {"momentum": draw_momentum(key, position, self.mass)}

    def energy(self, z: Variables) -> Float[Array, ""]:
        return 0.5 * tree.dot(z["momentum"], self.mass.solve(z["momentum"]))

    def diffusion(self, z: Variables) -> dict[str, Operator]:
        return {}

    def curl(self, z: Variables) -> dict[tuple[str, str], Operator]:
        return {("momentum", "position"): Scalar(1.0)}


def hamiltonian(mass: Any = 1.0) -> Recipe:
    """Hamiltonian dynamics: z = (position, momentum r), H = U + r^T M^-1 r / 2, D = 0.

    Q = [[0, -I], [I, 0]]. Ergodic only with momenta drawn afresh from time to time. The noise
    of a stochastic gradient can't be compensated, since there is none to lower.

    Args:
        mass: M: number, vector, matrix or operator, positive definite.

    Raises:
        ValueError: a mass that is not positive definite.

    Example:
        >>> import ergodax as ex
        >>> report = ex.verify.recipe(ex.dynamics.hamiltonian(), ex.targets.banana())
        >>> report.ok, report.reversible
        (True, False)
    """
    parts = _Hamiltonian(as_definite(mass, "mass"))
    return Recipe(parts.diffusion, parts.curl, parts.energy, parts.auxiliary)


class _Damped(eqx.Module):
    damping: Operator | Scheduled

    def diffusion(self, z: Variables) -> dict[str, Any]:
        return {"momentum": self.damping}


def underdamped(friction: Any = 1.0, mass: Any = 1.0) -> Recipe:
    """Underdamped Langevin, the dynamics of SGHMC.

    z = (position, momentum r), H = U + r^T M^-1 r / 2, D = diag(0, gamma M),
    Q = [[0, -I], [I, 0]].

    Args:
        friction: the rate gamma >= 0, a number or a schedule; the friction matrix is C = gamma M.
        mass: M: number, vector, matrix or operator, positive definite.

    Raises:
        TypeError: a friction that is neither one number nor a function of the step.
        ValueError: a negative friction or a mass that is not positive definite.

    Example:
        >>> import ergodax as ex
        >>> ex.verify.recipe(ex.dynamics.underdamped(), ex.targets.banana()).ok
        True
    """
    operator, rate = as_definite(mass, "mass"), friction_rate(friction)
    scheduled = isinstance(rate, Scheduled)
    damping = Scheduled(rate.schedule, operator) if scheduled else operator.scaled(rate)
    rest = _Hamiltonian(operator)
    return Recipe(_Damped(damping).diffusion, rest.curl, rest.energy, rest.auxiliary)


class _NoseHoover(eqx.Module):
    mass: Operator
    friction: Float[Array, ""] | Scheduled
    thermal_mass: Float[Array, ""] | None
    per_coordinate: bool = eqx.field(static=True)

    def inertia(self, z: Variables) -> Float[Array, ""] | float:
        default = 1.0 if self.per_coordinate else float(tree.size(z["momentum"]))
        return default if self.thermal_mass is None else self.thermal_mass

    def auxiliary(self, key: PRNGKeyArray, position: PyTree) -> Variables:
        start = thermostat_start(self.friction, position, per_coordinate=self.per_coordinate)
        return {"momentum": draw_momentum(key, position, self.mass), "thermostat": start}

    def energy(self, z: Variables) -> Float[Array, ""]:
        friction = self.friction
        assert not isinstance(friction, Scheduled)  # a recipe at a step has its number
        offset = tree.map_leaves(lambda x: x - tree.cast(friction, x), z["thermostat"])
        kinetic = tree.dot(z["momentum"], self.mass.solve(z["momentum"]))
        return 0.5 * kinetic + 0.5 * self.inertia(z) * tree.dot(offset, offset)

    def diffusion(self, z: Variables) -> dict[str, Operator]:
        return {"momentum": self.mass.scaled(self.friction)}

    def curl(self, z: Variables) -> dict[tuple[str, str], Operator]:
        flow = tree.scale(1.0 / self.inertia(z), z["momentum"])
        exchange = Diagonal(flow) if self.per_coordinate else Column(flow)
        return {("momentum", "position"): Scalar(1.0), ("momentum", "thermostat"): exchange}


def nose_hoover(
    friction: Any = 1.0, mass: Any = 1.0, thermal_mass: Any = None, *, per_coordinate: bool = False
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

    Example:
        >>> import ergodax as ex
        >>> ex.verify.recipe(ex.dynamics.nose_hoover(), ex.targets.banana()).ok
        True
    """
    mu = check_thermal_mass(thermal_mass)
    flag("per_coordinate", per_coordinate)
    parts = _NoseHoover(as_definite(mass, "mass"), friction_rate(friction), mu, per_coordinate)
    return Recipe(parts.diffusion, parts.curl, parts.energy, parts.auxiliary)


def draw_momentum(
    key: PRNGKeyArray, position: PyTree, mass: Operator, temperature: Number = 1.0
) -> PyTree:
    """A momentum r ~ N(0, T M), shaped like the position."""
    noise = mass.sqrt_mv(tree.normal_like(key, position))
    return tree.scale(jnp.sqrt(jnp.asarray(temperature, float)), noise)


def thermostat_start(friction: Any, position: PyTree, *, per_coordinate: bool) -> PyTree:
    """zeta = A at the start: one number, or a tree like the position."""
    if per_coordinate:
        return tree.map_leaves(lambda x: jnp.full_like(x, tree.cast(friction, x)), position)
    return jnp.asarray(friction).astype(tree.result_dtype(position))


def check_thermal_mass(value: Any) -> Float[Array, ""] | None:
    """The mass mu of a thermostat as a positive number; None for the default."""
    if value is None:
        return None
    hint = "None is for the dimension."
    return jnp.asarray(real_number("thermal_mass", value, above=0.0, hint=hint))


def friction_rate(friction: Any) -> Float[Array, ""] | Scheduled:
    """The rate gamma as a number that is not negative, or as a schedule. Raises: TypeError."""
    if callable(friction):
        return Scheduled(as_schedule(friction, "friction"))
    rate = as_operator(friction, "friction").factorise("friction")
    if not isinstance(rate, Scalar):
        raise TypeError("friction must be one number, a rate; the friction matrix is C = gamma M.")
    return rate.value
