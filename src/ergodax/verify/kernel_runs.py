"""Short runs of a kernel from exact draws: how expectations change in one step and in many."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ergodax import tree
from ergodax.target.analytic import AnalyticTarget
from ergodax.verify.kernel_functions import Given, Moments

DRAWS = 2**13  # at once, while they are small
NUMBERS = 2**20  # coordinates at once


class Trial(eqx.Module):
    """A kernel, where it starts, and what is watched.

    Attributes:
        kernel: with `init` and `step`.
        source: the law that the starts are drawn from.
        functions: of a position.
        temperature: what the kinetic temperature is at the start, on average.
        prepare: (key, state) -> state, after `init`; or None.
    """

    kernel: Any
    source: AnalyticTarget
    functions: Moments | Given
    temperature: Float[Array, ""]
    prepare: Callable[[Any, Any], Any] | None

    def start(self, key: PRNGKeyArray, position: Float[Array, " d"]) -> Any:
        """The first state."""
        key_init, key_prepare = jax.random.split(key)
        state = self.kernel.init(key_init, position)
        return state if self.prepare is None else self.prepare(key_prepare, state)

    def step(self, key: PRNGKeyArray, state: Any) -> tuple[Any, Float[Array, " functions"]]:
        """A step, and the functions after it; the kinetic temperature last, if Info has one."""
        state, info = self.kernel.step(key, state)
        values = self.functions(tree.thaw(state.position))
        kinetic = getattr(info, "kinetic_temperature", None)
        return state, values if kinetic is None else _append(values, kinetic)

    def tells_kinetic_temperature(self, key: PRNGKeyArray, position: Float[Array, " d"]) -> bool:
        """Whether Info has a kinetic temperature; nothing is computed."""
        values = jax.eval_shape(lambda k, x: self.step(k, self.start(k, x))[1], key, position)
        return values.size > len(self.functions.names)

    def run(
        self, key: PRNGKeyArray, position: Float[Array, " d"], count: Int[Array, ""]
    ) -> tuple[Float[Array, " functions"], Float[Array, "2 functions"]]:
        """The functions at the start, and how they change in one step and in `count`."""
        key_start, key_steps = jax.random.split(key)

        def one(t: Int[Array, ""], carry: tuple) -> tuple:
            state, first, _ = carry
            state, last = self.step(jax.random.fold_in(key_steps, t), state)
            return state, jnp.where(t == 0, last, first), last

        before = self.functions(position)
        if self.tells_kinetic_temperature(key, position):
            before = _append(before, self.temperature)
        start = (self.start(key_start, position), before, before)
        _, first, last = lax.fori_loop(0, count, one, start)
        return before, jnp.stack([first, last]) - before[None]


def _append(values: Float[Array, " n"], value: Any) -> Float[Array, " functions"]:
    return jnp.append(values, tree.cast(value, values))


class Change(NamedTuple):
    """Over all runs at one step size.

    Attributes:
        spread: the standard deviation of each function at the start.
        mean: the change in one step, and in all.
        error: the standard error of `mean`.
    """

    spread: Float[np.ndarray, " functions"]
    mean: Float[np.ndarray, "2 functions"]
    error: Float[np.ndarray, "2 functions"]


class _Moments(NamedTuple):
    mean: Any
    variance: Any


def measure(trial: Trial, key: PRNGKeyArray, count: int, num_draws: int) -> Change | None:
    """Run from `num_draws` exact draws or a few more, chunk by chunk.

    None, and no more chunks, where a moment is not finite: it has no part in any arithmetic.
    """
    size = int(np.clip(NUMBERS // trial.source.mean.size, 1, min(DRAWS, num_draws)))
    chunks, parts = -(-num_draws // size), []
    for c in range(chunks):
        parts.append(_chunk(trial, jax.random.fold_in(key, c), jnp.int32(count), size))
        if not all(np.isfinite(moment).all() for part in parts[-1] for moment in part):
            return None
    before, change = (_pooled(part) for part in zip(*parts, strict=True))
    error = np.sqrt(change.variance / (chunks * size))
    return Change(np.sqrt(before.variance), change.mean, error)


@eqx.filter_jit
def _chunk(
    trial: Trial, key: PRNGKeyArray, count: Int[Array, ""], size: int
) -> tuple[_Moments, _Moments]:
    key_draws, key_runs = jax.random.split(key)
    positions = trial.source.sample(key_draws, size)
    keys = jax.random.split(key_runs, size)
    results = jax.vmap(trial.run, in_axes=(0, 0, None))(keys, positions, count)
    before, change = (_Moments(x.mean(axis=0), x.var(axis=0)) for x in results)
    return before, change


def _pooled(parts: Sequence[_Moments]) -> _Moments:
    """The moments of chunks of equal size, taken together, in double precision."""
    means = np.array([part.mean for part in parts], float)
    within = np.array([part.variance for part in parts], float)
    return _Moments(means.mean(axis=0), within.mean(axis=0) + means.var(axis=0))
