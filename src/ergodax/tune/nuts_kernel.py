"""The no-U-turn sampler of BlackJAX as a kernel."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.kernel import Info, Kernel
from ergodax.target.base import AbstractTarget
from ergodax.tune.jumps import Jumps

MOST_DOUBLINGS = 10  # of a trajectory


class NutsState(eqx.Module):
    """BlackJAX's state as a state of ours."""

    inner: Any

    @property
    def position(self) -> PyTree:
        """Where the chain stands."""
        return self.inner.position


class Nuts(Kernel):
    """NUTS with unit mass, for coordinates whose scale is 1; up to 2^max_doublings leapfrogs.

    Where several modes are known, a step is a trajectory and a jump.

    Reference:
        Hoffman and Gelman, The No-U-Turn sampler, 2014; Cabezas et al., BlackJAX: composable
        Bayesian inference in JAX, 2024.
    """

    target: AbstractTarget
    step_size: Float[Array, ""]
    max_doublings: int = eqx.field(static=True, default=MOST_DOUBLINGS)
    jumps: Jumps | None = None

    def _algorithm(self, position: PyTree) -> Any:
        import blackjax

        unit = jnp.ones(tree.size(position), self.step_size.dtype)
        return blackjax.nuts(
            _log_density(self.target), self.step_size, unit, max_num_doublings=self.max_doublings
        )

    def init(self, key: PRNGKeyArray, position: PyTree) -> NutsState:
        """BlackJAX's state at the position, in JAX's default precision, which BlackJAX wants."""
        with jax.numpy_dtype_promotion("standard"):
            default = jax.tree.map(lambda x: x.astype(float), tree.freeze(position))
            return NutsState(self._algorithm(default).init(default))

    def step(self, key: PRNGKeyArray, state: NutsState) -> tuple[NutsState, Info]:
        """One trajectory, and a jump where there are several modes."""
        key, key_jump = (key, key) if self.jumps is None else jax.random.split(key)
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            algorithm = self._algorithm(state.position)
            inner, told = algorithm.step(key, state.inner)
            if self.jumps is not None:
                inner, _ = self.jumps.step(key_jump, inner, algorithm.init)
        info = Info(
            step_size=self.step_size,
            potential=-inner.logdensity,
            gradient_norm=tree.norm(inner.logdensity_grad),
            finite=tree.all_finite(inner.position),
            evaluations=jnp.asarray(told.num_integration_steps, jnp.int32),
            acceptance=told.acceptance_rate,
            accepted=~told.is_divergent,
        )
        return NutsState(inner), info


def _log_density(target: AbstractTarget) -> Any:
    return lambda x: -target.potential(x).astype(float)
