"""Recipes in the position alone: overdamped Langevin dynamics."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ergodax.checks import real_array
from ergodax.recipe.metric import Metric, PotentialMetric, as_metric
from ergodax.recipe.operators import Dense, Operator, as_operator
from ergodax.recipe.recipe import Recipe, Variables


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

    Example:
        >>> import ergodax as ex
        >>> ex.verify.recipe(ex.dynamics.langevin(), ex.targets.banana()).ok
        True
    """
    operator = as_operator(preconditioner, "preconditioner").factorise("preconditioner")
    return Recipe(diffusion=_Langevin(operator).diffusion)


class _Irreversible(eqx.Module):
    preconditioner: Operator
    rotation: Dense

    def diffusion(self, z: Variables) -> dict[str, Operator]:
        return {"position": self.preconditioner}

    def curl(self, z: Variables) -> dict[tuple[str, str], Operator]:
        return {("position", "position"): self.rotation}


def irreversible_langevin(rotation: Any, preconditioner: Any = 1.0) -> Recipe:
    """Langevin dynamics with a constant rotation: z = position, H = U, D = preconditioner, Q.

    The same law as without, in general reached sooner; the chain is not reversible.

    Args:
        rotation: Q, a skew-symmetric matrix, shape (d, d).
        preconditioner: a constant positive definite D: number, vector, matrix or operator.

    Raises:
        ValueError: a rotation that is not skew-symmetric, or a preconditioner that is not
            positive semidefinite.

    Example:
        >>> import ergodax as ex, jax.numpy as jnp
        >>> turn = jnp.array([[0.0, 1.0], [-1.0, 0.0]])
        >>> ex.verify.recipe(ex.dynamics.irreversible_langevin(turn), ex.targets.banana()).ok
        True
    """
    q = real_array("rotation", rotation, ndim=2)
    if q.shape[0] != q.shape[1] or not np.allclose(q, -q.T, atol=1e-6):
        raise ValueError("rotation must be a skew-symmetric matrix, Q^T = -Q. Try (A - A.T) / 2.")
    operator = as_operator(preconditioner, "preconditioner").factorise("preconditioner")
    parts = _Irreversible(operator, Dense(jnp.asarray(0.5 * (q - q.T))))
    return Recipe(parts.diffusion, parts.curl)


class _RiemannianLangevin(eqx.Module):
    metric: Metric | PotentialMetric

    def diffusion(self, z: Variables) -> dict[str, Operator]:
        return {"position": self.metric(z["position"])}

    def gamma(self, z: Variables) -> Variables:
        assert isinstance(self.metric, Metric)
        return {"position": self.metric.divergence_at(z["position"])}


def riemannian_langevin(metric: Any) -> Recipe:
    """Langevin dynamics on a Riemannian manifold: z = position, H = U, D = G^-1, Q = 0.

    Gamma = div G^-1. Reversible, like every recipe with Q = 0.

    Args:
        metric: function of the position that returns G^-1 (see `Metric`), positive definite.

    Raises:
        TypeError: not a function.

    Example:
        >>> import ergodax as ex, jax.numpy as jnp
        >>> metric = lambda x: ex.Diagonal(1.0 / (1.0 + x**2))
        >>> ex.verify.recipe(ex.dynamics.riemannian_langevin(metric), ex.targets.banana()).ok
        True
    """
    parts = _RiemannianLangevin(as_metric(metric))
    closed = isinstance(parts.metric, Metric) and parts.metric.divergence is not None
    return Recipe(parts.diffusion, gamma=parts.gamma if closed else None)
