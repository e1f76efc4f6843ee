"""Batches with an equal part from each shard of the data, so that devices can share a gradient."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.checks import whole_number
from ergodax.data.arrays import take
from ergodax.data.batching import Batching
from ergodax.data.shards import Shards
from ergodax.data.source import Source
from ergodax.gradient.base import Estimate, Estimated, GradientEstimator
from ergodax.gradient.batches import Minibatch
from ergodax.gradient.control_variate import ControlVariate
from ergodax.gradient.expansion import Expansion
from ergodax.target.posterior import Posterior


class Stratified(GradientEstimator):
    """A batch of n with n / K rows from each of K shards of consecutive rows.

    With N_k rows in shard k, f_i the score of row i (its difference from the centre's where
    `gradient` is a ControlVariate) and `known` what the estimator knows without a batch,
        known - sum over k of (K N_k / n) sum over the shard's part of the batch of f_i
    is unbiased whatever the shards' sizes. With distinct rows its noise has covariance
        sum over k of N_k (N_k - n / K) K / n S_k,
    S_k that of the scores within shard k: at most about that of a batch from all rows, and less
    where shards differ.

    It draws the same batches with or without a mesh. On a mesh with the axis "data" each device
    holds K / (devices) of the shards and evaluates their part, and `psum` adds the parts up.

    Args:
        gradient: a Minibatch or a ControlVariate of data in memory, its batches drawn with or
            without replacement.
        shards: K; a multiple of the devices along "data" that it is to run on.

    Raises:
        TypeError: another estimator, or a number of shards that is not an integer.
        ValueError: data that are a source, a batching scheme with a state, or a batch size that is
            not a multiple of K.
    """

    model: Posterior  # of a single row
    shards: Shards
    batching: Batching
    expansion: Expansion | None
    batch_size: int = eqx.field(static=True)

    def __init__(self, gradient: GradientEstimator, shards: int) -> None:
        if not isinstance(gradient, Minibatch | ControlVariate):
            raise TypeError(
                f"gradient must be an ex.Minibatch or an ex.ControlVariate, not a "
                f"{type(gradient).__name__}: others can't be split over the data."
            )
        count, posterior = whole_number("shards", shards, hint="Try 2."), gradient.target
        if isinstance(posterior.data, Source):
            raise ValueError(
                "the posterior's data are a source, which is read by chains and can't be split "
                "into shards. Pass arrays, or use a mesh of chains alone."
            )
        self.batching, self.batch_size = gradient.batching, gradient.batch_size
        if self.batching.init(jax.random.key(0), posterior.num_data) is not None:
            raise ValueError(
                f"batching={self.batching!r} has a state, which shards can't share. Use "
                "replace=True or False."
            )
        if self.batch_size % count:
            raise ValueError(
                f"batch_size={self.batch_size} must be a multiple of shards={count}, so that each "
                f"has an equal part. Try batch_size={count * max(1, self.batch_size // count)}."
            )
        one_row = take(posterior.data, jnp.zeros(1, jnp.int32))
        self.model = eqx.tree_at(lambda p: p.data, posterior, one_row)
        self.shards = Shards(posterior.data, count)
        self.expansion = gradient.expansion if isinstance(gradient, ControlVariate) else None

    @property
    def target(self) -> Posterior:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The posterior of all rows; not to be had on a device that holds only some."""
        return eqx.tree_at(lambda p: p.data, self.model, self.shards.whole())

    def init(self, key: PRNGKeyArray, position: PyTree) -> None:
        """Nothing to remember; checks that the likelihood fits `position`."""
        self.model.check(position)

    def estimate(self, key: PRNGKeyArray, state: PyTree, position: PyTree) -> Estimated:
        """The gradient on a fresh batch."""
        expansion = None if self.expansion is None else self.expansion.cast(position)
        size, parts = self.batch_size // self.shards.count, []
        for weight, batch in self.shards.draw(key, self.batching, size):
            value, score = self._of_batch(expansion, position, batch)
            parts.append((tree.cast(weight, value) * value, tree.scale(weight, score)))
        value, score = self.shards.sum_over(jax.tree.map(lambda *x: sum(x[1:], x[0]), *parts))
        prior, slope = self.model.prior_and_gradient(position)
        if expansion is not None:
            known, known_score = expansion(position)
            value, score = known + value, tree.add(known_score, score)
        gradient = jax.tree.map(lambda p, s: -p - s, slope, score)
        cost = self.batch_size * (
            1 if self.expansion is None else 2 + (self.expansion.hessian is not None)
        )
        return Estimate(gradient, -prior - value, evaluations=jnp.int32(cost)), state

    def given(self, batch: PyTree) -> GradientEstimator:
        """Not to be had: each shard has its own part of a batch, with a weight of its own.

        Raises:
            TypeError: always.
        """
        raise TypeError(
            "batch= can't be used with ex.Stratified, whose batches have an equal part from each "
            "shard of the data. Try the ex.Minibatch that it was made from."
        )

    def _of_batch(
        self, expansion: Expansion | None, position: PyTree, batch: PyTree
    ) -> tuple[Any, ...]:
        """What the batch has to tell of the log-likelihood, summed over it, and its gradient."""
        if expansion is not None:
            return expansion.remainder(self.model, position, batch)
        return jax.value_and_grad(lambda x: jnp.sum(self.model.log_likelihoods(x, batch)))(position)
