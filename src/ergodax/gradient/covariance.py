"""The covariance of the gradient's noise: known, or estimated from the scores of the examples."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.checks import choice, whole_number
from ergodax.control_flow import when
from ergodax.data.arrays import num_rows
from ergodax.data.block import attach, detach
from ergodax.gradient.base import Estimate, Estimated, GradientEstimator, check_estimator
from ergodax.gradient.batches import BatchEstimator, check_resident
from ergodax.recipe.operators import Dense, Diagonal, LowRank, Operator, Scalar, as_operator
from ergodax.target.base import AbstractTarget


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
    """The covariance of the scores, with divisor n - 1."""
    return tree.scale(1.0 / (num_rows(scores) - 1), SUMS[structure](centred(scores)))


def sample_covariance_in_chunks(
    scores_of: Callable[[Int[Array, " k"]], PyTree], rows: int, structure: str, chunk: int
) -> PyTree:
    """`sample_covariance` of more scores than there is memory for, in one pass.

    Each chunk's mean and squares are merged with those before, which loses no digits.
    """

    def moments(numbers: Int[Array, " k"]) -> tuple[PyTree, PyTree]:
        scores = scores_of(numbers)
        mean = tree.mean_rows(scores)
        return mean, SUMS[structure](centred(scores))

    def merge(seen: tuple[Any, ...], numbers: Int[Array, " k"]) -> tuple[tuple[Any, ...], None]:
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
    """factor * sample_covariance as an operator; "low rank" keeps the n scores, its root."""
    if structure == "low rank":
        return LowRank(tree.scale(jnp.sqrt(factor / (num_rows(scores) - 1)), centred(scores)))
    return OPERATORS[structure](tree.scale(factor, sample_covariance(scores, structure)))


def factor_of_all(gradient: Any) -> float:
    """The c for which c S, S the covariance of all rows' scores, divisor N - 1, is that of g.

    `noise_factor` is made for the mean of S over batches, whose divisor is N for independent rows.
    """
    rows = gradient.target.num_data
    return gradient.noise_factor * (1.0 if gradient.batching.distinct else (rows - 1) / rows)


def check_scores(gradient: Any, user: str) -> None:
    """Refuse an estimator without scores, or with one. Raises: TypeError, ValueError."""
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


class KnownCovariance(GradientEstimator):
    """Another estimator whose noise covariance is taken to be a constant operator.

    Right where the posterior is concentrated, with the covariance measured at its mode.

    Args:
        gradient: any estimator.
        covariance: V: a number, a vector (diagonal), a matrix or an operator.

    Raises:
        TypeError: not an estimator.
        ValueError: a covariance that is not positive semidefinite.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> target = ex.Target(lambda x: 0.5 * jnp.sum(x**2 / jnp.array([1.0, 4.0])))
        >>> noisy = ex.NoisyGradient(target, 0.5)
        >>> kernel = ex.nogin(ex.KnownCovariance(noisy, 0.5), 0.2)  # takes the noise out
        >>> samples = ex.sample(kernel, jnp.zeros(2), 2_000, num_chains=4, key=jax.random.key(0),
        ...     progress=False)
        >>> bool(jnp.all(jnp.abs(samples.position.mean(axis=(0, 1))) < jnp.array([0.25, 0.5])))
        True
    """

    gradient: GradientEstimator
    covariance: Operator

    def __init__(self, gradient: GradientEstimator, covariance: Any) -> None:
        self.gradient = check_estimator(gradient)
        self.covariance = as_operator(covariance, "covariance").factorise("covariance")

    @property
    def target(self) -> AbstractTarget:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The inner estimator's target."""
        return self.gradient.target

    def init(self, key: PRNGKeyArray, position: PyTree) -> PyTree:
        """The inner estimator's state."""
        return self.gradient.init(key, position)

    def estimate(self, key: PRNGKeyArray, state: PyTree, position: PyTree) -> Estimated:
        """The inner estimate, with the known covariance in place of its own."""
        estimate, state = self.gradient.estimate(key, state, position)
        return dataclasses.replace(estimate, covariance=self.covariance), state


STRUCTURES = ("low rank", *OPERATORS)
ROWS = ("batch", "all")


class CovarianceState(eqx.Module):
    """The state of `ScoreCovariance`: the inner estimator's, and what is kept of the covariance."""

    gradient: Any
    covariance: Operator | None  # the present estimate, if a later step needs it
    weight: Float[Array, ""]  # the sum of the weights of the covariances in it
    step: Int[Array, ""]  # how many estimates there have been


class ScoreCovariance(GradientEstimator):
    """Another estimator, with the covariance of its noise estimated from per-example scores.

    V = c S: S is the covariance of the scores grad log p(x_i | position) with divisor n - 1, or,
    where there is a control variate, of what it leaves of them (see the estimator), and
    c is N^2 / n for rows drawn with replacement and N (N - n) / n without. From the batch's own
    scores V costs no further evaluation, since the gradient is their sum, and is unbiased, of
    rank at most n - 1. Noise compensation with it gives each step the right covariance in the
    mean over batches. But it is not independent of the gradient, so higher moments of the step
    differ, and where d is much larger than n its largest eigenvalue is some d / n times that of
    V, so that compensation allows steps so much smaller. From all rows V is exact.

    An average of the covariances V_k measured so far, k = 1, 2, ..., is
        V <- (1 - w) V + w V_k,   w = (1 - average) / (1 - average^k)   or   w = 1 / k for "all".
    It is steadier, and lags: it belongs to the positions of the last 1 / (1 - average) renewals.
    The mean of the whole history tends to a constant, the mean of V over the posterior, so it is
    wrong wherever V depends on the position.

    With `ShuffledEpochs` V is that of one batch alone; batches of one pass depend on each other,
    and their noise cancels in the long run, which V does not show; so with a source, whose rows
    must be in random order. With `Neighbours` V is right if the rows are in random order.

    Args:
        gradient: an estimator that gives the scores of its batch: ex.Minibatch,
            ex.ControlVariate, ex.SVRG, ex.SAGA.
        structure: "low rank", O(n d) numbers, never more than the d x d matrix, which it is
            where there are at least d scores; "dense", the matrix; "diagonal", the variances;
            "scalar", their mean, trace / d.
        rows: "batch", or "all": exact, at all N scores for each renewal, in memory for
            `chunk` scores ("low rank" keeps all N).
        average: None for the last measurement alone; the decay of a moving average, in (0, 1),
            such as 0.99; or "all" for the mean of the whole history. Not for "low rank".
        refresh: measure at every step whose number is a multiple of this, and keep V between,
            where the plain gradient is used.
        chunk: how many scores are computed at a time with rows="all".

    Raises:
        TypeError: not an estimator that gives scores, rows="all" of a source, or an argument of
            the wrong type.
        ValueError: a batch of one, an unknown structure, a number out of range, or an average of
            low-rank covariances.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> x = jnp.linspace(-1.0, 3.0, 100)
        >>> model = ex.Posterior(lambda m: -0.5 * m**2, lambda m, x: -0.5 * (x - m) ** 2, x)
        >>> gradient = ex.ScoreCovariance(ex.Minibatch(model, 10))
        >>> kernel = ex.sgld(gradient, 3e-4, compensate=True)  # injects less, by what V adds
        >>> samples = ex.sample(kernel, jnp.float32(1), 2000, key=jax.random.key(0), progress=False)
        >>> bool(abs(samples.position.mean() - 100 / 101) < 0.1)
        True

    Reference:
        Ahn, Korattikara and Welling, Bayesian posterior sampling via stochastic gradient Fisher
        scoring, 2012. Matthews and Weare, Langevin Markov chain Monte Carlo with stochastic
        gradients, 2018, Eq. (4).
    """

    gradient: Any
    decay: Float[Array, ""] | None
    structure: str = eqx.field(static=True)
    rows: str = eqx.field(static=True)
    refresh: int = eqx.field(static=True)
    chunk: int = eqx.field(static=True)

    def __init__(
        self,
        gradient: Any,
        structure: str = "low rank",
        *,
        rows: str = "batch",
        average: Any = None,
        refresh: Any = 1,
        chunk: Any = 256,
    ) -> None:
        choice("structure", structure, STRUCTURES)
        choice("rows", rows, ROWS)
        self.gradient = check_estimator(gradient)
        if rows == "batch":
            check_scores(gradient, "ScoreCovariance")
        elif not isinstance(gradient, BatchEstimator):
            raise TypeError(
                "rows='all' needs an estimator from batches, such as ex.Minibatch, not "
                f"{type(gradient).__name__}. Try rows='batch'."
            )
        elif gradient.target.num_data < 2:
            raise ValueError("one example has no covariance. Try ex.FullGradient(posterior).")
        else:
            check_resident(gradient.target, "rows='all'", "rows='batch'")
        if structure == "low rank" and average is not None:
            raise ValueError(
                f"average={average!r} can't be had with structure='low rank': each batch would "
                "add n to the rank of the average. Try structure='diagonal' or 'dense', or "
                "average=None."
            )
        self.structure, self.rows = structure, rows
        self.decay = _decay(average)
        self.refresh = whole_number("refresh", refresh, hint="Try 10.")
        self.chunk = whole_number("chunk", chunk, hint="Try 256.")

    @property
    def target(self) -> AbstractTarget:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The inner estimator's target."""
        return self.gradient.target

    def init(self, key: PRNGKeyArray, position: PyTree) -> CovarianceState:
        """Nothing measured yet; the first estimate does."""
        gradient, covariance = self.gradient.init(key, position), None
        if self.decay is not None or self.refresh > 1:
            shapes = jax.eval_shape(lambda *args: self._measure(*args), key, gradient, position)[1]
            covariance = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
        return CovarianceState(gradient, covariance, jnp.zeros((), float), jnp.int32(0))

    def estimate(
        self, key: PRNGKeyArray, state: CovarianceState, position: PyTree
    ) -> tuple[Estimate, CovarianceState]:
        """The inner estimate, with the covariance measured now or kept."""
        due = state.step % self.refresh == 0
        block, _ = detach(state.gradient)  # a branch that returned its rows would copy them

        def renewed() -> tuple[Estimate, PyTree, Float[Array, ""]]:
            estimate, measured, gradient = self._measure(key, state.gradient, position)
            covariance, weight = self._average(state, measured)
            return dataclasses.replace(estimate, covariance=covariance), detach(gradient)[1], weight

        def kept() -> tuple[Estimate, PyTree, Float[Array, ""]]:
            estimate, gradient = self.gradient.estimate(key, state.gradient, position)
            known = dataclasses.replace(estimate, covariance=state.covariance)
            return known, detach(gradient)[1], state.weight

        def unmeasured(found: tuple[Any, ...]) -> tuple[Estimate, PyTree, Float[Array, ""]]:
            estimate, gradient, _ = found
            cost = estimate.evaluations - self._cost_of_measuring
            kept = dataclasses.replace(estimate, covariance=state.covariance, evaluations=cost)
            return kept, gradient, state.weight

        if self.refresh == 1:
            estimate, gradient, weight = renewed()
        else:
            estimate, gradient, weight = when(due, renewed, kept, unmeasured)
        covariance = None if state.covariance is None else estimate.covariance
        gradient = attach(block, gradient)
        return estimate, CovarianceState(gradient, covariance, weight, state.step + 1)

    def _measure(
        self, key: PRNGKeyArray, state: PyTree, position: PyTree
    ) -> tuple[Estimate, Operator, PyTree]:
        """The inner estimate, the covariance by this batch or by all rows, the inner state."""
        if self.rows == "batch":
            check_scores(self.gradient, "ScoreCovariance")  # a batch of the user's may be of one
            estimate, scores, state = self.gradient.estimate_with_scores(key, state, position)
            structure = self._kept_as(self.gradient.batch_size, position)
            covariance = noise_operator(scores, self.gradient.noise_factor, structure)
            return estimate, covariance, state
        estimate, after = self.gradient.estimate(key, state, position)
        cost = estimate.evaluations + self._cost_of_measuring
        estimate = dataclasses.replace(estimate, covariance=None, evaluations=cost)
        return estimate, self._exact(state, position), after

    @property
    def _cost_of_measuring(self) -> int:
        """Evaluations beyond those of the estimate."""
        if self.rows == "batch":
            return 0
        return self.gradient.evaluations_per_example * self.gradient.target.num_data

    def _exact(self, state: PyTree, position: PyTree) -> Operator:
        """The covariance by all N scores."""
        rows = self.gradient.target.num_data

        def scores_of(numbers: Int[Array, " k"]) -> PyTree:
            return self.gradient.scores_of(state, position, numbers)

        factor = factor_of_all(self.gradient)
        structure = self._kept_as(rows, position)
        if structure == "low rank":
            return noise_operator(scores_of(jnp.arange(rows)), factor, structure)
        covariance = sample_covariance_in_chunks(scores_of, rows, structure, self.chunk)
        return OPERATORS[structure](tree.scale(factor, covariance))

    def _kept_as(self, num_scores: int, position: PyTree) -> str:
        """The structure, by shapes: a root of d rows or more is no smaller than the matrix."""
        wide = num_scores < tree.size(position)
        return self.structure if self.structure != "low rank" or wide else "dense"

    def _average(self, state: CovarianceState, new: Operator) -> tuple[Operator, Float[Array, ""]]:
        """The average with the new covariance in it, and the sum of its weights."""
        if state.covariance is None:
            return new, state.weight
        self._check_kept(state.covariance, new)
        # A sum of decaying weights counts to k where nothing decays, and stays 1 where all does.
        total = 1.0 + (0.0 if self.decay is None else self.decay) * state.weight
        share = 1.0 / total
        mixed = jax.tree.map(
            lambda v, w: tree.cast(1.0 - share, v) * v + tree.cast(share, v) * w,
            state.covariance,
            new,
        )
        return mixed, jnp.asarray(total, state.weight.dtype)

    def _check_kept(self, kept: Operator, new: Operator) -> None:
        """Refuse a batch whose covariance has another shape than the one that is kept."""
        if [x.shape for x in jax.tree.leaves(kept)] != [x.shape for x in jax.tree.leaves(new)]:
            raise ValueError(
                f"refresh={self.refresh} with structure='low rank' keeps the scores of a batch, so "
                f"every batch must have as many rows as the first, not {self.gradient.batch_size}. "
                "Pass batches of one size, or use refresh=1 or structure='diagonal'."
            )


def _decay(average: Any) -> Float[Array, ""] | None:
    if average is None:
        return None
    if isinstance(average, str):
        if average != "all":
            raise ValueError(f"average must be None, a decay in (0, 1) or 'all', not {average!r}.")
        return jnp.asarray(1.0, float)
    if isinstance(average, bool) or not isinstance(average, int | float | np.number | jax.Array):
        raise TypeError(f"average must be None, a decay in (0, 1) or 'all', not {average!r}.")
    if not 0.0 < float(average) < 1.0:
        raise ValueError(
            f"average must be a decay in (0, 1), such as 0.99, not {average!r}. For the mean of "
            "all that was measured try average='all', for the last alone average=None."
        )
    return jnp.asarray(average, float)
