"""Delayed acceptance: steps on a cheap surrogate, one Metropolis test by the whole target."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.checks import whole_number
from ergodax.exact.condensed import Condensed
from ergodax.gradient.full import check_target
from ergodax.kernel import Info, Kernel, State, check_kernel, named
from ergodax.target.base import AbstractTarget


class DelayedAcceptance(Kernel):
    """The kernel that `delayed_acceptance` returns."""

    target: AbstractTarget
    surrogate: AbstractTarget
    inner: Any
    num_inner_steps: int = eqx.field(static=True)

    def init(self, key: PRNGKeyArray, position: PyTree) -> State:
        """`gradient` is the inner kernel's state, the correction there, and the potential."""
        self.target.check(position)
        inner = self.inner.init(key, position)
        correction = self._correction(position)
        kept = inner, correction, self.surrogate.potential(position) + correction
        return State(position, {}, kept, None, jnp.int32(0))

    def step(self, key: PRNGKeyArray, state: State) -> tuple[State, Info]:
        """Inner steps, then accept where they led or stay."""
        key_inner, key_test = jax.random.split(key)

        def one(inner: Any, key: PRNGKeyArray) -> tuple[Any, Any]:
            inner, told = self.inner.step(key, inner)
            return inner, (told.evaluations, told)

        keys = jax.random.split(key_inner, self.num_inner_steps)
        inner, (evaluations, told) = lax.scan(one, state.gradient[0], keys)
        steps = getattr(inner, "step", None)
        told = jax.tree.map(lambda x: x[-1], told)  # of the last one
        correction = self._correction(inner.position)
        rise = correction - state.gradient[1]
        # A proposal outside the finite numbers is rejected, as if its energy were infinite.
        rise = jnp.where(jnp.isfinite(rise), rise, jnp.inf)
        acceptance = jnp.exp(-jnp.maximum(rise, 0.0))
        accepted = jax.random.uniform(key_test, dtype=acceptance.dtype) < acceptance
        inner, correction, potential = jax.tree.map(
            lambda new, old: jnp.where(accepted, new, old),
            (inner, correction, told.potential + correction),
            state.gradient,
        )
        if steps is not None:  # else a schedule would depend on what was accepted
            inner = eqx.tree_at(lambda s: s.step, inner, steps)
        info = Info(
            step_size=told.step_size,
            potential=potential,
            gradient_norm=told.gradient_norm,
            finite=tree.all_finite(inner.position),
            evaluations=jnp.sum(evaluations, dtype=jnp.int32) + jnp.int32(self.target.evaluations),
            kinetic_temperature=told.kinetic_temperature,
            acceptance=acceptance,
            accepted=accepted,
        )
        kept = inner, correction, potential
        return State(inner.position, {}, kept, None, state.step + 1), info

    def _correction(self, position: PyTree) -> Float[Array, ""]:
        if isinstance(self.surrogate, Condensed):
            return self.surrogate.correction(position)
        return self.target.potential(position) - self.surrogate.potential(position)


@named
def delayed_acceptance(
    target: AbstractTarget,
    surrogate: AbstractTarget,
    inner: Any,
    *,
    num_inner_steps: int | np.integer = 1,
) -> DelayedAcceptance:
    """Surrogate transitions: no bias, however wrong the surrogate, and the target only at the end.

    State: that of the inner kernel, which is reversible for exp(-U*), U* the surrogate's potential.
    H, D, Q are the inner kernel's. Update:
        y = num_inner_steps inner steps from x
        x+ = y with probability min(1, exp(-[U(y) - U*(y)] + [U(x) - U*(x)])), else x
    The better the surrogate the more is accepted: 2 Phi(-s / sqrt 2) or so, where U - U* has the
    standard deviation s over the posterior. Inner steps that leave exp(-U*) invariant but are not
    reversible (any without a Metropolis test, for one) make the law wrong.

    Args:
        target: U, any target; one potential a step, N evaluations where there are data.
        surrogate: U*, such as `condense` returns.
        inner: a kernel on the surrogate, such as ex.hmc(ex.FullGradient(surrogate), ...).
        num_inner_steps: k; as many as cost about what the target's potential does.

    Returns:
        A kernel with state.position; Info's `accepted` is that of the test by the target, and its
        `potential` is U, less U(c) + log_prior(c) where the surrogate is condensed at c.

    Raises:
        TypeError: something that is not a target, a kernel, or an integer.
        ValueError: the inner kernel samples another target or at a temperature other than 1, the
            surrogate is condensed from another one, or num_inner_steps is less than 1.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> target = ex.Target(lambda x: 0.5 * jnp.sum(x**2 / jnp.array([1.0, 4.0])))
        >>> near = ex.Target(lambda x: 0.55 * jnp.sum(x**2 / jnp.array([1.0, 4.0])))  # cheap
        >>> inner = ex.hmc(near, 0.5, num_leapfrog_steps=4)
        >>> kernel = ex.exact.delayed_acceptance(target, near, inner)
        >>> samples = ex.sample(kernel, jnp.zeros(2), 2_000, num_chains=4, key=jax.random.key(0),
        ...     progress=False)
        >>> bool(jnp.all(jnp.abs(samples.position.mean(axis=(0, 1))) < jnp.array([0.25, 0.5])))
        True

    Reference:
        Liu, Monte Carlo strategies in scientific computing, 2001, section 9.4.3; Christen and Fox,
        Markov chain Monte Carlo using an approximation, 2005.
    """
    for name, value in (("target", target), ("surrogate", surrogate)):
        check_target(value, name)
    inner = check_kernel(inner)
    sampled = getattr(getattr(inner, "gradient", None), "target", surrogate)
    if sampled is not surrogate:
        raise ValueError(
            "inner must sample the surrogate, but its gradient is that of another target. Try "
            "ex.hmc(ex.FullGradient(surrogate), ...)."
        )
    schedule = getattr(inner, "temperature", None)
    temperature = 1.0 if schedule is None else schedule(jnp.int32(0))
    if not tree.is_traced(temperature) and float(temperature) != 1.0:
        raise ValueError(
            "inner must sample the surrogate at temperature 1, as the test by the target takes it "
            f"to do, not at {float(temperature):g}. Leave its temperature out."
        )
    if isinstance(surrogate, Condensed) and surrogate.posterior is not target:
        raise ValueError(
            "target must be the posterior that the surrogate is condensed from, but is another "
            "one. Try surrogate.posterior."
        )
    return DelayedAcceptance(
        target, surrogate, inner, whole_number("num_inner_steps", num_inner_steps)
    )
