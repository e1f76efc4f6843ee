"""The Taylor polynomial of the log-likelihood at a centre, as a control variate.

The polynomial of the whole data is computed once, in a pass over the data. What a batch then has
to estimate is only the remainder, which vanishes as the position comes near the centre.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ergodax import tree
from ergodax.data.arrays import num_rows, sum_in_chunks, summed
from ergodax.data.source import Source
from ergodax.graph import lowered
from ergodax.recipe.operators import Dense
from ergodax.target.posterior import Posterior

CHUNK = 1024  # examples at a time in a pass over the data


class Expansion(eqx.Module):
    """sum_i l_i(c) + G . (x - c) + (x - c) . H (x - c) / 2, over all examples."""

    centre: PyTree  # c
    value: Float[Array, ""]  # sum_i l_i(c), the log-likelihood of all data
    score: PyTree  # G, its gradient
    hessian: Dense | None = None  # H, or None for the linear polynomial

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
    """The expansion at a centre, in one pass over the data, `chunk` examples at a time.

    At order 2 with the Hessian, a d x d matrix. `weights`, of examples that do not count alike, are
    not for a source.
    """
    data = posterior.data
    if isinstance(data, Source):
        sums = summed(
            data, lambda rows: _terms(posterior, centre, data.as_seen(rows), chunk, order)
        )
        value, score, hessian = jax.tree.map(jnp.asarray, sums)
    else:
        value, score, hessian = _terms(posterior, centre, data, chunk, order, weights)
    return Expansion(centre, value, score, None if hessian is None else Dense(hessian))


def lowered_expansion(posterior: Posterior, centre: PyTree, chunk: int, order: int) -> Any:
    """The program of `expand` for data in memory, to be compiled."""
    return lowered(_terms, posterior, centre, posterior.data, chunk, order, None)


def whole_hessian(posterior: Posterior, position: PyTree) -> Float[np.ndarray, "d d"]:
    """The Hessian of U at a frozen position, of all data, on the raveled position."""
    likelihood = expand(posterior, position, CHUNK, order=2).hessian
    assert likelihood is not None
    prior = np.asarray(_prior_hessian(posterior, position), np.float64)
    whole = -prior - np.asarray(likelihood.matrix, np.float64)
    return 0.5 * (whole + whole.T)


@eqx.filter_jit
def _prior_hessian(posterior: Posterior, position: PyTree) -> Float[Array, "d d"]:
    flat, unravel = tree.ravel(position)
    return jax.hessian(lambda x: posterior.prior(unravel(x)))(flat)


@eqx.filter_jit
def _terms(
    posterior: Posterior,
    centre: PyTree,
    data: PyTree,
    chunk: int,
    order: int,
    weights: Float[Array, " n"] | None = None,
) -> PyTree:
    """The sums over these rows: log-likelihoods, scores, and Hessians at order 2."""

    def likelihood(x: PyTree, batch: PyTree) -> Float[Array, ""]:
        rows, weight = batch
        values = posterior.log_likelihoods(x, rows)
        return jnp.sum(values if weight is None else weight.astype(values.dtype) * values)

    flat, unravel = tree.ravel(centre)

    def of(batch: PyTree) -> PyTree:
        value, score = jax.value_and_grad(likelihood)(centre, batch)
        hessian = jax.hessian(lambda x: likelihood(unravel(x), batch))(flat) if order == 2 else None
        return value, score, hessian

    return sum_in_chunks(of, (data, weights), num_rows(data), chunk)
