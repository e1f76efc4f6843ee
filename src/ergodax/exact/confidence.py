"""When a sequential test may stop: by a concentration inequality, or by a t-test."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Float, Int, PyTree

from ergodax import tree
from ergodax.checks import choice
from ergodax.exact.proposal import check_posterior, number
from ergodax.exact.sequential import (
    Seen,
    SequentialMetropolis,
    StoppingRule,
    TaylorProxy,
    look_times,
)
from ergodax.kernel import named
from ergodax.recipe.operators import as_definite
from ergodax.schedule import as_schedule
from ergodax.target.posterior import Posterior


class Drawn(NamedTuple):
    """Terms drawn without replacement: how many, of how many, their sd, the range of all."""

    count: Any
    num_rows: Any
    spread: Any
    span: Any


def _unseen_share(drawn: Drawn) -> Float[Array, ""]:
    """The factor rho by which the rows that are left reduce the variance."""
    t, n = drawn.count, drawn.num_rows
    return jnp.where(2 * t <= n, 1.0 - (t - 1.0) / n, (1.0 - t / n) * (1.0 + 1.0 / t))


def empirical_bernstein(drawn: Drawn, delta: Any) -> Float[Array, ""]:
    """Audibert, Munos and Szepesvari 2009; for independent draws, so for these as well."""
    log = jnp.log(3.0 / delta)
    return drawn.spread * jnp.sqrt(2.0 * log / drawn.count) + 3.0 * drawn.span * log / drawn.count


def bernstein_serfling(drawn: Drawn, delta: Any) -> Float[Array, ""]:
    """Bardenet and Maillard 2015."""
    log = jnp.log(5.0 / delta)
    factor = 7.0 / 3.0 + 3.0 / 2.0**0.5
    return (
        drawn.spread * jnp.sqrt(2.0 * _unseen_share(drawn) * log / drawn.count)
        + factor * drawn.span * log / drawn.count
    )


def hoeffding_serfling(drawn: Drawn, delta: Any) -> Float[Array, ""]:
    """Serfling 1974; needs no spread, and wins while few rows are seen."""
    return drawn.span * jnp.sqrt(_unseen_share(drawn) * jnp.log(2.0 / delta) / (2.0 * drawn.count))


def serfling(drawn: Drawn, delta: Any) -> Float[Array, ""]:
    """The lesser of the two bounds made for draws without replacement, each at delta / 2."""
    half = delta / 2.0
    return jnp.minimum(bernstein_serfling(drawn, half), hoeffding_serfling(drawn, half))


INEQUALITIES: dict[str, Callable[[Drawn, Any], Float[Array, ""]]] = {
    "serfling": serfling,
    "bernstein-serfling": bernstein_serfling,
    "hoeffding-serfling": hoeffding_serfling,
    "empirical bernstein": empirical_bernstein,
}


Bound = Callable[..., Array]  # (position, proposal[, centre]) -> R


class Concentration(StoppingRule):
    """An inequality that holds at all looks together with probability 1 - delta."""

    bound: Bound
    delta: Float[Array, ""]
    num_rows: int = eqx.field(static=True)
    inequality: str = eqx.field(static=True)

    def span(self, position: PyTree, proposal: PyTree, centre: PyTree) -> Array:
        """The user's bound, with the centre where there are proxies."""
        about = () if centre is None else (centre,)
        return jnp.asarray(self.bound(*(tree.thaw(x) for x in (position, proposal, *about))))

    def distance(self, seen: Seen, look: Int[Array, ""], span: Array | None) -> Float[Array, ""]:
        """The inequality at delta / (2 m^2) for the m-th look; these sum to less than delta."""
        assert span is not None  # this rule's own
        dtype = seen.mean.dtype
        m = (look + 1).astype(dtype)
        drawn = Drawn(
            seen.count.astype(dtype), self.num_rows, seen.spread, tree.cast(span, seen.mean)
        )
        return INEQUALITIES[self.inequality](drawn, tree.cast(self.delta, m) / (2.0 * m**2))


@named
def confidence(
    posterior: Posterior,
    step_size: Any,
    bound: Bound,
    *,
    covariance: Any = 1.0,
    delta: Any = 0.1,
    centre: Any = None,
    inequality: str = "serfling",
    batch_size: int = 100,
    growth: Any = 2.0,
) -> SequentialMetropolis:
    """The confidence sampler. APPROXIMATE: each decision is wrong with probability delta at most.

    State: position x. A random-walk Metropolis test that compares the mean of
    l_i = log p(y_i | x') - log p(y_i | x) over the rows seen so far with its threshold, and
    draws further rows, without replacement, until an inequality says that the mean of all lies
    on the same side:
        x' ~ N(x, h^2 covariance),  u ~ U(0, 1)
        psi = log(u p(x) / p(x')) / N;  t = batch_size, then growth times as many, ... up to N
        until |mean_t - psi| >= c_t(delta / (2 m^2)) at the m-th look, or t = N
        x+ = x' if mean_t > psi, else x
    With `centre`, l_i - xi_i takes the place of l_i, where xi_i is its Taylor polynomial of second
    order about the centre, and the sum of all xi_i, known from sums computed once, that of psi.

    Bias: if the exact chain is uniformly ergodic, |P^n - pi| <= A r^floor(n / k), the law is within
    A k delta / (1 - r) of the posterior in total variation. Cost: without proxies most steps see a
    fixed share of the data, or all; with them few rows, once the posterior is close to normal.

    Args:
        posterior: a Posterior; position by position its likelihood must be finite.
        step_size: h, a positive number or a schedule; about 2.4 / sqrt(d) where `covariance` is
            the posterior's.
        bound: (position, proposal) -> R, at least the range over ALL rows of l_i: no two differ by
            more. With `centre`, (position, proposal, centre) -> the range of l_i - xi_i. Must not
            cost a pass over the data. For logistic regression LogisticRange(features).
        covariance: of the proposals for h = 1: number, vector, matrix or operator.
        delta: in (0, 1); the probability of a wrong decision.
        centre: of the proxies: a position, or ex.Mode from ex.find_mode; None for no proxies.
        inequality: "serfling", the lesser of "bernstein-serfling" and "hoeffding-serfling" at
            delta / 2 each; one of these two; or "empirical bernstein", made for independent draws.
        batch_size: rows before the first look; also the rows computed at a time.
        growth: how many times as many rows from look to look, at least 1.

    Returns:
        A kernel with state.position; `auxiliary` is empty. Info: `evaluations` counts 2 a row, 3
        with proxies; `accepted`; `potential` estimates U from the rows seen; `feasible` is False
        where two rows differed by more than R, and `sample` stops there.

    Raises:
        TypeError: not a Posterior, or an argument of the wrong type.
        ValueError: a number out of range, or an unknown inequality.

    Reference:
        Bardenet, Doucet and Holmes, Towards scaling up Markov chain Monte Carlo: an adaptive
        subsampling approach, 2014, and On Markov chain Monte Carlo methods for tall data, 2017.
    """
    check_posterior(posterior)
    if not callable(bound):
        raise TypeError(
            f"bound must be a function (position, proposal) -> R, not {bound!r}. For logistic "
            "regression try ex.exact.LogisticRange(features)."
        )
    choice("inequality", inequality, tuple(INEQUALITIES))
    looks = look_times(posterior.num_data, batch_size, growth)
    rule = Concentration(bound, number("delta", delta, below=1.0), posterior.num_data, inequality)
    return SequentialMetropolis(
        posterior,
        as_schedule(step_size, "step_size"),
        as_definite(covariance, "covariance"),
        None if centre is None else TaylorProxy(posterior, centre),
        rule,
        jnp.asarray(looks),
        int(batch_size),
    )


class StudentTest(StoppingRule):
    """The t-test of a mean of rows drawn without replacement."""

    quantiles: Float[Array, " looks"]
    num_rows: int = eqx.field(static=True)

    def span(self, position: PyTree, proposal: PyTree, centre: PyTree) -> None:
        """No bound is needed: the normal limit is trusted."""
        return None

    def distance(self, seen: Seen, look: Int[Array, ""], span: Array | None) -> Float[Array, ""]:
        """Student's quantile times the standard error, with the finite population's factor."""
        n = seen.count.astype(seen.mean.dtype)
        variance = seen.squares / (n - 1.0)
        error = jnp.sqrt(variance / n * (1.0 - (n - 1.0) / (self.num_rows - 1.0)))
        return self.quantiles[look].astype(error.dtype) * error


@named
def austerity(
    posterior: Posterior,
    step_size: Any,
    *,
    covariance: Any = 1.0,
    epsilon: Any = 0.01,
    batch_size: int = 100,
    growth: Any = 1.0,
) -> SequentialMetropolis:
    """Sequential t-tests in place of Metropolis tests. APPROXIMATE: the error is not bounded.

    State: position x. As `confidence`, with a t-test for the inequality: with
    l_i = log p(y_i | x') - log p(y_i | x),
        x' ~ N(x, h^2 covariance),  u ~ U(0, 1),  psi = log(u p(x) / p(x')) / N
        t = batch_size, 2 batch_size, ... rows without replacement, with mean m_t and variance s^2
        until |m_t - psi| / (s sqrt((1 - (t - 1) / (N - 1)) / t)) exceeds Student's upper epsilon
        quantile of t - 1 degrees of freedom, or t = N
        x+ = x' if m_t > psi, else x

    Bias: epsilon is the error of one look, and a decision has many; it rests on the central limit
    theorem, which heavy-tailed l_i break. No bound on the likelihood is needed.

    Args:
        posterior: a Posterior.
        step_size: h, a positive number or a schedule; about 2.4 / sqrt(d) where `covariance` is
            the posterior's.
        covariance: of the proposals for h = 1: number, vector, matrix or operator.
        epsilon: in (0, 1/2]; the level of each t-test.
        batch_size: rows from look to look, at least 2; the t-test wants about 100.
        growth: above 1, look again only when there are this many times as many rows.

    Returns:
        A kernel with state.position; `auxiliary` is empty. Info: `evaluations` counts 2 a row;
        `accepted`; `potential` estimates U from the rows seen.

    Raises:
        TypeError: not a Posterior, or an argument of the wrong type.
        ValueError: a number out of range.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> x = jnp.linspace(-1.0, 3.0, 100)
        >>> model = ex.Posterior(lambda m: -0.5 * m**2, lambda m, x: -0.5 * (x - m) ** 2, x)
        >>> kernel = ex.exact.austerity(model, 0.2, batch_size=20)
        >>> samples = ex.sample(kernel, jnp.float32(1), 2000, key=jax.random.key(0), progress=False)
        >>> bool(abs(samples.position.mean() - 100 / 101) < 0.1)
        True

    Reference:
        Korattikara, Chen and Welling, Austerity in MCMC land: cutting the Metropolis-Hastings
        budget, 2014.
    """
    check_posterior(posterior)
    level = float(number("epsilon", epsilon, below=1.0))
    if level > 0.5:
        raise ValueError(f"epsilon must be at most 1/2, not {epsilon}. Try epsilon=0.01.")
    looks = look_times(posterior.num_data, batch_size, growth)
    if looks[0] < 2:
        raise ValueError(f"batch_size must be at least 2 for a t-test, not {batch_size}.")
    quantiles = scipy.stats.t.isf(level, looks.astype(np.float64) - 1.0)
    return SequentialMetropolis(
        posterior,
        as_schedule(step_size, "step_size"),
        as_definite(covariance, "covariance"),
        None,
        StudentTest(jnp.asarray(quantiles, float), posterior.num_data),
        jnp.asarray(looks),
        int(batch_size),
    )
