"""The confidence sampler: Metropolis tests on as many rows as a concentration inequality asks."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from ergodax import tree
from ergodax.exact.inequality import INEQUALITIES, Drawn
from ergodax.exact.proposal import check_posterior, check_probability
from ergodax.exact.proxy import TaylorProxy
from ergodax.exact.sequential import Seen, SequentialMetropolis, StoppingRule, look_times
from ergodax.recipe.operators import as_definite
from ergodax.schedule import as_schedule
from ergodax.target.posterior import Posterior

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
        dtype = seen.mean.dtype
        m = (look + 1).astype(dtype)
        drawn = Drawn(
            seen.count.astype(dtype), self.num_rows, seen.spread, tree.cast(span, seen.mean)
        )
        return INEQUALITIES[self.inequality](drawn, tree.cast(self.delta, m) / (2.0 * m**2))


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
    if inequality not in INEQUALITIES:
        raise ValueError(f"inequality must be one of {list(INEQUALITIES)}, not {inequality!r}.")
    looks = look_times(posterior.num_data, batch_size, growth)
    rule = Concentration(bound, check_probability(delta, "delta"), posterior.num_data, inequality)
    return SequentialMetropolis(
        posterior,
        as_schedule(step_size, "step_size"),
        as_definite(covariance, "covariance"),
        None if centre is None else TaylorProxy(posterior, centre),
        rule,
        jnp.asarray(looks),
        int(batch_size),
    )
