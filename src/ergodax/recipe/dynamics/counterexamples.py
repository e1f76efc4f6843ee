"""Recipes that are wrong, and are known for it: kept to be refuted."""

from typing import Any

import equinox as eqx
import jax
from jaxtyping import PyTree

from ergodax import tree
from ergodax.checks import instance
from ergodax.recipe.dynamics.overdamped import riemannian_langevin
from ergodax.recipe.dynamics.riemannian import riemannian_underdamped
from ergodax.recipe.metric import as_metric
from ergodax.recipe.operators import Dense
from ergodax.recipe.recipe import Recipe, Variables


def no_correction(z: Variables) -> Variables:
    """Gamma = 0, whatever D and Q."""
    return {}


def without_correction(recipe: Recipe) -> Recipe:
    """A recipe with its Gamma dropped; wrong wherever that was not zero.

    Args:
        recipe: any recipe.

    Example:
        >>> import ergodax as ex, jax.numpy as jnp
        >>> metric = lambda x: ex.Diagonal(1.0 / (1.0 + x**2))
        >>> recipe = ex.dynamics.without_correction(ex.dynamics.riemannian_langevin(metric))
        >>> ex.verify.recipe(recipe, ex.targets.banana()).ok
        False
    """
    instance("recipe", recipe, Recipe, "an ex.Recipe, such as ex.dynamics.langevin()")
    return Recipe(
        recipe.diffusion, recipe.curl, recipe.energy, recipe.auxiliary, gamma=no_correction
    )


def naive_riemannian_underdamped(metric: Any, friction: Any = 1.0) -> Recipe:
    """COUNTEREXAMPLE, Eq. (16) of Ma, Chen and Fox: SGRHMC without Gamma.

    With a metric that is a number, s(x)^2, its stationary density is exp(-U) / s instead of
    exp(-U).

    Args:
        metric: function of the position that returns G^-1 (see `Metric`).
        friction: gamma >= 0.

    Example:
        >>> import ergodax as ex, jax.numpy as jnp
        >>> metric = lambda x: ex.Diagonal(1.0 / (1.0 + x**2))
        >>> recipe = ex.dynamics.naive_riemannian_underdamped(metric)
        >>> ex.verify.recipe(recipe, ex.targets.banana()).ok
        False
    """
    return without_correction(riemannian_underdamped(metric, friction))


def naive_riemannian_langevin(metric: Any) -> Recipe:
    """COUNTEREXAMPLE: preconditioning by G^-1(x) without Gamma.

    In one dimension its stationary density is exp(-U) G instead of exp(-U).

    Args:
        metric: function of the position that returns G^-1 (see `Metric`).

    Example:
        >>> import ergodax as ex, jax.numpy as jnp
        >>> metric = lambda x: ex.Diagonal(1.0 / (1.0 + x**2))
        >>> ex.verify.recipe(ex.dynamics.naive_riemannian_langevin(metric), ex.targets.banana()).ok
        False
    """
    return without_correction(riemannian_langevin(metric))


class _Determinant(eqx.Module):
    metric: Any

    def gamma(self, z: Variables) -> Variables:
        def log_volume(position: PyTree) -> Any:
            return -self.metric(position).log_determinant(position)

        at = z["position"]
        slope = self.metric(at).mv(jax.grad(log_volume)(at))
        # As of a matrix: exact, whatever the metric's structure, where it is not large.
        divergence = Dense.divergence(self.metric, at, jax.random.key(0))
        return {"position": tree.add_scaled(slope, 2.0, divergence)}


def determinant_corrected_langevin(metric: Any) -> Recipe:
    """COUNTEREXAMPLE: the correction of Girolami and Calderhead, and of Patterson and Teh.

    2 |G|^-1/2 sum over j of d_j (G^-1_ij |G|^1/2) in place of div G^-1. The two agree in one
    dimension and for diagonals whose entries depend on their own coordinates, not otherwise.

    Args:
        metric: function of the position that returns G^-1 (see `Metric`).
    """
    parts = _Determinant(as_metric(metric))
    return Recipe(riemannian_langevin(metric).diffusion, gamma=parts.gamma)
