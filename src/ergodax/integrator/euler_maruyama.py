"""The discretisation that runs any recipe."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.gradient.base import Estimate, GradientEstimator, check_estimator
from ergodax.kernel import Info, Kernel, State
from ergodax.recipe.compensation import compensated_noise
from ergodax.recipe.operators import Operator
from ergodax.recipe.recipe import Recipe, Variables
from ergodax.schedule import as_schedule
from ergodax.schedule.constant import Schedule


class EulerMaruyama(Kernel):
    """The kernel that `euler_maruyama` returns."""

    recipe: Recipe
    gradient: GradientEstimator
    step_size: Schedule
    temperature: Schedule
    compensate: bool = eqx.field(static=True)
    clip: bool = eqx.field(static=True)
    semi_implicit: bool = eqx.field(static=True)

    def init(self, key: PRNGKeyArray, position: PyTree) -> State:
        """Draw the auxiliary variables and prepare the estimator."""
        position = tree.freeze(position)
        key_auxiliary, key_gradient = jax.random.split(key)
        auxiliary = self.recipe.auxiliary(key_auxiliary, position)
        # A recipe draws its auxiliary variables for T = 1; momenta scale with sqrt(T).
        if "momentum" in auxiliary:
            root = jnp.sqrt(self.temperature(jnp.int32(0)))
            auxiliary = {**auxiliary, "momentum": tree.scale(root, auxiliary["momentum"])}
        gradient = self.gradient.init(key_gradient, position)
        return State(position, auxiliary, gradient, None, jnp.int32(0))

    def step(self, key: PRNGKeyArray, state: State) -> tuple[State, Info]:
        """z + h (-(D + Q) grad H + T Gamma) + N(0, 2 h T D)."""
        key_gradient, key_noise, key_correction = jax.random.split(key, 3)
        h, temperature = self.step_size(state.step), self.temperature(state.step)
        estimate, gradient = self.gradient.estimate(key_gradient, state.gradient, state.position)
        z = {"position": state.position, **state.auxiliary}
        noise, feasible = self._noise(key_noise, z, estimate, h, temperature)
        key_early, key_late = jax.random.split(key_correction)
        increment = self._increment(z, estimate, h, temperature, key_early)
        new = _advance(z, increment, noise)
        if self.semi_implicit:
            # The position moves with the new auxiliary variables; the blocks are still those
            # of the old position, and the gradient is the one already estimated.
            half = {**new, "position": z["position"]}
            late = self._increment(half, estimate, h, temperature, key_late)
            new["position"] = _advance(half, late, noise)["position"]
        position, auxiliary = new.pop("position"), new
        info = self._info(position, auxiliary, estimate, h, feasible)
        return State(position, auxiliary, gradient, None, state.step + 1), info

    def _increment(
        self, z: Variables, estimate: Estimate, h: Any, temperature: Any, key: PRNGKeyArray
    ) -> Variables:
        drift = self.recipe.drift(z, self.recipe.gradient(z, estimate.gradient))
        for name, gamma in self.recipe.correction(z, key).items():
            drift[name] = tree.add_scaled(drift[name], temperature, gamma)
        return {name: tree.scale(h, value) for name, value in drift.items()}

    def _noise(
        self, key: PRNGKeyArray, z: Variables, estimate: Estimate, h: Any, temperature: Any
    ) -> tuple[Variables, Bool[Array, ""] | None]:
        blocks = self.recipe.diffusion_at(z)
        normal = tree.normal_like(key, {name: z[name] for name in blocks})
        entered, column = self._gradient_column(z, blocks) if self.compensate else (None, None)
        noise, feasible = {}, None
        for name, block in blocks.items():
            if name != entered or column is None:
                root = jnp.sqrt(2.0 * h * temperature)
                noise[name] = tree.scale(root, block.sqrt_mv(normal[name]))
                continue
            if estimate.covariance is None:
                raise ValueError(
                    "compensate=True needs an estimator that knows its covariance, and "
                    f"{type(self.gradient).__name__} does not. Wrap it: "
                    "ex.KnownCovariance(gradient, covariance)."
                )
            noise[name], feasible = compensated_noise(
                block, column, estimate.covariance, h, temperature, normal[name]
            )
            if not self.clip:
                # An infeasible step must not pass for a right one: the driver stops at it.
                noise[name] = tree.scale(jnp.where(feasible, 1.0, jnp.nan), noise[name])
        return noise, feasible

    def _gradient_column(self, z: Variables, blocks: dict[str, Operator]) -> tuple[str, Operator]:
        """The one block of D + Q through which the gradient's noise enters, and its row."""
        entries = [("position", blocks["position"])] if "position" in blocks else []
        entries += [
            (row, field(z))
            for row, column, _, field in self.recipe.curl_blocks(z)
            if column == "position"
        ]
        if len(entries) != 1 or entries[0][0] not in blocks:
            rows = sorted({row for row, _ in entries})
            raise ValueError(
                "compensate=True needs a recipe whose gradient enters one variable, which has "
                f"diffusion; here it enters {rows} and diffusion is in {sorted(blocks)}."
            )
        return entries[0]

    def _info(
        self, position: PyTree, auxiliary: Variables, estimate: Estimate, h: Any, feasible: Any
    ) -> Info:
        kinetic = None
        if "momentum" in auxiliary:
            z = {"position": position, **auxiliary}
            velocity = jax.grad(self.recipe.energy)(z)["momentum"]
            momentum = auxiliary["momentum"]
            kinetic = tree.dot(momentum, velocity) / tree.size(momentum)
        return Info(
            step_size=h,
            potential=estimate.potential,
            gradient_norm=tree.norm(estimate.gradient),
            finite=tree.all_finite(position),
            evaluations=estimate.evaluations,
            kinetic_temperature=kinetic,
            feasible=feasible,
        )


def _advance(z: Variables, increment: Variables, noise: Variables) -> Variables:
    moved = {name: tree.add(z[name], increment[name]) for name in z}
    return {n: tree.add(moved[n], noise[n]) if n in noise else moved[n] for n in z}


def euler_maruyama(
    recipe: Recipe,
    gradient: GradientEstimator,
    step_size: Any,
    *,
    temperature: Any = 1.0,
    compensate: bool = False,
    clip: bool = False,
    semi_implicit: bool = False,
) -> EulerMaruyama:
    """Run any recipe: z+ = z + h (-(D + Q) grad H + T Gamma) + N(0, 2 h T D).

    First order in h. With the gradient's noise the injected noise is too much by
    h^2 (D + Q) V (D + Q)^T; `compensate` subtracts it, given V.

    Args:
        recipe: H, D and Q.
        gradient: an estimator of grad U.
        step_size: h, a positive number or a schedule.
        temperature: T, a number or a schedule; multiplies the noise variance and Gamma.
        compensate: subtract the estimator's covariance from the injected noise (Eq. 9). For
            recipes whose gradient enters one block.
        clip: where that would need a negative variance, inject none in those directions
            instead of stopping; what remains is too hot there.
        semi_implicit: update the auxiliary variables first and move the position with the
            new ones; stabler for recipes with a momentum, and second order in the position's
            marginal for underdamped Langevin dynamics.

    Returns:
        A kernel whose states have the recipe's variables in `auxiliary`.

    Raises:
        TypeError: not an estimator, or a step size that is not a number.
        ValueError: a step size or temperature out of range.

    Reference:
        Ma, Chen and Fox, A complete recipe for stochastic gradient MCMC, 2015, Eqs. (6), (9).
    """
    if not isinstance(recipe, Recipe):
        raise TypeError(f"recipe must be an ex.Recipe, not {recipe!r}.")
    return EulerMaruyama(
        recipe,
        check_estimator(gradient),
        as_schedule(step_size, "step_size"),
        as_schedule(temperature, "temperature", allow_zero=True),
        compensate,
        clip,
        semi_implicit,
    )
