"""A posterior condensed: a few of its rows as they are, a Taylor polynomial in place of the rest.

Where many rows meet, most of them hardly bend within the posterior, and the few that do are those
that make it other than Gaussian: they stay.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PyTree

from ergodax import tree
from ergodax.data.arrays import take
from ergodax.exact.proposal import centre_of, check_count, check_posterior
from ergodax.gradient.expansion import Expansion, expand
from ergodax.target.base import AbstractTarget
from ergodax.target.mode import Mode
from ergodax.target.posterior import Posterior

SPREAD = 0.4  # at which two thirds to three quarters of `delayed_acceptance`'s proposals pass
FEWEST = 256  # rows that are kept at least
CHUNK = 4096  # rows at a time in a pass over the data


class Rows(AbstractTarget):
    """Some rows' part of a posterior's potential: minus the sum of l_i(x) - l_i(c).

    Attributes:
        posterior: the whole.
        rows: their data.
        at_centre: l_i(c), subtracted row by row since sums would lose digits.
    """

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
        return Rows(self.posterior, _take(self.rows, places), self.at_centre[places])


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
        rest: the polynomial of the others, its value at c left out so that no digits are lost.
        whole: all rows.
        spread: the standard deviation, over the draws that `condense` was given, of `correction`.
    """

    rows: Int[Array, " kept"]
    kept: Rows
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
        prior = self.posterior.log_prior(tree.thaw(position))
        return -prior + self.kept.potential(position) - self._polynomial(position)

    def correction(self, position: PyTree) -> Float[Array, ""]:
        """U(x) - U*(x) less the same at the centre; costs N evaluations."""
        kept = self.kept.potential(position)
        return self.whole.potential(position) - kept + self._polynomial(position)

    def split(self, steep: Int[np.ndarray, " fewer"]) -> "tuple[Condensed, Rows]":
        """Two parts whose sum this is, for `ex.split_hmc`: all but some of the kept rows, and them.

        Args:
            steep: the places of the rows among those that are kept.
        """
        others = np.setdiff1d(np.arange(self.evaluations), steep)
        parts = self.rows[jnp.asarray(others)], self.kept.taken(others)
        return eqx.tree_at(lambda c: (c.rows, c.kept), self, parts), self.kept.taken(steep)

    def _polynomial(self, position: PyTree) -> Float[Array, ""]:
        return self.rest.cast(position)(position)[0]


def condense(
    posterior: Posterior,
    centre: PyTree | Mode,
    draws: PyTree,
    *,
    spread: float = SPREAD,
    most: int | None = None,
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
        keep: the numbers of rows that are kept whatever the draws say.

    Returns:
        A Condensed target; its `spread` says what was reached.

    Raises:
        TypeError: not a Posterior, a source of data, or a number that is not an integer.
        ValueError: a spread that is not positive, `most` out of range, or a centre or draws that do
            not fit the posterior.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> x = jax.random.normal(jax.random.key(0), (5_000,))
        >>> posterior = ex.Posterior(lambda m: -0.5 * m**2, lambda m, x: -jnp.cosh(m - x), x)
        >>> draws = 0.02 * jax.random.normal(jax.random.key(1), (32,))
        >>> ex.exact.condense(posterior, jnp.zeros(()), draws).evaluations
        256
    """
    n = check_posterior(posterior).num_data
    most = max(1, n // 8) if most is None else check_count(most, "most")
    if most > n:
        raise ValueError(f"most must be at most the number of rows, {n}, not {most}.")
    if not spread > 0:
        raise ValueError(f"spread must be positive, not {spread!r}. Try {SPREAD}.")
    centre, draws = centre_of(centre), tree.freeze(draws, "draws")
    posterior.check(centre)
    remainders = np.array(_remainders(posterior, centre, draws))
    rows, reached = _chosen(remainders, spread, most, keep)
    rest = np.ones(n, np.float32)
    rest[rows] = 0.0
    expansion = expand(posterior, centre, CHUNK, order=2, weights=jnp.asarray(rest))
    none = jnp.zeros_like(expansion.value)
    whole = Rows(posterior, posterior.data, _log_likelihoods(posterior, centre))
    return Condensed(
        jnp.asarray(rows, jnp.int32),
        whole.taken(rows),
        eqx.tree_at(lambda e: e.value, expansion, none),
        whole,
        jnp.asarray(reached, none.dtype),
    )


def _chosen(
    remainders: Float[np.ndarray, "n draws"],
    spread: float,
    most: int,
    keep: Int[np.ndarray, " known"] | None,
) -> tuple[Int[np.ndarray, " kept"], float]:
    """The rows to be kept, and the standard deviation of the sum of the others' remainders."""
    remainders -= remainders.mean(axis=1, keepdims=True)
    remainders[~np.isfinite(remainders)] = np.inf  # such a row is none for a polynomial
    sizes = np.mean(remainders**2, axis=1)
    if keep is not None:
        sizes[keep] = np.inf
    order = np.argsort(-sizes, kind="stable")
    count = min(FEWEST, most)
    while True:
        left = float(remainders[order[count:]].sum(axis=0, dtype=np.float64).std())
        if left <= spread or count == most:
            return np.sort(order[:count]), left
        count = min(2 * count, most)


@eqx.filter_jit
def _remainders(posterior: Posterior, centre: PyTree, draws: PyTree) -> Float[Array, "n draws"]:
    """What the second-order polynomial of each row's log-likelihood leaves of it at each draw."""

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
            return along(jnp.ones_like(zero)) - value - first - 0.5 * second

        return jax.vmap(at)(draws)

    return lax.map(one, posterior.data, batch_size=CHUNK)


@eqx.filter_jit
def _log_likelihoods(posterior: Posterior, position: PyTree) -> Float[Array, " n"]:
    return posterior.log_likelihoods(position, posterior.data)


_take = jax.jit(take)
