"""Batch gradients about a snapshot of the chain that is renewed from time to time."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.checks import whole_number
from ergodax.control_flow import when
from ergodax.data.arrays import take
from ergodax.data.batching import Batching
from ergodax.gradient.base import Estimate
from ergodax.gradient.batches import BatchEstimator, check_resident, checked_batching
from ergodax.gradient.expansion import Expansion, about, about_with_scores, expand, remainders
from ergodax.target.posterior import Posterior


class SVRGState(eqx.Module):
    """The state of `SVRG`.

    Attributes:
        batching: the state of the batching scheme.
        expansion: of the log-likelihood at the snapshot.
        step: how many estimates there have been.
    """

    batching: Any
    expansion: Expansion
    step: Int[Array, ""]


class SVRG(BatchEstimator):
    """The exact gradient at a snapshot, and a batch's estimate of the difference from there.

    With c the snapshot, f_i the score of example i and G = sum_i f_i(c),
        -grad log_prior(x) - G - (N/n) sum over the batch of [f_i(x) - f_i(c)].
    At the first estimate, and at every `period`-th after it, the snapshot becomes the present
    position, where the estimate is exact, and G is computed anew in a pass over all data. In
    between the noise grows with the distance that the chain has gone. Unbiased; the potential is
    estimated likewise, by the linear Taylor polynomial of the log-likelihood. Needs no mode, and
    follows the chain where ex.ControlVariate's centre would be left behind.

    An estimate costs 2 n evaluations, and N more where the snapshot is renewed.

    Args:
        posterior: a Posterior.
        batch_size: n, examples in a batch.
        period: estimates from one snapshot to the next. N / n makes the passes cost half as
            much as the batches.
        replace: draw rows with replacement.
        batching: another scheme of `ergodax.data`; overrides `replace`.
        chunk: how many examples are computed at a time in the pass over the data, which bounds
            its memory.

    Raises:
        TypeError: not a Posterior, one of a source, or a number that must be an integer and is
            not.
        ValueError: a batch size outside [1, N], or a period or chunk less than 1.

    Reference:
        Dubey, Reddi, Poczos, Smola, Xing and Williamson, Variance reduction in stochastic
        gradient Langevin dynamics, 2016.
    """

    target: Posterior
    batch_size: int = eqx.field(static=True)
    batching: Batching
    period: Int[Array, ""]
    chunk: int = eqx.field(static=True)

    def __init__(
        self,
        posterior: Posterior,
        batch_size: int | np.integer,
        period: int | np.integer,
        replace: bool = False,
        *,
        batching: Batching | None = None,
        chunk: int | np.integer = 1024,
    ) -> None:
        check_resident(
            posterior, "SVRG, which passes over them from time to time,", "ex.ControlVariate"
        )
        self.batching = checked_batching(posterior, batch_size, replace, batching)
        self.target, self.batch_size = posterior, int(batch_size)
        example = max(1, posterior.num_data // self.batch_size)
        self.period = jnp.int32(whole_number("period", period, hint=f"Try {example}."))
        self.chunk = whole_number("chunk", chunk, hint="Try 1024.")

    @property
    def evaluations_per_example(self) -> int:
        """2: at the position and at the snapshot."""
        return 2

    def init(self, key: PRNGKeyArray, position: PyTree) -> SVRGState:
        """No snapshot yet; the first estimate takes it."""
        self.target.check(position)
        nothing = jnp.zeros((), tree.result_dtype(position))
        expansion = Expansion(tree.zeros_like(position), nothing, tree.zeros_like(position))
        batching = self.batching.init(key, self.target.num_data)
        return SVRGState(batching, expansion, jnp.int32(0))

    def estimate(
        self, key: PRNGKeyArray, state: SVRGState, position: PyTree
    ) -> tuple[Estimate, SVRGState]:
        """The gradient on a fresh batch, about a new snapshot where it is due."""
        batch, state, cost = self._next(key, state, position)
        potential, gradient = about(state.expansion, self.target, position, batch)
        return Estimate(gradient, potential, evaluations=cost), state

    def estimate_with_scores(
        self, key: PRNGKeyArray, state: SVRGState, position: PyTree
    ) -> tuple[Estimate, PyTree, SVRGState]:
        """What `estimate` returns, and the batch's scores, the differences from the snapshot."""
        batch, state, cost = self._next(key, state, position)
        found = about_with_scores(state.expansion, self.target, position, batch)
        potential, gradient, scores = found
        return Estimate(gradient, potential, evaluations=cost), scores, state

    def scores_of(self, state: SVRGState, position: PyTree, rows: Int[Array, " k"]) -> PyTree:
        """f_i(x) - f_i(c) for these rows: 0 where a new snapshot is due."""
        centre = jax.tree.map(
            lambda x, c: jnp.where(self._due(state), x, c), position, state.expansion.centre
        )
        expansion = eqx.tree_at(lambda e: e.centre, state.expansion, centre)
        return remainders(expansion, self.target, position, take(self.target.data, rows))[1]

    def _due(self, state: SVRGState) -> Bool[Array, ""]:
        return state.step % self.period == 0

    def _next(
        self, key: PRNGKeyArray, state: SVRGState, position: PyTree
    ) -> tuple[PyTree, SVRGState, Int[Array, ""]]:
        """A batch, the next state with a new snapshot where it is due, and their cost."""
        due = self._due(state)

        def renewed() -> Expansion:
            return expand(self.target, position, self.chunk).cast(position)

        expansion = when(due, renewed, lambda: state.expansion)
        batch, batching = self.draw(key, state.batching)
        cost = 2 * self.batch_size + jnp.where(due, self.target.num_data, 0)
        return batch, SVRGState(batching, expansion, state.step + 1), cost.astype(jnp.int32)
