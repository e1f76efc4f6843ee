"""A posterior condensed: a few of its rows as they are, a Taylor polynomial in place of the rest.

Where many rows meet, most of them hardly bend within the posterior, and the few that do are those
that make it other than Gaussian: they stay.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PyTree

from ergodax import tree
from ergodax.checks import whole_number
from ergodax.data.arrays import take_at_once
from ergodax.exact.proposal import (
    centre_of,
    check_posterior,
    number,
)
from ergodax.gradient.expansion import Expansion, expand
from ergodax.target.base import AbstractTarget
from ergodax.target.mode import Mode
from ergodax.target.posterior import Posterior

SPREAD = 0.4  # at which two thirds to three quarters of `delayed_acceptance`'s proposals pass
FEWEST = 256  # rows that are kept at least
CHUNK = 4096  # rows at a time in a pass over the data


class Rows(AbstractTarget):
    """Some rows' part of a potential: minus the sum of l_i(x) - l_i(c), subtracted row by row."""

    posterior: Posterior
    rows: PyTree
    at_centre: Float[Array, " rows"]

    @property
    def evaluations(self) -> int:
        """How many rows."""
        return self.at_centre.shape[0]

    def potential(self, position: PyTree) -> Float[Array, ""]:
        """0 at the centre."""
        values = self.posterior.log_likelihoods(position, self.rows)
        return -jnp.sum(values - self.at_centre.astype(values.dtype))

    def taken(self, which: Int[np.ndarray, " fewer"]) -> "Rows":
        """Some of them, by their places."""
        places = jnp.asarray(which, jnp.int32)
        return Rows(self.posterior, take_at_once(self.rows, places), self.at_centre[places])


class Condensed(AbstractTarget):
    """The target that `condense` returns.

    With l_i the log-likelihood of row i, c the centre, and G and H the gradient and the Hessian at
    c of the sum of those l_i that are not kept,
        U*(x) = -log_prior(x) - sum over the kept rows of [l_i(x) - l_i(c)]
                - G . (x - c) - (x - c) . H (x - c) / 2.
    That costs as many evaluations as rows are kept.

    Attributes:
        rows: the numbers of the rows that are kept.
        kept: they themselves.
        remainders: the root mean square, over the draws, of what a polynomial would leave of each.
        rest: the polynomial of the others, its value at c left out so that no digits are lost.
        whole: all rows.
        spread: the standard deviation, over the draws that `condense` was given, of `correction`.
    """

    rows: Int[Array, " kept"]
    kept: Rows
    remainders: Float[Array, " kept"]
    rest: Expansion
    whole: Rows
    spread: Float[Array, ""]

    @property
    def posterior(self) -> Posterior:
        """Of which this is a surrogate."""
        return self.whole.posterior

    @property
    def evaluations(self) -> int:
        """How many rows are kept."""
        return self.kept.evaluations

    def potential(self, position: PyTree) -> Float[Array, ""]:
        """U*(x), which is -log_prior(c) at the centre."""
        prior = self.posterior.prior(position)
        return -prior + self.kept.potential(position) - self._polynomial(position)

    def correction(self, position: PyTree) -> Float[Array, ""]:
        """U(x) - U*(x) less the same at the centre; costs N evaluations."""
        kept = self.kept.potential(position)
        return self.whole.potential(position) - kept + self._polynomial(position)

    def split(self, steep: Int[np.ndarray, " fewer"]) -> "tuple[Condensed, Rows]":
        """Two parts whose sum this is, for `ex.split_hmc`: all but some of the kept rows, and them.

        Args:
            steep: the places of the rows among those that are kept.

        Raises:
            TypeError: places that are not integers.
            ValueError: places that there are not.
        """
        steep = _numbers(steep, "steep", self.evaluations)
        others = np.setdiff1d(np.arange(self.evaluations), steep)
        places = jnp.asarray(others, jnp.int32)
        parts = self.rows[places], self.kept.taken(others), self.remainders[places]
        slow = eqx.tree_at(lambda c: (c.rows, c.kept, c.remainders), self, parts)
        return slow, self.kept.taken(steep)

    def _polynomial(self, position: PyTree) -> Float[Array, ""]:
        return self.rest.cast(position)(position)[0]


def condense(
    posterior: Posterior,
    centre: PyTree | Mode,
    draws: PyTree,
    *,
    spread: float = SPREAD,
    most: int | np.integer | None = None,
    keep: Int[np.ndarray, " known"] | None = None,
) -> Condensed:
    """Keep the rows whose log-likelihood bends most over some draws; expand the others at a centre.

    As many rows are kept, 256 or twice, four times ... that, as leave a sum of the others'
    remainders with a standard deviation of at most `spread` over the draws. What is wrong with the
    result, as with any surrogate, `delayed_acceptance` takes away.

    Args:
        posterior: with data in memory, N rows; d x d numbers are kept.
        centre: of the polynomial, a position or what ex.find_mode returns; the mean of the draws at
            best.
        draws: positions with a leading axis, 16 or more, spread like the posterior or wider.
        spread: see above, in units of the log density.
        most: rows that are kept at most; an eighth of all by default.
        keep: the numbers of rows that are kept whatever the draws say, as far as `most` lets them.

    Returns:
        A Condensed target; its `spread` says what was reached.

    Raises:
        TypeError: not a Posterior, a source of data, or a number that is none or not an integer.
        ValueError: a number out of range, a centre or draws that do not fit the posterior or each
            other, or a log-likelihood that is not finite at the centre.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> x = jax.random.normal(jax.random.key(0), (5_000,))
        >>> posterior = ex.Posterior(lambda m: -0.5 * m**2, lambda m, x: -jnp.cosh(m - x), x)
        >>> draws = 0.02 * jax.random.normal(jax.random.key(1), (32,))
        >>> ex.exact.condense(posterior, jnp.zeros(()), draws).evaluations
        256
    """
    n = check_posterior(posterior).num_data
    most = max(1, n // 8) if most is None else whole_number("most", most)
    if most > n:
        raise ValueError(f"most must be at most the number of rows, {n}, not {most}.")
    enough = float(number("spread", spread))
    known = _numbers([] if keep is None else keep, "keep", n)
    centre = centre_of(centre, posterior.freeze)
    posterior.check(centre)
    draws = _like(centre, posterior.freeze(draws, "draws"))
    remainders = np.array(remainders_of_rows(posterior, centre, draws))
    rows, sizes, reached = _chosen(remainders, enough, most, known)
    rest = np.ones(n, np.float32)
    rest[rows] = 0.0
    expansion = expand(posterior, centre, CHUNK, order=2, weights=jnp.asarray(rest))
    if not tree.known_finite(expansion):
        raise ValueError(
            "the log-likelihood or a derivative of it is not finite at the centre. Try a centre "
            "from ex.find_mode, or see for which rows posterior.log_likelihoods is not."
        )
    none = jnp.zeros_like(expansion.value)
    whole = Rows(posterior, posterior.data, _log_likelihoods(posterior, centre))
    return Condensed(
        jnp.asarray(rows, jnp.int32),
        whole.taken(rows),
        jnp.asarray(sizes, none.dtype),
        eqx.tree_at(lambda e: e.value, expansion, none),
        whole,
        jnp.asarray(reached, none.dtype),
    )


def _numbers(values: Any, name: str, count: int) -> Int[np.ndarray, " some"]:
    """Numbers of rows, each once."""
    numbers = np.unique(np.asarray(values))
    if not numbers.size:
        return np.arange(0)
    if not np.issubdtype(numbers.dtype, np.integer):
        raise TypeError(f"{name} must be numbers of rows, integers, not {numbers.dtype}.")
    if numbers[0] < 0 or numbers[-1] >= count:
        wrong = numbers[0] if numbers[0] < 0 else numbers[-1]
        raise ValueError(f"{name} must be numbers from 0 to {count - 1}, but has {wrong}.")
    return numbers


def _like(centre: PyTree, draws: PyTree) -> PyTree:
    """Draws as the kernels hold positions, in the dtypes of the centre."""
    shapes = lambda x: [a.shape for a in jax.tree.leaves(x)]  # noqa: E731
    count = shapes(draws)[0][:1]
    same = jax.tree.structure(draws) == jax.tree.structure(centre)
    if not same or shapes(draws) != [count + shape for shape in shapes(centre)] or count < (2,):
        raise ValueError(
            "draws must be positions like the centre, at least 2 and 16 or more at best, along a "
            f"leading axis, but have leaves of shape {shapes(draws)} and the centre "
            f"{shapes(centre)}."
        )
    if not tree.known_finite(draws):
        raise ValueError("draws has values that are NaN or infinite. Drop these draws.")
    return jax.tree.map(lambda x, c: x.astype(c.dtype), draws, centre)


def _chosen(
    remainders: Float[np.ndarray, "n draws"],
    spread: float,
    most: int,
    known: Int[np.ndarray, " known"],
) -> tuple[Int[np.ndarray, " kept"], Float[np.ndarray, " kept"], float]:
    """The rows to be kept, the size of their remainders, and the sd of the sum of the others'."""
    with np.errstate(all="ignore"):  # a row that is not finite is none for a polynomial
        remainders -= remainders.mean(axis=1, keepdims=True)
        sizes = np.sqrt(np.mean(remainders**2, axis=1))
        sizes[~np.isfinite(sizes)] = np.inf
        first = sizes.copy()
        first[known] = np.inf
        order = np.argsort(-first, kind="stable")
        count = min(FEWEST, most)
        while True:
            left = float(remainders[order[count:]].sum(axis=0, dtype=np.float64).std())
            reached = left <= spread and count >= known.size
            if reached or count == most:
                rows = np.sort(order[:count])
                return rows, sizes[rows], left if np.isfinite(left) else np.inf
            count = min(2 * count, most)


@eqx.filter_jit
def remainders_of_rows(
    posterior: Posterior, centre: PyTree, draws: PyTree, order: int = 2
) -> Float[Array, "n draws"]:
    """What the polynomial of each row's log-likelihood, of order 1 or 2, leaves of it at each draw.

    The polynomial is the one at the centre.
    """

    def one(row: PyTree) -> Float[Array, " draws"]:
        single = jax.tree.map(lambda x: x[None], row)

        def at(position: PyTree) -> Float[Array, ""]:
            step = tree.subtract(position, centre)

            def along(t: Array) -> Float[Array, ""]:
                return posterior.log_likelihoods(tree.add_scaled(centre, t, step), single)[0]

            def slope(t: Array) -> tuple[Array, Array]:
                return jax.jvp(along, (t,), (jnp.ones_like(t),))

            zero = jnp.zeros((), tree.result_dtype(centre))
            (value, first), (_, second) = jax.jvp(slope, (zero,), (jnp.ones_like(zero),))
            left = along(jnp.ones_like(zero)) - value - first
            return left - 0.5 * second if order == 2 else left

        return jax.vmap(at)(draws)

    return lax.map(one, posterior.data, batch_size=CHUNK)


@eqx.filter_jit
def _log_likelihoods(posterior: Posterior, position: PyTree) -> Float[Array, " n"]:
    return posterior.log_likelihoods(position, posterior.data)
