"""Austerity: Metropolis tests that stop at a t-test's level of significance."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Float, Int, PyTree

from ergodax.exact.proposal import check_posterior, check_probability
from ergodax.exact.sequential import Seen, SequentialMetropolis, StoppingRule, look_times
from ergodax.recipe.operators import as_definite
from ergodax.schedule import as_schedule
from ergodax.target.posterior import Posterior


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

    Reference:
        Korattikara, Chen and Welling, Austerity in MCMC land: cutting the Metropolis-Hastings
        budget, 2014.
    """
    check_posterior(posterior)
    level = float(check_probability(epsilon, "epsilon"))
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
