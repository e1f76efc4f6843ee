"""The discretisation that runs any recipe."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.checks import choice, flag, whole_number
from ergodax.control_flow import when
from ergodax.gradient.base import Estimate, GradientEstimator, known_covariance
from ergodax.integrator.stepper import Moved, Stepper
from ergodax.kernel import State, kinetic_temperature, named
from ergodax.recipe.compensation import Columns, compensated_noise
from ergodax.recipe.metric import Linearised, with_potential
from ergodax.recipe.operators import Operator
from ergodax.recipe.recipe import Recipe, Variables
from ergodax.schedule import as_schedule

SCHEMES = ("semi-implicit", "euler")


class EulerMaruyama(Stepper):
    """The kernel that `euler_maruyama` returns."""

    recipe: Recipe
    compensate: bool = eqx.field(static=True)
    clip: bool = eqx.field(static=True)
    semi_implicit: bool = eqx.field(static=True)
    resample_every: int | None = eqx.field(static=True)

    def begin(self, key: PRNGKeyArray, position: PyTree) -> tuple[Variables, PRNGKeyArray]:
        """Draw the auxiliary variables. Raises: ValueError."""
        key_auxiliary, key_gradient = jax.random.split(key)
        auxiliary = self._start(key_auxiliary, position, jnp.int32(0))
        if self.resample_every is not None and "momentum" not in auxiliary:
            raise ValueError(
                "resample_every needs a recipe with a momentum; the variables of this one are "
                f"{['position', *auxiliary]}."
            )
        return auxiliary, key_gradient

    def update(self, key: PRNGKeyArray, state: State, h: Array, temperature: Array) -> Moved:
        """z + h (-(D + Q) grad H + T Gamma) + N(0, 2 h T D)."""
        z = {"position": state.position, **state.auxiliary}
        if self.resample_every is not None:
            key, key_momentum = jax.random.split(key)
            z["momentum"] = self._resampled(key_momentum, state, self.resample_every)
        key_gradient, key_noise, key_early, key_late = jax.random.split(key, 4)
        estimate, gradient = self.gradient.estimate(key_gradient, state.gradient, state.position)
        near = Linearised(state.position, estimate.potential, estimate.gradient)
        recipe = with_potential(self.recipe.at(state.step), near).traced(z)
        noise, feasible = self._noise(recipe, key_noise, z, estimate, h, temperature)

        def moved(z: Variables, key: PRNGKeyArray) -> Variables:
            drift = recipe.drift(z, recipe.gradient(z, estimate.gradient))
            for name, gamma in recipe.correction(z, key).items():
                drift[name] = tree.add_scaled(drift[name], temperature, gamma)
            new = {name: tree.add(z[name], tree.scale(h, drift[name])) for name in z}
            return {
                name: tree.add(x, noise[name]) if name in noise else x for name, x in new.items()
            }

        new = moved(z, key_early)
        if self.semi_implicit:
            # The position moves with the new auxiliary variables; the blocks are still those
            # of the old position, and the gradient is the one already estimated.
            new["position"] = moved({**new, "position": z["position"]}, key_late)["position"]
        told: dict[str, Any] = {}
        if "momentum" in new:
            velocity = jax.grad(recipe.energy)(new)["momentum"]
            told["kinetic_temperature"] = kinetic_temperature(new["momentum"], velocity)
        if feasible is not None:
            told |= {"clipped": ~feasible} if self.clip else {"feasible": feasible}
        position, auxiliary = new.pop("position"), new
        return Moved(position, auxiliary, estimate, gradient, told)

    def _start(self, key: PRNGKeyArray, position: PyTree, step: Any) -> Variables:
        auxiliary = self.recipe.at(step).auxiliary(key, position)
        # A recipe draws its auxiliary variables for T = 1; momenta scale with sqrt(T).
        if "momentum" in auxiliary:
            root = jnp.sqrt(self.temperature(step))
            auxiliary = {**auxiliary, "momentum": tree.scale(root, auxiliary["momentum"])}
        return auxiliary

    def _resampled(self, key: PRNGKeyArray, state: State, period: int) -> PyTree:
        """The momentum, a fresh one at the steps where that is due."""

        def fresh() -> PyTree:
            return self._start(key, state.position, state.step)["momentum"]

        return when(state.step % period == 0, fresh, lambda: state.auxiliary["momentum"])

    def _noise(
        self,
        recipe: Recipe,
        key: PRNGKeyArray,
        z: Variables,
        estimate: Estimate,
        h: Array,
        temperature: Array,
    ) -> tuple[Variables, Bool[Array, ""] | None]:
        blocks = recipe.diffusion_at(z)
        normal = tree.normal_like(key, {name: z[name] for name in blocks}) if blocks else {}
        if not self.compensate:
            root = jnp.sqrt(2.0 * h * temperature)
            spread = {name: block.sqrt_mv(normal[name]) for name, block in blocks.items()}
            return tree.scale(root, spread), None
        covariance = known_covariance(estimate, self.gradient, "compensate=True")
        columns = _gradient_columns(recipe, z, blocks)
        return compensated_noise(blocks, columns, covariance, h, temperature, normal)


def _gradient_columns(recipe: Recipe, z: Variables, blocks: dict[str, Operator]) -> Columns:
    """The position's columns of D + Q, through which the gradient's noise enters, by row."""
    columns: Columns = {"position": [(1.0, blocks["position"])]} if "position" in blocks else {}
    for row, column, sign, field in recipe.curl_blocks(z):
        if column == "position":
            columns.setdefault(row, []).append((sign, field(z)))
    return columns


def check_scheme(scheme: str) -> bool:
    """Whether a scheme of a recipe with a momentum is the semi-implicit one. Raises: ValueError."""
    choice("scheme", scheme, SCHEMES)
    return scheme == "semi-implicit"


@named
def euler_maruyama(
    recipe: Recipe,
    gradient: GradientEstimator,
    step_size: Any,
    *,
    temperature: Any = 1.0,
    compensate: bool = False,
    clip: bool = False,
    semi_implicit: bool = False,
    resample_every: int | np.integer | None = None,
) -> EulerMaruyama:
    """Run any recipe: z+ = z + h (-(D + Q) grad H + T Gamma) + N(0, 2 h T D).

    First order in h. With the gradient's noise the injected noise is too much by
    h^2 (D + Q) V (D + Q)^T; `compensate` subtracts it, given V.

    Args:
        recipe: H, D and Q.
        gradient: an estimator of grad U.
        step_size: h, a positive number or a schedule.
        temperature: T, a number or a schedule; multiplies the noise variance and Gamma.
        compensate: subtract what the estimator's noise brings, h^2 P V P^T with P the position's
            columns of D + Q, from the injected noise (Eq. 9). Every variable that the gradient
            enters must have diffusion.
        clip: where that would need a negative variance, inject none in those directions
            instead of stopping; what remains is too hot there. Info.clipped says when.
        semi_implicit: update the auxiliary variables first and move the position with the
            new ones; stabler for recipes with a momentum, and second order in the position's
            marginal for underdamped Langevin dynamics.
        resample_every: draw a fresh momentum from the recipe's `auxiliary` before every step
            whose number is a multiple of this; None for never.

    Returns:
        A kernel whose states have the recipe's variables in `auxiliary`.

    Raises:
        TypeError: not an estimator, or an argument that is not a number.
        ValueError: a step size, temperature or period out of range.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> x = jnp.linspace(-1.0, 3.0, 100)
        >>> model = ex.Posterior(lambda m: -0.5 * m**2, lambda m, x: -0.5 * (x - m) ** 2, x)
        >>> recipe = ex.dynamics.langevin()  # H = U, D = 1, Q = 0
        >>> kernel = ex.euler_maruyama(recipe, ex.Minibatch(model, 10), 1e-3)  # which is sgld
        >>> samples = ex.sample(kernel, jnp.float32(1), 2000, key=jax.random.key(0), progress=False)
        >>> bool(abs(samples.position.mean() - 100 / 101) < 0.05)
        True

    Reference:
        Ma, Chen and Fox, A complete recipe for stochastic gradient MCMC, 2015, Eqs. (6), (9).
    """
    if not isinstance(recipe, Recipe):
        raise TypeError(f"recipe must be an ex.Recipe, not {recipe!r}.")
    if resample_every is not None:
        resample_every = whole_number("resample_every", resample_every, hint="None is for never.")
    flag("compensate", compensate)
    flag("clip", clip)
    flag("semi_implicit", semi_implicit)
    if clip and not compensate:
        raise ValueError(
            "clip=True says what to do where compensation asks for a negative variance, and there "
            "is none: try compensate=True with it, or leave it out."
        )
    return EulerMaruyama(
        gradient,
        as_schedule(step_size, "step_size"),
        as_schedule(temperature, "temperature", allow_zero=True),
        recipe,
        compensate=compensate,
        clip=clip,
        semi_implicit=semi_implicit,
        resample_every=resample_every,
    )
