"""Summaries of a run that are kept while it runs, so that no draw need be stored."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.checks import callable_function, whole_number
from ergodax.control_flow import when
from ergodax.kernel import Kernel, check_kernel
from ergodax.stats.accumulators import Accumulator, Moments, Quantiles
from ergodax.stats.draws import check_unweighted

__all__ = ["Accumulator", "Moments", "Quantiles", "accumulate"]


class AccumulatingState(eqx.Module):
    """The state of the kernel inside, the summaries by name, and the steps taken."""

    inner: Any
    summaries: dict[str, Any]
    step: Int[Array, ""]

    @property
    def position(self) -> PyTree:
        """The position of the kernel inside."""
        return self.inner.position


class Accumulating(Kernel):
    """A kernel and what is kept of its positions; see `accumulate`."""

    kernel: Any
    accumulators: dict[str, Accumulator]
    after: Int[Array, ""] = eqx.field(converter=jnp.int32)
    every: Int[Array, ""] = eqx.field(converter=jnp.int32)
    function: Callable[[PyTree], PyTree] | None = None

    def init(self, key: PRNGKeyArray, position: PyTree) -> AccumulatingState:
        """The first state; nothing is counted yet."""
        inner = self.kernel.init(key, position)
        values = self._values(inner)
        summaries = {name: a.init(values) for name, a in self.accumulators.items()}
        return AccumulatingState(inner, summaries, jnp.int32(0))

    def step(self, key: PRNGKeyArray, state: AccumulatingState) -> tuple[AccumulatingState, Any]:
        """A step of the kernel inside; the new position is counted if its turn has come."""
        inner, info = self.kernel.step(key, state.inner)
        check_unweighted(info, "online.accumulate")
        taken = state.step + 1 - self.after

        def counted() -> dict[str, Any]:
            values = self._values(inner)
            return {n: a.update(state.summaries[n], values) for n, a in self.accumulators.items()}

        due = (taken > 0) & (taken % self.every == 0)
        summaries = when(due, counted, lambda: state.summaries)
        return AccumulatingState(inner, summaries, state.step + 1), info

    def results(self, samples: PyTree) -> dict[str, dict[str, Any]]:
        """The summaries of a run, all chains together.

        Args:
            samples: what `ex.sample` returned for this kernel, or a final state.

        Returns:
            For each accumulator, its arrays by name, in the structure of the position (or of what
            `function` makes of it).
        """
        state = getattr(samples, "final_state", samples)
        one = jax.tree.map(lambda x: x[0], state.inner.position)
        _, unravel = tree.ravel(self._of(one))
        out: dict[str, dict[str, Any]] = {}
        for name, accumulator in self.accumulators.items():
            arrays = accumulator.result(state.summaries[name])
            out[name] = {k: _in_structure(unravel, v) for k, v in arrays.items()}
        return out

    def _of(self, position: PyTree) -> PyTree:
        given = tree.thaw(position)
        return tree.hide(self.function(given) if self.function else given)

    def _values(self, inner: PyTree) -> Float[Array, " d"]:
        return tree.ravel(self._of(inner.position))[0]


def accumulate(
    kernel: Any,
    *,
    after: int | np.integer = 0,
    every: int | np.integer = 1,
    function: Callable[[PyTree], PyTree] | None = None,
    **accumulators: Any,
) -> Accumulating:
    """The same sampler, which keeps summaries of every position that it passes.

    With `thin` as long as the run only the last position is stored, and the summaries have seen
    all of them: nothing grows with the length of the run.

    Args:
        kernel: any kernel.
        after: steps that are not counted; those of `ex.sample`'s burn_in never are.
        every: count every so many-th position.
        function: of the position; its values are summarised instead.
        accumulators: by name, such as moments=ex.online.Moments().

    Returns:
        A kernel; its `results(samples)` gives the summaries.

    Raises:
        ValueError: no accumulator, a negative `after`, or an `every` below 1.
        TypeError: not a kernel, or not an accumulator.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> target = ex.targets.gaussian(jnp.zeros(2), jnp.eye(2))
        >>> inside = ex.langevin(ex.FullGradient(target), 0.5, 1.0)
        >>> kernel = ex.online.accumulate(inside, after=100, moments=ex.online.Moments())
        >>> run = dict(thin=20_000, key=jax.random.key(0), progress=False)
        >>> samples = ex.sample(kernel, jnp.zeros(2), 20_000, **run)
        >>> moments = kernel.results(samples)["moments"]
        >>> moments["mean"].shape
        (2,)
    """
    if not accumulators:
        raise ValueError("name at least one accumulator, such as moments=ex.online.Moments().")
    for name, value in accumulators.items():
        if not isinstance(value, Accumulator):
            raise TypeError(
                f"{name} must be an accumulator such as ex.online.Moments(), not {value!r}."
            )
    after = whole_number("after", after, at_least=0)
    every = whole_number("every", every)
    if function is not None:
        callable_function("function", function)
    return Accumulating(check_kernel(kernel), accumulators, after, every, function)


def _in_structure(unravel: Callable[..., Any], values: np.ndarray) -> Any:
    """Arrays of shape (d, ...) as a tree like the position, further axes last."""
    flat = np.moveaxis(values.reshape(values.shape[0], -1), 1, 0)
    parts = [jax.tree.map(np.asarray, tree.thaw(unravel(jnp.asarray(row)))) for row in flat]
    if values.ndim == 1:
        return parts[0]
    return jax.tree.map(lambda *x: np.stack(x, axis=-1), *parts)
