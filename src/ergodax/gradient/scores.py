"""The covariance of per-example scores: dense, its diagonal, its mean variance, or its root.

Scores are a tree like the position whose leaves have a leading axis, one score a row.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from ergodax import tree
from ergodax.data.arrays import num_rows
from ergodax.recipe.operators import Dense, Diagonal, LowRank, Operator, Scalar


def _outer(rows: PyTree) -> Float[Array, "d d"]:
    flat = jax.vmap(lambda row: tree.ravel(row)[0])(rows)
    return flat.T @ flat


def _squares(rows: PyTree) -> PyTree:
    return tree.sum_rows(tree.multiply(rows, rows))


def _mean_square(rows: PyTree) -> Float[Array, ""]:
    squares = _squares(rows)
    return tree.dot(squares, tree.map_leaves(jnp.ones_like, squares)) / tree.size(squares)


# The sum over rows of f f^T, as far as the structure keeps it.
SUMS: dict[str, Callable[[PyTree], PyTree]] = {
    "dense": _outer,
    "diagonal": _squares,
    "scalar": _mean_square,
}
OPERATORS: dict[str, Callable[[Any], Operator]] = {
    "dense": Dense,
    "diagonal": Diagonal,
    "scalar": Scalar,
}


def centred(scores: PyTree) -> PyTree:
    """The scores less their mean."""
    return jax.tree.map(lambda s, m: s - m[None], scores, tree.mean_rows(scores))


def sample_covariance(scores: PyTree, structure: str) -> PyTree:
    """The covariance of the scores, with divisor n - 1.

    Args:
        scores: n of them, at least 2.
        structure: "dense" for the matrix on the raveled position, shape (d, d); "diagonal" for
            the variances, a tree like the position; "scalar" for their mean, trace / d.
    """
    return tree.scale(1.0 / (num_rows(scores) - 1), SUMS[structure](centred(scores)))


def sample_covariance_in_chunks(
    scores_of: Callable[[Int[Array, " k"]], PyTree], rows: int, structure: str, chunk: int
) -> PyTree:
    """`sample_covariance` of more scores than there is memory for, in one pass.

    Each chunk's mean and sum of squares about it are merged with those of the chunks before,
    which loses no digits, however far the mean is from zero.

    Args:
        scores_of: the scores of the rows with these numbers.
        rows: how many there are, at least 2.
        structure: as above.
        chunk: how many are computed at a time, at least 1.
    """

    def moments(numbers: Int[Array, " k"]) -> tuple[PyTree, PyTree]:
        scores = scores_of(numbers)
        mean = tree.mean_rows(scores)
        return mean, SUMS[structure](centred(scores))

    def merge(seen: tuple, numbers: Int[Array, " k"]) -> tuple[tuple, None]:
        count, mean, squares = seen
        new_mean, new_squares = moments(numbers)
        share = numbers.size / (count + numbers.size)
        apart = tree.subtract(new_mean, mean)
        between = SUMS[structure](jax.tree.map(lambda x: x[None], apart))
        squares = tree.add_scaled(tree.add(squares, new_squares), share * count, between)
        return (count + numbers.size, tree.add_scaled(mean, share, apart), squares), None

    numbers = jnp.arange(rows, dtype=jnp.int32)
    first = (rows - 1) % chunk + 1  # so that whole chunks remain
    seen = (jnp.asarray(float(first)), *moments(numbers[:first]))
    (_, _, squares), _ = jax.lax.scan(merge, seen, numbers[first:].reshape(-1, chunk))
    return tree.scale(1.0 / (rows - 1), squares)


def noise_operator(scores: PyTree, factor: Any, structure: str) -> Operator:
    """factor * sample_covariance as an operator; "low rank" keeps the n scores, its root.

    Args:
        scores: n of them, at least 2.
        factor: the c that makes it the covariance of a gradient's noise.
        structure: "low rank", or one of `sample_covariance`.
    """
    if structure == "low rank":
        return LowRank(tree.scale(jnp.sqrt(factor / (num_rows(scores) - 1)), centred(scores)))
    return OPERATORS[structure](tree.scale(factor, sample_covariance(scores, structure)))


def check_scores(gradient: Any, user: str) -> None:
    """Refuse an estimator that does not give the scores of its batch, or only one.

    Args:
        gradient: the estimator.
        user: what needs them, for errors.

    Raises:
        TypeError: it gives none.
        ValueError: a batch of one.
    """
    if not (hasattr(gradient, "estimate_with_scores") and hasattr(gradient, "noise_factor")):
        raise TypeError(
            f"{user} needs the scores of a batch, which {type(gradient).__name__} does not give. "
            "Try ex.Minibatch(posterior, batch_size=100)."
        )
    if gradient.batch_size < 2:
        raise ValueError(
            f"{user} estimates a covariance from each batch, so batch_size must be at least 2, "
            f"not {gradient.batch_size}."
        )
