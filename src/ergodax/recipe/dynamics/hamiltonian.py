"""Recipes with a momentum of constant mass: Hamiltonian and underdamped Langevin dynamics."""

from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.recipe.dynamics.momentum import damping, draw_momentum
from ergodax.recipe.operators import Operator, Scalar, as_definite
from ergodax.recipe.recipe import Recipe, Variables
from ergodax.recipe.scheduled import Scheduled


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
    """
    parts = _Hamiltonian(as_definite(mass, "mass"))
    return Recipe(parts.diffusion, parts.curl, parts.energy, parts.auxiliary)


class _Underdamped(eqx.Module):
    hamiltonian: _Hamiltonian
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
        ValueError: a negative friction or a mass that is not positive definite.
    """
    operator = as_definite(mass, "mass")
    parts = _Underdamped(_Hamiltonian(operator), damping(friction, operator))
    rest = parts.hamiltonian
    return Recipe(parts.diffusion, rest.curl, rest.energy, rest.auxiliary)
