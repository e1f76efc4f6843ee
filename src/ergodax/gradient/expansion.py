"""The Taylor polynomial of the log-likelihood at a centre, as a control variate.

The polynomial of the whole data is computed once, in a pass over the data. What a batch then has
to estimate is only the remainder, which vanishes as the position comes near the centre.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ergodax import tree
from ergodax.data.arrays import num_rows
from ergodax.data.passes import sum_in_chunks, summed
from ergodax.data.source import Source
from ergodax.gradient.batches import corrected
from ergodax.recipe.operators import Dense
from ergodax.target.posterior import Posterior


class Expansion(eqx.Module):
    """sum_i l_i(c) + G . (x - c) + (x - c) . H (x - c) / 2, over all examples.

    Attributes:
        centre: c, a tree like the position.
        value: sum_i l_i(c), the log-likelihood of all data.
        score: G, its gradient.
        hessian: H, or None for the linear polynomial.
    """

    centre: PyTree
    value: Float[Array, ""]
    score: PyTree
    hessian: Dense | None = None

    def cast(self, position: PyTree) -> "Expansion":
        """In the dtypes of the position, so that it promotes nothing."""
        like = lambda a: jax.tree.map(lambda x, y: x.astype(y.dtype), a, position)  # noqa: E731
        value = self.value.astype(tree.result_dtype(position))
        return Expansion(like(self.centre), value, like(self.score), self.hessian)

    def __call__(self, position: PyTree) -> tuple[Float[Array, ""], PyTree]:
        """The polynomial and its gradient."""
        step = tree.subtract(position, self.centre)
        value = self.value + tree.dot(self.score, step)
        if self.hessian is None:
            return value, self.score
        bend = self.hessian.mv(step)
        return value + 0.5 * tree.dot(step, bend), tree.add(self.score, bend)

    def remainder(
        self, posterior: Posterior, position: PyTree, batch: PyTree
    ) -> tuple[Float[Array, ""], PyTree]:
        """What the polynomials of a batch's examples leave of their log-likelihoods.

        Args:
            posterior: of which this is the expansion.
            position: x.
            batch: examples.

        Returns:
            The sum over the batch of l_i(x) - l_i(c) - f_i(c) . (x - c) [- (x - c) . H_i (x - c)
            / 2], and its gradient in x, the sum of f_i(x) - f_i(c) [- H_i (x - c)].
        """
        step = tree.subtract(position, self.centre)
        # Where chains are mapped over, XLA turns the rows round to multiply them all by one centre,
        # which takes longer than the rest. So each chain has a centre that looks like its own.
        centre = jax.tree.map(lambda c, x: jnp.where(x != x, x, c), self.centre, position)

        def likelihoods(x: PyTree) -> tuple[Float[Array, " n"], PyTree]:
            def summed(x: PyTree) -> tuple[Array, Array]:
                values = posterior.log_likelihoods(x, batch)
                return jnp.sum(values), values

            score, values = jax.grad(summed, has_aux=True)(x)
            return values, score

        values, score = likelihoods(position)
        if self.hessian is None:
            at_centre, score_there = likelihoods(centre)
            slope, bend = tree.dot(score_there, step), 0.0
        else:
            (at_centre, score_there), (slopes, bent) = jax.jvp(likelihoods, (centre,), (step,))
            slope, bend = jnp.sum(slopes), 0.5 * tree.dot(step, bent)
            score_there = tree.add(score_there, bent)
        # Differences example by example: those of two sums would lose digits.
        value = jnp.sum(values - at_centre) - slope - bend
        return value, tree.subtract(score, score_there)


def about(
    expansion: Expansion, posterior: Posterior, position: PyTree, batch: PyTree
) -> tuple[Float[Array, ""], PyTree]:
    """The batch's estimate of U and its gradient, with the expansion as control variate."""
    rest = expansion.remainder(posterior, position, batch)
    return corrected(posterior, position, expansion(position), rest, num_rows(batch))


def about_with_scores(
    expansion: Expansion, posterior: Posterior, position: PyTree, batch: PyTree
) -> tuple[Float[Array, ""], PyTree, PyTree]:
    """The same, and the scores, one for each example of the batch."""
    values, scores = remainders(expansion, posterior, position, batch)
    rest = jnp.sum(values), tree.sum_rows(scores)
    known = expansion(position)
    return *corrected(posterior, position, known, rest, num_rows(batch)), scores


def remainders(
    expansion: Expansion, posterior: Posterior, position: PyTree, batch: PyTree
) -> tuple[Float[Array, " n"], PyTree]:
    """The remainder of each example of a batch and its gradient, leading axis n."""
    single = jax.tree.map(lambda x: x[:, None], batch)
    return jax.vmap(lambda b: expansion.remainder(posterior, position, b))(single)


def expand(
    posterior: Posterior,
    centre: PyTree,
    chunk: int,
    *,
    order: int = 1,
    weights: Float[Array, " n"] | None = None,
) -> Expansion:
    """The expansion at a centre, in one pass over the data.

    Args:
        posterior: the posterior.
        centre: where.
        chunk: how many examples are computed at a time, which bounds the memory.
        order: 1, or 2 for the Hessian as well, a d x d matrix.
        weights: of the examples, where they do not count alike; not for a source.
    """
    data = posterior.data
    if weights is not None:
        value, score, hessian = _weighted_terms(posterior, centre, data, weights, chunk, order)
    elif isinstance(data, Source):
        sums = summed(
            data, lambda rows: _terms(posterior, centre, data.as_seen(rows), chunk, order)
        )
        value, score, hessian = jax.tree.map(jnp.asarray, sums)
    else:
        value, score, hessian = _terms(posterior, centre, data, chunk, order)
    return Expansion(centre, value, score, None if hessian is None else Dense(hessian))


@eqx.filter_jit
def _terms(posterior: Posterior, centre: PyTree, data: PyTree, chunk: int, order: int) -> PyTree:
    """The sums over these rows: log-likelihoods, scores, and Hessians at order 2."""

    def likelihood(x: PyTree, batch: PyTree) -> Float[Array, ""]:
        return jnp.sum(posterior.log_likelihoods(x, batch))

    return _derivatives(likelihood, centre, data, num_rows(data), chunk, order)


@eqx.filter_jit
def _weighted_terms(
    posterior: Posterior,
    centre: PyTree,
    data: PyTree,
    weights: Float[Array, " n"],
    chunk: int,
    order: int,
) -> PyTree:
    """The same, each row times its weight."""

    def likelihood(x: PyTree, batch: PyTree) -> Float[Array, ""]:
        values = posterior.log_likelihoods(x, batch[0])
        return jnp.sum(batch[1].astype(values.dtype) * values)

    return _derivatives(likelihood, centre, (data, weights), num_rows(data), chunk, order)


def _derivatives(
    function: Callable[[PyTree, PyTree], Float[Array, ""]],
    centre: PyTree,
    data: PyTree,
    rows: int,
    chunk: int,
    order: int,
) -> PyTree:
    """Sums over chunks of the data of a function of position and chunk, and of its derivatives."""
    flat, unravel = tree.ravel(centre)

    def of(batch: PyTree) -> PyTree:
        value, score = jax.value_and_grad(function)(centre, batch)
        hessian = jax.hessian(lambda x: function(unravel(x), batch))(flat) if order == 2 else None
        return value, score, hessian

    return sum_in_chunks(of, data, rows, chunk)
