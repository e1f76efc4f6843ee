"""Batch gradients about a centre, fixed or renewed: the noise shrinks with the distance from it."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.checks import whole_number
from ergodax.control_flow import when
from ergodax.data.arrays import num_rows, take
from ergodax.data.batching import Batching
from ergodax.gradient.base import Estimate, Estimated
from ergodax.gradient.batches import BatchEstimator, check_resident, checked_batching, corrected
from ergodax.gradient.expansion import CHUNK, Expansion, expand, remainders
from ergodax.target.mode import Mode
from ergodax.target.posterior import Posterior

LARGEST_HESSIAN = 2000  # dimensions


class AboutCentre(BatchEstimator):
    """An estimator from what an expansion about a centre leaves of a batch's log-likelihoods."""

    @abc.abstractmethod
    def next(
        self, key: PRNGKeyArray, state: PyTree, position: PyTree
    ) -> tuple[Expansion, PyTree, PyTree, Int[Array, ""]]:
        """The expansion, a batch, the state after it, and what the estimate costs."""

    def estimate(self, key: PRNGKeyArray, state: PyTree, position: PyTree) -> Estimated:
        """The gradient on a fresh batch."""
        expansion, batch, state, cost = self.next(key, state, position)
        rest = expansion.remainder(self.target, position, batch)
        return self._estimate(expansion, position, rest, num_rows(batch), cost), state

    def estimate_with_scores(
        self, key: PRNGKeyArray, state: PyTree, position: PyTree
    ) -> tuple[Estimate, PyTree, PyTree]:
        """What `estimate` returns, and the batch's scores, the remainders' gradients."""
        expansion, batch, state, cost = self.next(key, state, position)
        values, scores = remainders(expansion, self.target, position, batch)
        rest = jnp.sum(values), tree.sum_rows(scores)
        return self._estimate(expansion, position, rest, num_rows(batch), cost), scores, state

    def _estimate(
        self, expansion: Expansion, position: PyTree, rest: tuple[Any, ...], rows: int, cost: Array
    ) -> Estimate:
        potential, gradient = corrected(self.target, position, expansion(position), rest, rows)
        return Estimate(gradient, potential, evaluations=cost)


class ControlVariate(AboutCentre):
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

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> x = jnp.linspace(-1.0, 3.0, 100)
        >>> model = ex.Posterior(lambda m: -0.5 * m**2, lambda m, x: -0.5 * (x - m) ** 2, x)
        >>> mode = ex.find_mode(model, jnp.float32(0.0))
        >>> gradient = ex.ControlVariate(model, 10, mode)
        >>> state = gradient.init(jax.random.key(0), jnp.float32(1.0))
        >>> keys = jax.random.split(jax.random.key(1), 4_000)
        >>> one = lambda key: gradient.estimate(key, state, jnp.float32(1.0))[0].gradient
        >>> found = jax.vmap(one)(keys)
        >>> bool(found.std() < 1e-3)  # each row's gradient differs from the mode's by the same
        True

    Reference:
        Baker, Fearnhead, Fox and Nemeth, Control variates for stochastic gradient MCMC, 2019.
    """

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
        order = whole_number("order", order, at_least=0)
        if order not in (1, 2):
            raise ValueError(f"order must be 1 or 2, not {order}.")
        centre = posterior.freeze(centre.position if isinstance(centre, Mode) else centre, "centre")
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
        self.evaluations_per_example = 1 + order  # here, at the centre, the Hessian's product
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
    def set_up_evaluations(self) -> int:
        """Evaluations that the construction took: N, or N (1 + d) with the Hessian."""
        columns = tree.size(self.expansion.centre) if self.order == 2 else 0
        return self.target.num_data * (1 + columns)

    def init(self, key: PRNGKeyArray, position: PyTree) -> PyTree:
        """The state of the batching scheme; checks that the position is like the centre."""
        centre, there = (jax.tree.map(jnp.shape, x) for x in (self.expansion.centre, position))
        if centre != there:
            raise ValueError(
                f"centre must be like the position, but its shapes are {centre} and the "
                f"position's are {there}. Try a position, or what ex.find_mode returns."
            )
        self.target.check(position)
        return self.batching.init(key, self.target.num_data)

    def next(
        self, key: PRNGKeyArray, state: PyTree, position: PyTree
    ) -> tuple[Expansion, PyTree, PyTree, Int[Array, ""]]:
        """The expansion at the centre, and a fresh batch."""
        batch, state = self.draw(key, state)
        cost = jnp.int32(self.evaluations_per_example * self.batch_size)
        return self.expansion.cast(position), batch, state, cost

    def scores_of(self, state: PyTree, position: PyTree, rows: Int[Array, " k"]) -> PyTree:
        """f_i(x) - f_i(c), less H_i(c) (x - c) at order 2, for these rows."""
        batch = take(self.target.data, rows)
        return remainders(self.expansion.cast(position), self.target, position, batch)[1]


class SVRGState(eqx.Module):
    """The state of `SVRG`: of its batches, the expansion at the snapshot, and the count."""

    batching: PyTree
    expansion: Expansion
    step: Int[Array, ""]


class SVRG(AboutCentre):
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

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> x = jnp.linspace(-1.0, 3.0, 100)
        >>> model = ex.Posterior(lambda m: -0.5 * m**2, lambda m, x: -0.5 * (x - m) ** 2, x)
        >>> kernel = ex.sgld(ex.SVRG(model, 10, period=100), 1e-3)
        >>> samples = ex.sample(kernel, jnp.float32(1), 2000, key=jax.random.key(0), progress=False)
        >>> bool(abs(samples.position.mean() - 100 / 101) < 0.05)
        True

    Reference:
        Dubey, Reddi, Poczos, Smola, Xing and Williamson, Variance reduction in stochastic
        gradient Langevin dynamics, 2016.
    """

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
        self.evaluations_per_example = 2  # at the position and at the snapshot
        self.period = jnp.int32(whole_number("period", period, hint=f"Try {example}."))
        self.chunk = whole_number("chunk", chunk, hint="Try 1024.")

    def init(self, key: PRNGKeyArray, position: PyTree) -> SVRGState:
        """No snapshot yet; the first estimate takes it."""
        self.target.check(position)
        nothing = jnp.zeros((), tree.result_dtype(position))
        expansion = Expansion(tree.zeros_like(position), nothing, tree.zeros_like(position))
        batching = self.batching.init(key, self.target.num_data)
        return SVRGState(batching, expansion, jnp.int32(0))

    def scores_of(self, state: SVRGState, position: PyTree, rows: Int[Array, " k"]) -> PyTree:
        """f_i(x) - f_i(c) for these rows: 0 where a new snapshot is due."""
        centre = jax.tree.map(
            lambda x, c: jnp.where(self._due(state), x, c), position, state.expansion.centre
        )
        expansion = eqx.tree_at(lambda e: e.centre, state.expansion, centre)
        return remainders(expansion, self.target, position, take(self.target.data, rows))[1]

    def _due(self, state: SVRGState) -> Bool[Array, ""]:
        return state.step % self.period == 0

    def next(
        self, key: PRNGKeyArray, state: SVRGState, position: PyTree
    ) -> tuple[Expansion, PyTree, SVRGState, Int[Array, ""]]:
        """The expansion at the snapshot, a new one where it is due, and a fresh batch."""
        due = self._due(state)

        def renewed() -> Expansion:
            return expand(self.target, position, self.chunk).cast(position)

        expansion = when(due, renewed, lambda: state.expansion)
        batch, batching = self.draw(key, state.batching)
        cost = 2 * self.batch_size + jnp.where(due, self.target.num_data, 0)
        after = SVRGState(batching, expansion, state.step + 1)
        return expansion, batch, after, cost.astype(jnp.int32)
