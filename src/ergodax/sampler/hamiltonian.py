"""Hamiltonian Monte Carlo: exact, with full gradients."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.checks import real_number, whole_number
from ergodax.gradient.base import Estimate
from ergodax.gradient.full import FullGradient, exact_gradient
from ergodax.integrator.hamiltonian import (
    ConstantMass,
    Energies,
    Flow,
    HamiltonianKernel,
    Proposal,
    generalised_leapfrog,
    leapfrog,
    nested_leapfrog,
)
from ergodax.kernel import State, named
from ergodax.recipe.dynamics.riemannian import RiemannianEnergy, exact_metric
from ergodax.recipe.operators import as_definite
from ergodax.schedule import as_schedule
from ergodax.target.base import AbstractTarget


class HamiltonianMonteCarlo(HamiltonianKernel[ConstantMass]):
    """The kernel that `hmc` returns."""

    gradient: FullGradient

    def start(self, key: PRNGKeyArray, position: PyTree) -> Estimate:
        """The exact gradient."""
        return self.gradient.estimate(key, self.gradient.init(key, position), position)[0]

    def follow(
        self, kinetic: ConstantMass, state: State, momentum: PyTree, h: Array, temperature: Array
    ) -> Proposal:
        """Leapfrog."""
        x, here, steps = state.position, state.estimate, self.num_leapfrog_steps
        evaluate, start = self.gradient.target.value_and_gradient, (here.potential, here.gradient)
        y, r, end = leapfrog(evaluate, x, momentum, start, kinetic.mass, h, steps)
        rise = end[0] + kinetic(y, r, temperature) - start[0] - kinetic(x, momentum, temperature)
        estimate = Estimate(end[1], end[0], evaluations=here.evaluations)
        return Proposal(y, estimate, rise, here.evaluations * steps)


@named
def hmc(
    gradient: FullGradient | AbstractTarget,
    step_size: Any,
    *,
    num_leapfrog_steps: int | np.integer = 10,
    mass: Any = 1.0,
    temperature: Any = 1.0,
) -> HamiltonianMonteCarlo:
    """Hamiltonian Monte Carlo with a Metropolis test: no bias at any step size.

    State: position x. H = U + r^T M^-1 r / 2, D = 0, Q = [[0, -I], [I, 0]]. Update:
        r ~ N(0, T M);  (x', r') = num_leapfrog_steps leapfrog steps from (x, r);
        x+ = x' with probability min(1, exp(-(H' - H) / T)), else x

    Args:
        gradient: a target or posterior, or its ex.FullGradient: the test is invalid with a noisy
            gradient.
        step_size: h, a positive number or a schedule; about 0.5 in units of the posterior sd
            where the mass is the inverse covariance.
        num_leapfrog_steps: L, at least 1; costs L full gradients a step.
        mass: M: number, vector, matrix or operator, positive definite.
        temperature: T, a number or a schedule.

    Returns:
        A kernel with state.position; `auxiliary` is empty.

    Raises:
        TypeError: neither a target nor its exact gradient, or an argument is not a number.
        ValueError: a number out of range.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> x = jnp.linspace(-1.0, 3.0, 100)
        >>> model = ex.Posterior(lambda m: -0.5 * m**2, lambda m, x: -0.5 * (x - m) ** 2, x)
        >>> kernel = ex.hmc(model, 0.05, num_leapfrog_steps=5)
        >>> samples = ex.sample(kernel, jnp.float32(1), 2000, key=jax.random.key(0), progress=False)
        >>> bool(abs(samples.position.mean() - 100 / 101) < 0.05)
        True

    Reference:
        Neal, MCMC using Hamiltonian dynamics, 2011.
    """
    return HamiltonianMonteCarlo(
        gradient=exact_gradient(gradient, "hmc", "ex.sghmc"),
        step_size=as_schedule(step_size, "step_size"),
        temperature=temperature,
        kinetic=ConstantMass(as_definite(mass, "mass")),
        num_leapfrog_steps=whole_number("num_leapfrog_steps", num_leapfrog_steps),
    )


class RiemannianHamiltonianMonteCarlo(HamiltonianKernel[RiemannianEnergy]):
    """The kernel that `rmhmc` returns."""

    gradient: FullGradient
    tolerance: float | None = eqx.field(static=True)
    max_iterations: int = eqx.field(static=True)

    def start(self, key: PRNGKeyArray, position: PyTree) -> Estimate:
        """The exact gradient."""
        return self.gradient.estimate(key, self.gradient.init(key, position), position)[0]

    def follow(
        self,
        kinetic: RiemannianEnergy,
        state: State,
        momentum: PyTree,
        h: Array,
        temperature: Array,
    ) -> Proposal:
        """Generalised leapfrog."""
        x, here = state.position, state.estimate
        tolerance = self.tolerance
        if tolerance is None:
            tolerance = float(jnp.finfo(tree.result_dtype(x)).eps) ** 0.7
        evaluate, start = self.gradient.target.value_and_gradient, (here.potential, here.gradient)
        flow = Flow(evaluate, kinetic, temperature, tolerance, self.max_iterations)
        end = generalised_leapfrog(flow, x, momentum, start, h, self.num_leapfrog_steps)
        (potential, gradient), y = end.energies, end.position
        rise = potential + kinetic(y, end.momentum, temperature)
        rise = rise - start[0] - kinetic(x, momentum, temperature)
        # What can't be taken back is rejected.
        rise = jnp.where(end.reversible, rise, jnp.inf)
        estimate = Estimate(gradient, potential, evaluations=here.evaluations)
        return Proposal(y, estimate, rise, here.evaluations * end.num_steps)


@named
def rmhmc(
    gradient: FullGradient | AbstractTarget,
    step_size: Any,
    metric: Any,
    *,
    num_leapfrog_steps: int | np.integer = 10,
    temperature: Any = 1.0,
    tolerance: float | None = None,
    max_iterations: int | np.integer = 100,
) -> RiemannianHamiltonianMonteCarlo:
    """Riemannian manifold Hamiltonian Monte Carlo: no bias at any step size.

    State: position x. H = U + r^T G^-1 r / 2 + (T / 2) log det G with G = G(x), D = 0,
    Q = [[0, -I], [I, 0]], Gamma = 0. Update:
        r ~ N(0, T G(x));  (x', r') = num_leapfrog_steps steps from (x, r) of
            s  = r - h/2 dH/dx(x, s)                           (implicit)
            x' = x + h/2 (G^-1(x) + G^-1(x')) s                (implicit)
            r' = s - h/2 dH/dx(x', s)
        x+ = x' with probability min(1, exp(-(H' - H) / T)), else x

    The implicit equations are solved by fixed-point iteration. A trajectory is rejected if an
    iteration does not converge, if a step is not taken back to where it came from by the
    iterations of the reverse step, or if it diverges or leaves the region where G is
    positive definite. The map proposed is then its own inverse, with volume preserved, and the
    law exact up to the tolerance. Rejections of this kind have Info.acceptance 0; where they
    are frequent, take a smaller step.

    Second order in h in the energy. As stable as leapfrog with the local mass, where the
    iterations converge.

    Args:
        gradient: a target or posterior, or its ex.FullGradient: the test is invalid with a noisy
            gradient.
        step_size: h, a positive number or a schedule; about 0.5 where the metric is the local
            covariance.
        metric: function of the position that returns G^-1, the inverse metric: a number, a
            vector or tree like the position, a matrix or an operator; differentiable, and
            positive definite. Not an ex.PotentialMetric.
        num_leapfrog_steps: L, at least 1; costs L full gradients a step, and some tens of
            evaluations of the metric's derivative each.
        temperature: T, a number or a schedule; it stands before log det G as well.
        tolerance: of the iterations, relative to the norm of momentum or position; None for
            1e-5 in float32 and 1e-11 in float64.
        max_iterations: of one implicit equation.

    Returns:
        A kernel with state.position; `auxiliary` is empty.

    Raises:
        TypeError: neither a target nor its exact gradient, a metric that is not a function of the
            position alone, or an argument that is not a number.
        ValueError: a number out of range.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> target = ex.Target(lambda x: 0.5 * jnp.sum(x**2 / jnp.array([1.0, 4.0])))
        >>> metric = lambda x: ex.Diagonal(1.0 + x**2)  # G, the mass
        >>> kernel = ex.rmhmc(target, 0.3, metric, num_leapfrog_steps=5)
        >>> samples = ex.sample(kernel, jnp.zeros(2), 2_000, num_chains=4, key=jax.random.key(0),
        ...     progress=False)
        >>> bool(jnp.all(jnp.abs(samples.position.mean(axis=(0, 1))) < jnp.array([0.25, 0.5])))
        True

    Reference:
        Girolami and Calderhead, Riemann manifold Langevin and Hamiltonian Monte Carlo methods,
        2011.
    """
    if tolerance is not None:
        tolerance = real_number("tolerance", tolerance, above=0.0, below=1.0, hint="Try 1e-6.")
    return RiemannianHamiltonianMonteCarlo(
        gradient=exact_gradient(gradient, "rmhmc", "ex.sgrhmc"),
        step_size=as_schedule(step_size, "step_size"),
        temperature=temperature,
        kinetic=RiemannianEnergy(exact_metric(metric)),
        num_leapfrog_steps=whole_number("num_leapfrog_steps", num_leapfrog_steps),
        tolerance=tolerance,
        max_iterations=whole_number("max_iterations", max_iterations),
    )


class Parts(eqx.Module):
    """The two parts of the potential at a position, with their gradients; that of U; the cost."""

    slow: Energies
    fast: Energies
    gradient: PyTree
    evaluations: Int[Array, ""]

    @property
    def potential(self) -> Float[Array, ""]:
        """U."""
        return self.slow[0] + self.fast[0]


class SplitHamiltonianMonteCarlo(HamiltonianKernel[ConstantMass]):
    """The kernel that `split_hmc` returns."""

    slow: AbstractTarget
    fast: AbstractTarget
    num_inner_steps: int = eqx.field(static=True)

    def start(self, key: PRNGKeyArray, position: PyTree) -> Parts:
        """Both parts."""
        for part in (self.slow, self.fast):
            part.check(position)
        slow, fast = self.slow.value_and_gradient(position), self.fast.value_and_gradient(position)
        return self._parts(slow, fast)

    def follow(
        self, kinetic: ConstantMass, state: State, momentum: PyTree, h: Array, temperature: Array
    ) -> Proposal:
        """Nested leapfrog."""
        x, here = state.position, state.estimate
        y, r, ends = nested_leapfrog(
            self.slow.value_and_gradient,
            self.fast.value_and_gradient,
            x,
            momentum,
            (here.slow, here.fast),
            kinetic.mass,
            h,
            self.num_leapfrog_steps,
            self.num_inner_steps,
        )
        there = self._parts(*ends)
        rise = there.potential - here.potential
        rise = rise + kinetic(y, r, temperature) - kinetic(x, momentum, temperature)
        return Proposal(y, there, rise, there.evaluations)

    def _parts(self, slow: Energies, fast: Energies) -> Parts:
        each = self.slow.evaluations + self.num_inner_steps * self.fast.evaluations
        cost = jnp.int32(self.num_leapfrog_steps * each)
        return Parts(slow, fast, tree.add(slow[1], fast[1]), cost)


@named
def split_hmc(
    slow: AbstractTarget | FullGradient,
    fast: AbstractTarget | FullGradient,
    step_size: Any,
    *,
    num_leapfrog_steps: int | np.integer = 10,
    num_inner_steps: int | np.integer = 10,
    mass: Any = 1.0,
    temperature: Any = 1.0,
) -> SplitHamiltonianMonteCarlo:
    """Hamiltonian Monte Carlo on a sum of two potentials, with short steps for one of them alone.

    State: position x. H = U_slow + U_fast + r^T M^-1 r / 2, D = 0, Q = [[0, -I], [I, 0]]. Update:
        r ~ N(0, T M);  then num_leapfrog_steps times:
            r <- r - h grad U_slow(x) / 2
            num_inner_steps leapfrog steps of size h / num_inner_steps with U_fast from (x, r)
            r <- r - h grad U_slow(x) / 2
        x+ = x' with probability min(1, exp(-(H' - H) / T)), else x
    It pays where the steep part is the cheap one: few rows of the data that bend sharply, a prior
    that is tight. No bias at any step size.

    Args:
        slow: U_slow, any target or its ex.FullGradient.
        fast: U_fast, likewise, on the same positions.
        step_size: h of the outer steps, a positive number or a schedule; about 0.5 in units of the
            scale of U_slow.
        num_leapfrog_steps: outer steps, at least 1; a gradient of U_slow each.
        num_inner_steps: inner steps in each, at least 1; a gradient of U_fast each.
        mass: M: number, vector, matrix or operator, positive definite.
        temperature: T, a number or a schedule.

    Returns:
        A kernel with state.position; `auxiliary` is empty.

    Raises:
        TypeError: a part is not a target, or an argument is not a number.
        ValueError: a number out of range.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> target = ex.Target(lambda x: 0.5 * jnp.sum(x**2 / jnp.array([1.0, 4.0])))
        >>> fast = ex.Target(lambda x: 50.0 * x[0] ** 2)  # cheap, and stiff
        >>> kernel = ex.split_hmc(target, fast, 0.3, num_leapfrog_steps=5, num_inner_steps=5)
        >>> samples = ex.sample(kernel, jnp.zeros(2), 2_000, num_chains=4, key=jax.random.key(0),
        ...     progress=False)
        >>> bool(jnp.all(jnp.abs(samples.position.mean(axis=(0, 1))) < jnp.array([0.25, 0.5])))
        True

    Reference:
        Sexton and Weingarten, Hamiltonian evolution for the hybrid Monte Carlo algorithm, 1992;
        Shahbaba, Lan, Johnson and Neal, Split Hamiltonian Monte Carlo, 2014.
    """
    return SplitHamiltonianMonteCarlo(
        slow=_target(slow, "slow"),
        fast=_target(fast, "fast"),
        step_size=as_schedule(step_size, "step_size"),
        temperature=temperature,
        kinetic=ConstantMass(as_definite(mass, "mass")),
        num_leapfrog_steps=whole_number("num_leapfrog_steps", num_leapfrog_steps),
        num_inner_steps=whole_number("num_inner_steps", num_inner_steps),
    )


def _target(part: Any, name: str) -> AbstractTarget:
    """A target, or that of a FullGradient."""
    part = part.target if isinstance(part, FullGradient) else part
    if not isinstance(part, AbstractTarget):
        raise TypeError(f"{name} must be an ex.Target or ex.Posterior, not {type(part).__name__}.")
    return part
