"""Batch gradients about a fixed centre: the noise shrinks with the distance from it."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.data.arrays import take
from ergodax.data.batching import Batching
from ergodax.gradient.base import Estimate
from ergodax.gradient.batches import BatchEstimator, checked_batching
from ergodax.gradient.expansion import Expansion, about, about_with_scores, expand, remainders
from ergodax.target.mode import Mode
from ergodax.target.posterior import Posterior

CHUNK = 1024  # examples at a time in the pass over the data
LARGEST_HESSIAN = 2000  # dimensions


class ControlVariate(BatchEstimator):
    """The exact gradient at a centre, and a batch's estimate of the difference from there.

    With f_i the score of example i, c the centre, G = sum_i f_i(c) and H = sum_i H_i(c) the
    Hessian of the log-likelihood there,
        order 1: -grad log_prior(x) - G - (N/n) sum over the batch of [f_i(x) - f_i(c)]
        order 2: -grad log_prior(x) - G - H (x - c)
                 - (N/n) sum over the batch of [f_i(x) - f_i(c) - H_i(c) (x - c)]
    Unbiased for every centre; the noise's standard deviation is O(|x - c|) or O(|x - c|^2), 0 at
    the centre, and least where c is the posterior's mode or mean. Far from the centre it may be
    larger than that of ex.Minibatch. The potential is estimated likewise, by the Taylor
    polynomial of the log-likelihood, and its gradient is the estimate of the gradient.

    An estimate costs 2 n evaluations at order 1 and 3 n at order 2, a product with a Hessian
    counted as one gradient.

    Args:
        posterior: a Posterior.
        batch_size: n, examples in a batch.
        centre: c: a position, or the Mode that ex.find_mode returns.
        replace: draw rows with replacement.
        order: 1 or 2. At order 2 a d x d matrix is kept.
        batching: another scheme of `ergodax.data`; overrides `replace`.

    Raises:
        TypeError: not a Posterior, or a batch size that is not an integer.
        ValueError: a batch size outside [1, N], an order that is not 1 or 2, a centre where
            the posterior can't be evaluated or is not finite, or too many dimensions for order 2.

    Reference:
        Baker, Fearnhead, Fox and Nemeth, Control variates for stochastic gradient MCMC, 2019.
    """

    target: Posterior
    batch_size: int = eqx.field(static=True)
    batching: Batching
    expansion: Expansion

    def __init__(
        self,
        posterior: Posterior,
        batch_size: int | np.integer,
        centre: PyTree | Mode,
        replace: bool = False,
        *,
        order: int = 1,
        batching: Batching | None = None,
    ) -> None:
        self.batching = checked_batching(posterior, batch_size, replace, batching)
        self.target, self.batch_size = posterior, int(batch_size)
        if order not in (1, 2):
            raise ValueError(f"order must be 1 or 2, not {order!r}.")
        centre = tree.freeze(centre.position if isinstance(centre, Mode) else centre, "centre")
        if order == 2 and tree.size(centre) > LARGEST_HESSIAN:
            raise ValueError(
                f"order=2 keeps a d x d matrix, and d = {tree.size(centre)} is more than "
                f"{LARGEST_HESSIAN}. Try order=1."
            )
        try:
            posterior.check(centre)
        except ValueError as error:
            raise ValueError(f"centre: {error}") from error
        self.expansion = expand(posterior, centre, CHUNK, order=order)
        known = not tree.is_traced(self.expansion.value)
        if known and not tree.known_finite(self.expansion):
            raise ValueError(
                "centre: the log-likelihood or its derivatives are not finite there. Try what "
                "ex.find_mode returns."
            )

    @property
    def order(self) -> int:
        """Of the Taylor polynomial that is the control variate."""
        return 1 if self.expansion.hessian is None else 2

    @property
    def evaluations_per_example(self) -> int:
        """2, or 3 at order 2: at the position, at the centre, and the Hessian's product."""
        return self.order + 1

    @property
    def set_up_evaluations(self) -> int:
        """Evaluations that the construction took: N, or N (1 + d) with the Hessian."""
        columns = tree.size(self.expansion.centre) if self.order == 2 else 0
        return self.target.num_data * (1 + columns)

    def init(self, key: PRNGKeyArray, position: PyTree) -> Any:
        """The state of the batching scheme; checks that the position is like the centre.

        Raises:
            ValueError: it is not.
        """
        centre, there = (jax.tree.map(jnp.shape, x) for x in (self.expansion.centre, position))
        if centre != there:
            raise ValueError(
                f"centre must be like the position, but its shapes are {centre} and the "
                f"position's are {there}. Try a position, or what ex.find_mode returns."
            )
        self.target.check(position)
        return self.batching.init(key, self.target.num_data)

    def estimate(self, key: PRNGKeyArray, state: Any, position: PyTree) -> tuple[Estimate, Any]:
        """The gradient on a fresh batch."""
        batch, state = self.draw(key, state)
        potential, gradient = about(self.expansion.cast(position), self.target, position, batch)
        return Estimate(gradient, potential, evaluations=self._cost), state

    def estimate_with_scores(
        self, key: PRNGKeyArray, state: Any, position: PyTree
    ) -> tuple[Estimate, PyTree, Any]:
        """What `estimate` returns, and the batch's scores, the remainders' gradients."""
        batch, state = self.draw(key, state)
        expansion = self.expansion.cast(position)
        potential, gradient, scores = about_with_scores(expansion, self.target, position, batch)
        return Estimate(gradient, potential, evaluations=self._cost), scores, state

    def scores_of(self, state: Any, position: PyTree, rows: Int[Array, " k"]) -> PyTree:
        """f_i(x) - f_i(c), less H_i(c) (x - c) at order 2, for these rows."""
        batch = take(self.target.data, rows)
        return remainders(self.expansion.cast(position), self.target, position, batch)[1]

    @property
    def _cost(self) -> Int[Array, ""]:
        return jnp.int32(self.evaluations_per_example * self.batch_size)
