"""Data that a plane separates, and posteriors that are improper."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array

import ergodax as ex
from benchmarks.strangers.bank import Problem, case, rows, zeros
from benchmarks.strangers.reference import exact, nuts

IMPROPER = r"improper|not identif|unidentif|infinit|flat direction|no mode|separab|unbounded"


def separable(prior_sd: float | None) -> Problem:
    """200 rows that a plane separates; a flat prior where no sd is given."""
    rng = np.random.default_rng(1)
    x = np.column_stack([np.ones(200), rng.standard_normal((200, 2))])
    y = (x @ [0.2, 1.0, -1.0] > 0.0).astype(float)

    def log_prior(w: Array) -> Any:
        return 0.0 if prior_sd is None else norm.logpdf(w, 0.0, prior_sd).sum()

    def log_likelihood(w: Array, row: Any) -> Array:
        x, y = row
        return y * (x @ w) - jax.nn.softplus(x @ w)

    target, start = ex.Posterior(log_prior, log_likelihood, rows(x, y)), jnp.zeros(3)
    if prior_sd is None:
        return Problem(target, start)
    return Problem(target, start, compute=lambda: nuts(target.potential, start, draws=4_000))


@case("separable-flat", "separable rows, flat prior: improper", proper=False, causes=IMPROPER)
def separable_flat() -> Problem:
    return separable(None)


@case("separable-prior", "separable rows, N(0, 10^2) prior, 200 x 3")
def separable_prior() -> Problem:
    return separable(10.0)


@case(
    "separated-level",
    "10,000 rows, a level without events, flat prior",
    proper=False,
    causes=IMPROPER,
)
def separated_level() -> Problem:
    rng = np.random.default_rng(2)
    level = rng.choice(4, 10_000, p=[0.5, 0.3, 0.19, 0.01])
    y = np.where(level == 3, 0.0, rng.random(10_000) < np.array([0.2, 0.3, 0.5, 0.0])[level])
    x = np.column_stack([np.ones(10_000), np.eye(4)[level][:, 1:]])

    def log_likelihood(w: Array, row: Any) -> Array:
        x, y = row
        return y * (x @ w) - jax.nn.softplus(x @ w)

    return Problem(ex.Posterior(lambda w: 0.0, log_likelihood, rows(x, y)), jnp.zeros(4))


def only_the_sum(num_rows: int, seed: int) -> Problem:
    """Normal rows with mean a + b, flat priors."""
    x = rows(1.0 + np.random.default_rng(seed).standard_normal(num_rows))

    def log_likelihood(p: Any, x: Array) -> Array:
        return norm.logpdf(x, p["a"] + p["b"])

    return Problem(ex.Posterior(lambda p: 0.0, log_likelihood, x), zeros(a=(), b=()))


@case("sum-only", "only a + b is identified, flat prior, 300 rows", proper=False, causes=IMPROPER)
def sum_only() -> Problem:
    return only_the_sum(300, 3)


@case("sum-only-20000", "the same, 20,000 rows", proper=False, causes=IMPROPER)
def sum_only_20000() -> Problem:
    return only_the_sum(20_000, 4)


@case("sum-prior", "only a + b is identified by 20,000 rows, N(0, 10^2) priors")
def sum_prior() -> Problem:
    x = rows(1.0 + np.random.default_rng(5).standard_normal(20_000))

    def log_prior(p: Any) -> Array:
        return norm.logpdf(p["a"], 0.0, 10.0) + norm.logpdf(p["b"], 0.0, 10.0)

    def log_likelihood(p: Any, x: Array) -> Array:
        return norm.logpdf(x, p["a"] + p["b"])

    n, total = x.size, float(np.sum(np.asarray(x, np.float64)))
    covariance = np.linalg.inv(np.full((2, 2), float(n)) + 0.01 * np.eye(2))
    answer = exact(covariance @ np.full(2, total), np.sqrt(np.diag(covariance)))
    return Problem(ex.Posterior(log_prior, log_likelihood, x), zeros(a=(), b=()), answer)


@case(
    "dummy-trap", "intercept and all levels, flat prior, 1,000 rows", proper=False, causes=IMPROPER
)
def dummy_trap() -> Problem:
    rng = np.random.default_rng(6)
    level = rng.integers(3, size=1_000)
    x = np.column_stack([np.ones(1_000), np.eye(3)[level]])
    y = np.array([0.0, 0.5, 1.0])[level] + rng.standard_normal(1_000)

    def log_likelihood(w: Array, row: Any) -> Array:
        x, y = row
        return norm.logpdf(y, x @ w)

    return Problem(ex.Posterior(lambda w: 0.0, log_likelihood, rows(x, y)), jnp.zeros(4))


@case(
    "flat-log-tau", "8 groups, flat prior on log tau: mass at -inf", proper=False, causes=IMPROPER
)
def flat_log_tau() -> Problem:
    y = rows(np.random.default_rng(7).standard_normal(8))

    def potential(p: Any) -> Array:
        log = norm.logpdf(p["theta"], p["mu"], jnp.exp(p["log_tau"])).sum()
        return -(log + norm.logpdf(y, p["theta"], 1.0).sum())

    return Problem(ex.Target(potential), zeros(log_tau=(), mu=(), theta=8))
