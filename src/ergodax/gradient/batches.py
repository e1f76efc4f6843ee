"""Estimators from batches: what they have in common, and the plain one."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.checks import flag, instance
from ergodax.data.arrays import needs_memory, take
from ergodax.data.batching import Batching, Drawn, WithoutReplacement, WithReplacement
from ergodax.data.block import Streamed, batch_at
from ergodax.data.source import Source, check_integers, stacked
from ergodax.gradient.base import Estimate, Estimated, GradientEstimator
from ergodax.target.posterior import Posterior


class BatchEstimator(GradientEstimator):
    """An estimator whose noise is that of the mean of n scores, one for each row of a batch.

    gradient = known - N mean(scores), where `known` and the score of each row are functions of
    state and position; `batching` draws the rows.
    """

    # A narrower type is sound, since modules are frozen, which pyright does not know.
    target: Posterior  # pyright: ignore[reportIncompatibleVariableOverride]
    batch_size: int = eqx.field(static=True)
    batching: Batching
    evaluations_per_example: int = eqx.field(static=True)  # gradients that a row's score costs

    @property
    def noise_factor(self) -> float:
        """The c for which c S, S the scores' covariance, estimates that of `gradient` unbiased."""
        return self.batching.noise_factor(self.target.num_data, self.batch_size)

    def given(self, batch: PyTree) -> "BatchEstimator":
        """This estimator with a batch of the user's in place of those that it would draw.

        Args:
            batch: a tree like the data with a leading axis of n rows; n may be any number.

        Raises:
            ValueError: its rows are not like those of the data.
        """
        rows, size = checked_batch(batch, self.target.data)
        return self.drawing(Given(rows, self.batching), size)

    def drawing(self, batching: Batching, size: int) -> "BatchEstimator":
        """This estimator with batches of `size` rows from another scheme."""
        leaves, structure = jax.tree.flatten(self)
        new = structure.unflatten(leaves)
        # Not by __init__, which would check the data and choose a scheme anew.
        object.__setattr__(new, "batching", batching)
        object.__setattr__(new, "batch_size", size)
        return new

    def draw(self, key: PRNGKeyArray, state: PyTree) -> tuple[PyTree, PyTree]:
        """The next batch, a tree like the data with leading axis n, and the state after it."""
        if isinstance(self.batching, Given):
            return self.batching.batch, state
        rows, state = self.batching.draw(key, state, self.target.num_data, self.batch_size)
        return batch_at(self.target.data, state, rows), state

    @abc.abstractmethod
    def scores_of(self, state: PyTree, position: PyTree, rows: Int[Array, " k"]) -> PyTree:
        """The scores that these rows would have in the next estimate, leading axis k."""

    @abc.abstractmethod
    def estimate_with_scores(
        self, key: PRNGKeyArray, state: PyTree, position: PyTree
    ) -> tuple[Estimate, PyTree, PyTree]:
        """What `estimate` returns, and the scores that it is the mean of, in one pass."""


class Given(Batching):
    """A batch of the user's, in place of those of a scheme; its noise is taken to be the same."""

    batch: PyTree
    scheme: Batching

    @property
    def distinct(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As the scheme's."""
        return self.scheme.distinct

    def init(self, key: PRNGKeyArray, num_rows: int) -> PyTree:
        """The state of the scheme, which a given batch leaves as it is."""
        return self.scheme.init(key, num_rows)

    def draw(self, key: PRNGKeyArray, state: PyTree, num_rows: int, batch_size: int) -> Drawn:
        """Not to be had."""
        raise TypeError("the rows of a given batch have no numbers.")


def checked_batch(batch: PyTree, data: PyTree) -> tuple[PyTree, int]:
    """A user's batch in the data's dtypes, and its number of rows. Raises: ValueError."""
    if isinstance(data, Source):
        one = jax.eval_shape(data.as_seen, stacked(data.example, 1))
    else:
        one = jax.tree.map(lambda x: jax.ShapeDtypeStruct((1, *x.shape[1:]), x.dtype), data)
    shapes = jax.tree.map(np.shape, batch)
    sizes = {np.shape(leaf)[:1] for leaf in jax.tree.leaves(batch)}
    alike = jax.tree.structure(batch) == jax.tree.structure(one) and all(
        np.shape(a)[1:] == b.shape[1:]
        for a, b in zip(jax.tree.leaves(batch), jax.tree.leaves(one), strict=True)
    )
    if not alike or len(sizes) != 1 or sizes <= {(), (0,)}:
        like = jax.tree.map(lambda x: ("n", *x.shape[1:]), one)
        raise ValueError(
            f"batch must have rows like those of the data, shapes {like} with one n for all, not "
            f"{shapes}."
        )
    for a, b in zip(jax.tree.leaves(batch), jax.tree.leaves(one), strict=True):
        if isinstance(a, np.ndarray) and np.issubdtype(b.dtype, np.integer):
            check_integers(a, "batch", b.dtype)
    rows = jax.tree.map(lambda a, b: jnp.asarray(a).astype(b.dtype), batch, one)
    return rows, sizes.pop()[0]


def checked_batching(
    posterior: Any, batch_size: Any, replace: bool, batching: Batching | None
) -> Batching:
    """The scheme that draws the batches, after a look at what it will draw from.

    Raises: TypeError for another posterior or scheme; ValueError for a batch or a scheme that the
    data don't allow.
    """
    if not isinstance(posterior, Posterior):
        raise TypeError(
            f"posterior must be an ex.Posterior (a prior, a likelihood, data), not "
            f"{posterior!r}. A target without data has no batches: use ex.FullGradient."
        )
    flag("replace", replace)
    if batching is not None:
        instance("batching", batching, Batching, "a scheme such as ex.data.ShuffledEpochs()")
    if isinstance(posterior.data, Source):
        return _streamed(posterior.data, batch_size, replace, batching)
    scheme = batching or (WithReplacement() if replace else WithoutReplacement())
    scheme.check(posterior.num_data, batch_size)
    return scheme


def _streamed(
    source: Source, batch_size: Any, replace: bool, batching: Batching | None
) -> Streamed:
    """The only scheme for a source."""
    if replace or batching is not None:
        chosen = "replace=True" if batching is None else f"batching={batching!r}"
        raise ValueError(
            f"{chosen} can't be had with a source: only the rows of the present block are in "
            "memory, and they are used in random order, each as often as source.passes says. "
            "Leave it out."
        )
    Streamed(source, 1).check(source.num_rows, batch_size)
    if batch_size > source.block_rows:
        raise ValueError(
            f"batch_size={batch_size} is larger than a block of the source, which has "
            f"{source.block_rows} rows. Raise block_rows."
        )
    return Streamed(source, int(batch_size))


def check_resident(posterior: Any, user: str, instead: str) -> None:
    """Refuse a source. Raises: TypeError: the data are a source."""
    if isinstance(posterior, Posterior) and isinstance(posterior.data, Source):
        raise TypeError(needs_memory(user, instead))


def corrected(
    posterior: Posterior,
    position: PyTree,
    known: tuple[Float[Array, ""], PyTree],
    rest: tuple[Float[Array, ""], PyTree],
    batch_size: int,
) -> tuple[Float[Array, ""], PyTree]:
    """U and its gradient, from what is known of the log-likelihood and a batch's share of the rest.

    `known` is a function close to the log-likelihood of all data, with its gradient; `rest` is the
    sum over the batch of what it leaves, with its gradient.
    """
    prior, slope = posterior.prior_and_gradient(position)
    weight = posterior.num_data / batch_size
    potential = -prior - known[0] - weight * rest[0]
    gradient = jax.tree.map(lambda p, k, r: -p - k - weight * r, slope, known[1], rest[1])
    return potential, gradient


class Minibatch(BatchEstimator):
    """-grad log_prior - (N/n) sum over the batch of grad log_likelihood: unbiased, cost O(n).

    Args:
        posterior: a Posterior.
        batch_size: n, examples in a batch.
        replace: draw rows with replacement; the default draws n distinct rows, at the same
            cost and with less noise.
        batching: another scheme of `ergodax.data`, such as ShuffledEpochs(); overrides `replace`.

    Raises:
        TypeError: not a Posterior, a batch size that is not an integer, or not a scheme.
        ValueError: a batch size outside [1, N].

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> x = jnp.linspace(-1.0, 3.0, 100)
        >>> model = ex.Posterior(lambda m: -0.5 * m**2, lambda m, x: -0.5 * (x - m) ** 2, x)
        >>> gradient = ex.Minibatch(model, 10)
        >>> state = gradient.init(jax.random.key(0), jnp.float32(1.0))
        >>> keys = jax.random.split(jax.random.key(1), 4_000)
        >>> one = lambda key: gradient.estimate(key, state, jnp.float32(1.0))[0].gradient
        >>> found = jax.vmap(one)(keys)
        >>> bool(abs(found.mean() - 1.0) < 4.0 * found.std() / 4_000**0.5)  # unbiased
        True
    """

    def __init__(
        self,
        posterior: Posterior,
        batch_size: int | np.integer,
        replace: bool = False,
        *,
        batching: Batching | None = None,
    ) -> None:
        self.batching = checked_batching(posterior, batch_size, replace, batching)
        self.target, self.batch_size = posterior, int(batch_size)
        self.evaluations_per_example = 1

    def init(self, key: PRNGKeyArray, position: PyTree) -> PyTree:
        """The state of the batching scheme; checks that the likelihood fits `position`."""
        self.target.check(position)
        return self.batching.init(key, self.target.num_data)

    def estimate(self, key: PRNGKeyArray, state: PyTree, position: PyTree) -> Estimated:
        """The gradient on a fresh batch."""
        batch, state = self.draw(key, state)
        potential, gradient = jax.value_and_grad(self.target.potential_on)(position, batch)
        return Estimate(gradient, potential, evaluations=jnp.int32(self.batch_size)), state

    def per_example_gradients(self, key: PRNGKeyArray, state: PyTree, position: PyTree) -> PyTree:
        """The scores of the batch that `estimate` draws with this key and state, leading axis n.

        With s the mean of the scores, the estimate's gradient is -grad log_prior - N s.
        """
        batch, _ = self.draw(key, state)
        return self.target.per_example_gradients(position, batch)

    def scores_of(self, state: PyTree, position: PyTree, rows: Int[Array, " k"]) -> PyTree:
        """The scores of these rows."""
        return self.target.per_example_gradients(position, take(self.target.data, rows))

    def estimate_with_scores(
        self, key: PRNGKeyArray, state: PyTree, position: PyTree
    ) -> tuple[Estimate, PyTree, PyTree]:
        """What `estimate` returns, and the scores that it is the sum of, in one pass."""
        batch, state = self.draw(key, state)
        posterior, n = self.target, self.target.num_data
        likelihoods, scores = posterior.likelihoods_and_scores(position, batch)
        prior, slope = posterior.prior_and_gradient(position)
        gradient = jax.tree.map(lambda p, s: -p - n * s, slope, tree.mean_rows(scores))
        potential = -prior - n * jnp.mean(likelihoods)
        return Estimate(gradient, potential, evaluations=jnp.int32(self.batch_size)), scores, state
