"""How a batch of n rows is drawn from N: every scheme costs O(n), never O(N).

The permutation of all N rows that a draw without replacement suggests is what makes a
careless library hundreds of times slower; see `permutation`.
"""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from ergodax.checks import flag, whole_number
from ergodax.data.permutation import Permutation, scale_bits

Drawn = tuple[Int[Array, " n"], Any]  # the numbers of a batch's rows, and the state after it


class Batching(eqx.Module):
    """A scheme that draws row numbers. Its state, if any, lives in the gradient state.

    Attributes:
        distinct: whether the rows of a batch are n different ones.
    """

    distinct: ClassVar[bool] = True

    def noise_factor(self, num_rows: int, batch_size: int) -> float:
        """The c for which c S is an unbiased estimate of the gradient's noise covariance.

        S is the covariance of the scores of one batch, with divisor n - 1. With N rows, N^2 / n for
        a batch of n independent ones, N (N - n) / n for distinct ones.
        """
        rest = num_rows - batch_size if self.distinct else num_rows
        return num_rows * rest / batch_size

    def check(self, num_rows: int, batch_size: int | np.integer) -> None:
        """Refuse a batch size that the scheme can't draw.

        Raises:
            TypeError: batch_size is not an integer.
            ValueError: batch_size is out of range.
        """
        whole_number("batch_size", batch_size, hint="Try 100.")
        if batch_size > num_rows:
            raise ValueError(
                f"batch_size={batch_size} is larger than the data, which have {num_rows} rows. "
                f"Try batch_size={num_rows}, or ex.FullGradient."
            )

    @abc.abstractmethod
    def init(self, key: PRNGKeyArray, num_rows: int) -> Any:
        """The state before the first batch."""

    @abc.abstractmethod
    def draw(self, key: PRNGKeyArray, state: Any, num_rows: int, batch_size: int) -> Drawn:
        """The rows of the next batch and the state after it."""


class Independent(Batching):
    """A scheme whose batches do not depend on those before."""

    def init(self, key: PRNGKeyArray, num_rows: int) -> Any:
        """Nothing to remember."""
        return None


class WithReplacement(Independent):
    """Independent uniform rows; gradient noise has covariance N^2/n S_0.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> x = jnp.linspace(-1.0, 3.0, 100)
        >>> model = ex.Posterior(lambda m: -0.5 * m**2, lambda m, x: -0.5 * (x - m) ** 2, x)
        >>> gradient = ex.Minibatch(model, 10, batching=ex.data.WithReplacement())
        >>> kernel = ex.sgld(gradient, 1e-3)
        >>> samples = ex.sample(kernel, jnp.float32(1), 2000, key=jax.random.key(0), progress=False)
        >>> bool(abs(samples.position.mean() - 100 / 101) < 0.05)
        True
    """

    distinct: ClassVar[bool] = False

    def draw(self, key: PRNGKeyArray, state: Any, num_rows: int, batch_size: int) -> Drawn:
        """n independent uniform rows."""
        if num_rows <= 2**16:
            # One word a row instead of the two that randint draws to be fair for any range.
            words = jax.random.bits(key, (batch_size,), jnp.uint32)
            return scale_bits(words, num_rows).astype(jnp.int32), state
        return jax.random.randint(key, (batch_size,), 0, num_rows, jnp.int32), state


class WithoutReplacement(Independent):
    """n distinct rows, a fresh set at each step; covariance N(N-n)/n S_1."""

    def draw(self, key: PRNGKeyArray, state: Any, num_rows: int, batch_size: int) -> Drawn:
        """The first n places of a new permutation."""
        permutation = Permutation(num_rows)
        places = jnp.arange(batch_size, dtype=jnp.int32)
        return permutation(permutation.draw(key), places), state


class Neighbours(Independent):
    """n neighbouring rows from a uniform place on, the first following the last.

    Unbiased for data in any order, since every row is in n of the N possible batches. Where the
    rows are in random order its noise is that of n distinct random rows; where they are sorted
    it is far more. What it is for: data so large that each random row is a cache miss, which
    neighbouring rows are not.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> x = jnp.linspace(-1.0, 3.0, 100)
        >>> model = ex.Posterior(lambda m: -0.5 * m**2, lambda m, x: -0.5 * (x - m) ** 2, x)
        >>> rows = jax.random.permutation(jax.random.key(0), x)  # in random order
        >>> model = ex.Posterior(model.log_prior, model.log_likelihood, rows)
        >>> gradient = ex.Minibatch(model, 10, batching=ex.data.Neighbours())
        >>> kernel = ex.sgld(gradient, 1e-3)
        >>> samples = ex.sample(kernel, jnp.float32(1), 2000, key=jax.random.key(0), progress=False)
        >>> bool(abs(samples.position.mean() - 100 / 101) < 0.05)
        True
    """

    def draw(self, key: PRNGKeyArray, state: Any, num_rows: int, batch_size: int) -> Drawn:
        """A uniform first row and its n - 1 successors."""
        first = jax.random.randint(key, (), 0, num_rows, jnp.int32)
        # Counted from the end, since first + n could pass 2^31.
        rows = jnp.arange(batch_size, dtype=jnp.int32) - (num_rows - first)
        return jnp.where(rows < 0, rows + num_rows, rows), state


class ShuffledEpochs(Batching):
    """Passes over the data in random order, a new order each pass, or every second one.

    The last N mod n rows of a pass are left out, and are different ones in each. Batches of
    one pass are dependent, so the covariance formulas of independent batches do not hold.

    Args:
        symmetric: go through the batches of each order forward and then backward, so that two
            passes are one symmetric composition. The bias of a second-order scheme is then second
            order in h with batches too, but for the rows left out: their part is first order,
            2 (N mod n) / N of that of independent batches.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> x = jnp.linspace(-1.0, 3.0, 100)
        >>> model = ex.Posterior(lambda m: -0.5 * m**2, lambda m, x: -0.5 * (x - m) ** 2, x)
        >>> gradient = ex.Minibatch(model, 10, batching=ex.data.ShuffledEpochs())
        >>> kernel = ex.sgld(gradient, 1e-3)
        >>> samples = ex.sample(kernel, jnp.float32(1), 2000, key=jax.random.key(0), progress=False)
        >>> bool(abs(samples.position.mean() - 100 / 101) < 0.05)
        True
    """

    symmetric: bool = eqx.field(static=True, default=False)

    def __check_init__(self) -> None:
        """A flag must be one."""
        flag("symmetric", self.symmetric)

    def init(self, key: PRNGKeyArray, num_rows: int) -> Any:
        """A first order, and how many batches of it are used."""
        return Permutation(num_rows).draw(key), jnp.zeros((), jnp.int32)

    def draw(self, key: PRNGKeyArray, state: Any, num_rows: int, batch_size: int) -> Drawn:
        """The next n places of the present order; a new order after the last of its batches."""
        permutation = Permutation(num_rows)
        words, used = state
        last = (num_rows // batch_size) * (2 if self.symmetric else 1) - 1
        batch = jnp.minimum(used, last - used) if self.symmetric else used
        rows = permutation(words, batch * batch_size + jnp.arange(batch_size, dtype=jnp.int32))
        over = used == last
        words = jnp.where(over, permutation.draw(key), words)
        return rows, (words, jnp.where(over, 0, used + 1))
