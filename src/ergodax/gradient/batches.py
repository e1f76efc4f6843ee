"""What all estimators from batches have in common."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from ergodax.data.arrays import needs_memory
from ergodax.data.batching import Batching, WithoutReplacement, WithReplacement
from ergodax.data.source import Source, stacked
from ergodax.data.streamed import Streamed, batch_at
from ergodax.gradient.base import Estimate, GradientEstimator
from ergodax.target.posterior import Posterior


class BatchEstimator(GradientEstimator):
    """An estimator whose noise is that of the mean of n scores, one for each row of a batch.

    gradient = known - N mean(scores), where `known` and the score of each row are functions of
    state and position. With S the covariance of the batch's scores (divisor n - 1), that of the
    gradient is estimated by noise_factor S.

    Attributes:
        target: the posterior.
        batch_size: n, examples in a batch.
        batching: the scheme that draws the rows.
    """

    target: eqx.AbstractVar[Posterior]
    batch_size: eqx.AbstractVar[int]
    batching: eqx.AbstractVar[Batching]

    @property
    def noise_factor(self) -> float:
        """The c for which c S estimates the covariance of `gradient` without bias.

        S is the covariance of the batch's scores, with divisor n - 1; see `Batching`.
        """
        return self.batching.noise_factor(self.target.num_data, self.batch_size)

    @property
    @abc.abstractmethod
    def evaluations_per_example(self) -> int:
        """Gradients of single examples that the score of one row costs."""

    def given(self, batch: PyTree) -> "BatchEstimator":
        """This estimator with a batch of the user's in place of those that it would draw.

        Args:
            batch: a tree like the data with a leading axis of n rows; n may be any number.

        Raises:
            ValueError: its rows are not like those of the data.
        """
        rows, size = checked_batch(batch, self.target.data)
        leaves, structure = jax.tree.flatten(self)
        new = structure.unflatten(leaves)
        # Not by __init__, which would check the data and choose a scheme anew.
        object.__setattr__(new, "batching", Given(rows, self.batching))
        object.__setattr__(new, "batch_size", size)
        return new

    def draw(self, key: PRNGKeyArray, state: Any) -> tuple[PyTree, Any]:
        """The next batch, a tree like the data with leading axis n, and the state after it.

        Args:
            key: a fresh key.
            state: of the batching scheme.
        """
        if isinstance(self.batching, Given):
            return self.batching.batch, state
        rows, state = self.batching.draw(key, state, self.target.num_data, self.batch_size)
        return batch_at(self.target.data, state, rows), state

    @abc.abstractmethod
    def scores_of(self, state: Any, position: PyTree, rows: Int[Array, " k"]) -> PyTree:
        """The scores that these rows would have in the next estimate, leading axis k.

        Args:
            state: the state that the estimate will be given.
            position: and the position.
            rows: numbers of rows.
        """

    @abc.abstractmethod
    def estimate_with_scores(
        self, key: PRNGKeyArray, state: Any, position: PyTree
    ) -> tuple[Estimate, PyTree, Any]:
        """What `estimate` returns, and the scores that it is the mean of, in one pass.

        Args:
            key: a fresh key.
            state: from `init` or the estimate before.
            position: a tree of floating-point arrays.

        Returns:
            The Estimate, the scores as a tree like `position` with leading axis n, and the next
            state.
        """


class Given(Batching):
    """A batch of the user's, in place of those of a scheme; its noise is taken to be the same.

    Attributes:
        batch: the rows.
        scheme: what would draw them otherwise.
    """

    batch: PyTree
    scheme: Batching

    @property
    def distinct(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As the scheme's."""
        return self.scheme.distinct

    def init(self, key: PRNGKeyArray, num_rows: int) -> Any:
        """The state of the scheme, which a given batch leaves as it is."""
        return self.scheme.init(key, num_rows)

    def draw(
        self, key: PRNGKeyArray, state: Any, num_rows: int, batch_size: int
    ) -> tuple[Int[Array, " n"], Any]:
        """Not to be had.

        Raises:
            TypeError: always; the rows of a given batch have no numbers.
        """
        raise TypeError("the rows of a given batch have no numbers.")


def checked_batch(batch: PyTree, data: PyTree) -> tuple[PyTree, int]:
    """A user's batch as arrays of the data's dtypes, and how many rows it has.

    Args:
        batch: a tree of arrays with a leading axis.
        data: of the posterior.

    Raises:
        ValueError: the rows are not like those of the data, or there is none.
    """
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
    rows = jax.tree.map(lambda a, b: jnp.asarray(a).astype(b.dtype), batch, one)
    return rows, sizes.pop()[0]


def checked_batching(
    posterior: Any, batch_size: Any, replace: bool, batching: Batching | None
) -> Batching:
    """The scheme that draws the batches, after a look at what it will draw from.

    Args:
        posterior: must be a Posterior.
        batch_size: n.
        replace: whether to draw with replacement.
        batching: overrides `replace` where given.

    Raises:
        TypeError: not a Posterior, or a batch size that is not an integer.
        ValueError: a batch size outside [1, N], or larger than a block of a source; a scheme
            chosen for a source.
    """
    if not isinstance(posterior, Posterior):
        raise TypeError(
            f"posterior must be an ex.Posterior (a prior, a likelihood, data), not "
            f"{posterior!r}. A target without data has no batches: use ex.FullGradient."
        )
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
    """Refuse a source.

    Args:
        posterior: whose data are looked at; anything else is let through.
        user: what needs all data.
        instead: what does without.

    Raises:
        TypeError: the data are a source.
    """
    if isinstance(getattr(posterior, "data", None), Source):
        raise TypeError(needs_memory(user, instead))


def corrected(
    posterior: Posterior,
    position: PyTree,
    known: tuple[Float[Array, ""], PyTree],
    rest: tuple[Float[Array, ""], PyTree],
    batch_size: int,
) -> tuple[Float[Array, ""], PyTree]:
    """U and its gradient, from what is known of the log-likelihood and a batch's share of the rest.

    Args:
        posterior: for the prior, and N.
        position: x.
        known: a function close to the log-likelihood of all data, and its gradient, at x.
        rest: the sum over the batch of what it leaves, and its gradient.
        batch_size: n.
    """
    prior, slope = posterior.prior_and_gradient(position)
    weight = posterior.num_data / batch_size
    potential = -prior - known[0] - weight * rest[0]
    gradient = jax.tree.map(lambda p, k, r: -p - k - weight * r, slope, known[1], rest[1])
    return potential, gradient


def likelihoods_and_scores(
    posterior: Posterior, position: PyTree, batch: PyTree
) -> tuple[Float[Array, " n"], PyTree]:
    """The log-likelihood of each example of a batch and its gradient, leading axis n."""

    def one(position: PyTree, example: PyTree) -> Float[Array, ""]:
        single = jax.tree.map(lambda x: x[None], example)
        return posterior.log_likelihoods(position, single)[0]

    return jax.vmap(jax.value_and_grad(one), (None, 0))(position, batch)
