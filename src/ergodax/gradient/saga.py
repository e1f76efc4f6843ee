"""Batch gradients about a table of the score of every example when it was last drawn."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.checks import whole_number
from ergodax.control_flow import when
from ergodax.data.arrays import sum_in_chunks, take
from ergodax.data.batching import Batching
from ergodax.gradient.base import Estimate
from ergodax.gradient.batches import BatchEstimator, check_resident, checked_batching, corrected
from ergodax.gradient.expansion import Expansion
from ergodax.target.posterior import Posterior

CHUNK = 1024  # rows at a time in a pass over the data or the table
PASSES = 4  # over the data, between two summations of the whole table


class Table(eqx.Module):
    """A linear function for each example, offset_i + slope_i . (x - c), in single precision."""

    offset: Float[Array, " rows"]
    slope: PyTree  # like the position, with leading axis N


class SAGAState(eqx.Module):
    """The state of `SAGA`: of its batches, the tangents where last evaluated, and their sum."""

    batching: PyTree
    table: Table
    sum: Expansion
    step: Int[Array, ""]


class SAGA(BatchEstimator):
    """A batch's estimate of what has changed since each of its examples was last drawn.

    With f_i the score of example i and a_i its score at the position where it was last in a
    batch, kept in a table,
        -grad log_prior(x) - sum_i a_i - (N/n) sum over the batch of [f_i(x) - a_i],
    and then a_i <- f_i(x) for the examples of the batch. Unbiased given the table; its noise is
    that of the distance the chain goes in a pass over the data. The potential is estimated
    likewise, by the tangents of the log-likelihoods, and its gradient is the estimate of the
    gradient.

    An estimate costs n evaluations and O(n) time; `init` costs N evaluations, which fill the
    table. Each chain has a table of 4 N (d + 1) bytes. Its sum is kept by adding what a batch
    changes, and taken anew from the table every four passes, so that rounding does not add up.

    Args:
        posterior: a Posterior.
        batch_size: n, examples in a batch.
        replace: draw rows with replacement.
        batching: another scheme of `ergodax.data`; overrides `replace`.
        max_bytes: the largest table that is accepted, for one chain.

    Raises:
        TypeError: not a Posterior, one of a source, or a number that must be an integer and is
            not.
        ValueError: a batch size outside [1, N], or (in `init`) a table that is too large.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> x = jnp.linspace(-1.0, 3.0, 100)
        >>> model = ex.Posterior(lambda m: -0.5 * m**2, lambda m, x: -0.5 * (x - m) ** 2, x)
        >>> kernel = ex.sgld(ex.SAGA(model, 10), 1e-3)
        >>> samples = ex.sample(kernel, jnp.float32(1), 2000, key=jax.random.key(0), progress=False)
        >>> bool(abs(samples.position.mean() - 100 / 101) < 0.05)
        True

    Reference:
        Dubey, Reddi, Poczos, Smola, Xing and Williamson, Variance reduction in stochastic
        gradient Langevin dynamics, 2016.
    """

    max_bytes: int = eqx.field(static=True)

    def __init__(
        self,
        posterior: Posterior,
        batch_size: int | np.integer,
        replace: bool = False,
        *,
        batching: Batching | None = None,
        max_bytes: int | np.integer = 2**31,
    ) -> None:
        check_resident(posterior, "SAGA, which keeps a table of N scores,", "ex.ControlVariate")
        self.batching = checked_batching(posterior, batch_size, replace, batching)
        self.target, self.batch_size = posterior, int(batch_size)
        self.evaluations_per_example = 1  # the other score is in the table
        self.max_bytes = whole_number("max_bytes", max_bytes, below=None, hint=f"Try {2**31}.")

    @property
    def set_up_evaluations(self) -> int:
        """N, in the `init` of each chain."""
        return self.target.num_data

    def init(self, key: PRNGKeyArray, position: PyTree) -> SAGAState:
        """Fill the table at `position`, in a pass over the data."""
        posterior = self.target
        size = 4 * posterior.num_data * (tree.size(position) + 1)
        if size > self.max_bytes:
            raise ValueError(
                f"the table of SAGA needs {size} bytes for each chain, more than max_bytes="
                f"{self.max_bytes}. Try ex.SVRG(posterior, batch_size, period) or "
                "ex.ControlVariate(posterior, batch_size, centre), which have no table."
            )
        posterior.check(position)

        def tangent(row: Int[Array, ""]) -> Table:
            batch = take(posterior.data, row[None])
            found = posterior.likelihoods_and_scores(position, batch)
            return jax.tree.map(lambda x: x[0], _tangents(*found, position, position))

        rows = jnp.arange(posterior.num_data, dtype=jnp.int32)
        table = jax.lax.map(tangent, rows, batch_size=min(CHUNK, posterior.num_data))
        batching = self.batching.init(key, posterior.num_data)
        return SAGAState(batching, table, _summed(table, position), jnp.int32(0))

    def estimate(
        self, key: PRNGKeyArray, state: SAGAState, position: PyTree
    ) -> tuple[Estimate, SAGAState]:
        """The gradient on a fresh batch, and the table with its scores."""
        estimate, _, state = self.estimate_with_scores(key, state, position)
        return estimate, state

    def estimate_with_scores(
        self, key: PRNGKeyArray, state: SAGAState, position: PyTree
    ) -> tuple[Estimate, PyTree, SAGAState]:
        """What `estimate` returns, and the batch's scores, the differences from the table."""
        posterior, n = self.target, self.batch_size
        rows, batching = self.batching.draw(key, state.batching, posterior.num_data, n)
        batch, centre = take(posterior.data, rows), state.sum.centre
        # Without the barrier XLA may read these rows after it has written them, from a copy of the
        # whole table.
        old, table = jax.lax.optimization_barrier((take(state.table, rows), state.table))
        old = _like(old, position)
        values, scores = posterior.likelihoods_and_scores(position, batch)
        changes = _changes(values, scores, old, position, centre)
        rest = jnp.sum(changes[0]), tree.sum_rows(changes[1])
        potential, gradient = corrected(posterior, position, state.sum(position), rest, n)

        new = _tangents(values, scores, position, centre)
        table = jax.tree.map(lambda t, x: t.at[rows].set(x, mode="promise_in_bounds"), table, new)
        moved = tree.subtract(_like(new, position), old)
        if not self.batching.distinct:
            moved = _masked(_first_of_each(rows), moved)
        value, slope = _sums(moved)
        moved = Expansion(centre, state.sum.value + value, tree.add(state.sum.score, slope))
        due = (state.step + 1) % (PASSES * -(-posterior.num_data // n)) == 0
        exact = when(due, lambda: _summed(table, centre), lambda: moved)
        state = SAGAState(batching, table, exact, state.step + 1)
        return Estimate(gradient, potential, evaluations=jnp.int32(n)), changes[1], state

    def given(self, batch: PyTree) -> BatchEstimator:
        """Not to be had: the table is by numbers of rows, and a user's rows have none.

        Raises:
            TypeError: always.
        """
        raise TypeError(
            "batch= can't be used with SAGA, which keeps a score for each row of the data and has "
            "to know which rows a batch has. Try ex.Minibatch, ex.ControlVariate or ex.SVRG."
        )

    def scores_of(self, state: SAGAState, position: PyTree, rows: Int[Array, " k"]) -> PyTree:
        """f_i(x) - a_i for these rows, with the table before the estimate changes it."""
        old = _like(take(state.table, rows), position)
        found = self.target.likelihoods_and_scores(position, take(self.target.data, rows))
        return _changes(*found, old, position, state.sum.centre)[1]


def _tangents(
    values: Float[Array, " k"], scores: PyTree, position: PyTree, centre: PyTree
) -> Table:
    """The tangents at `position`, given the log-likelihoods and scores there."""
    along = jax.vmap(tree.dot, (0, None))(scores, tree.subtract(position, centre))
    return jax.tree.map(lambda x: x.astype(jnp.float32), Table(values - along, scores))


def _changes(
    values: Float[Array, " k"], scores: PyTree, old: Table, position: PyTree, centre: PyTree
) -> tuple[Float[Array, " k"], PyTree]:
    """The log-likelihoods and scores at `position` less those of the tangents."""
    along = jax.vmap(tree.dot, (0, None))(old.slope, tree.subtract(position, centre))
    return values - old.offset - along, tree.subtract(scores, old.slope)


def _like(table: Table, position: PyTree) -> Table:
    """In the dtypes of the position."""
    offset = table.offset.astype(tree.result_dtype(position))
    return Table(offset, jax.tree.map(lambda a, x: a.astype(x.dtype), table.slope, position))


def _sums(table: Table) -> tuple[Float[Array, ""], PyTree]:
    # Of all N rows at once: here the pairwise sum, which loses fewer digits.
    return jnp.sum(table.offset), jax.tree.map(lambda s: jnp.sum(s, axis=0), table.slope)


def _summed(table: Table, centre: PyTree) -> Expansion:
    """The sum of the whole table, in the precision of the position."""
    rows = table.offset.size
    return Expansion(centre, *sum_in_chunks(lambda t: _sums(_like(t, centre)), table, rows, CHUNK))


def _masked(kept: Bool[Array, " k"], table: Table) -> Table:
    """Zeros in place of the rows that are not kept."""
    return jax.tree.map(
        lambda x: jnp.where(kept.reshape(-1, *[1] * (x.ndim - 1)), x, jnp.zeros_like(x)), table
    )


def _first_of_each(rows: Int[Array, " k"]) -> Bool[Array, " k"]:
    """Whether a row number stands in the batch for the first time."""
    order = jnp.argsort(rows)
    ordered = rows[order]
    new = jnp.concatenate([jnp.ones(1, bool), ordered[1:] != ordered[:-1]])
    return jnp.zeros(rows.shape, bool).at[order].set(new)
