"""Counts and classes: Poisson, negative binomial, zero-inflated, multinomial, ordinal, rare."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jax.scipy.stats import norm
from jaxtyping import Array
from scipy.special import digamma, polygamma

import ergodax as ex
from benchmarks.strangers.bank import Problem, case, rows, zeros
from benchmarks.strangers.reference import exact, importance, nuts

SKEW = r"sparse|rare|separat|no events|tail|flat|skew|extreme"


@case("poisson-sparse", "Poisson, 100,000 rows of which 400 are not 0, rare levels", causes=SKEW)
def poisson_sparse() -> Problem:
    """Six levels, the last without an event, and a covariate of three values: 18 cells."""
    rng = np.random.default_rng(1)
    n = 100_000
    level = rng.choice(6, n, p=[0.6, 0.25, 0.1, 0.03, 0.015, 0.005])
    dose = rng.integers(-1, 2, n).astype(float)
    effect = np.array([0.0, 0.5, 1.0, -0.5, 1.5, -4.0])
    y = rng.poisson(np.exp(-6.0 + effect[level] + 0.4 * dose)).astype(float)
    x = np.column_stack([np.ones(n), dose, np.eye(6)[level][:, 1:]])

    def log_prior(w: Array) -> Array:
        return norm.logpdf(w, 0.0, 10.0).sum()

    def log_likelihood(w: Array, row: Any) -> Array:
        x, y = row
        return y * (x @ w) - jnp.exp(x @ w)

    cell, inverse = np.unique(x, axis=0, return_inverse=True)
    count, events = np.bincount(inverse).astype(float), np.bincount(inverse, y)

    def potential(w: Array) -> Array:
        score = cell @ w
        return -(log_prior(w) + (events * score - count * jnp.exp(score)).sum())

    start = jnp.zeros(7)
    return Problem(
        ex.Posterior(log_prior, log_likelihood, rows(x, y)),
        start,
        compute=lambda: nuts(potential, start.at[0].set(-6.0), draws=4_000, acceptance=0.95),
    )


@case("poisson-100000", "Poisson with rates of 5, 100,000 rows, 6 coefficients")
def poisson() -> Problem:
    rng = np.random.default_rng(2)
    x = np.column_stack([np.ones(100_000), 0.3 * rng.standard_normal((100_000, 5))])
    y = rng.poisson(np.exp(x @ [1.6, 0.5, -0.5, 0.2, 0.0, 0.1])).astype(float)

    def log_prior(w: Array) -> Array:
        return norm.logpdf(w, 0.0, 10.0).sum()

    def log_likelihood(w: Array, row: Any) -> Array:
        x, y = row
        return y * (x @ w) - jnp.exp(x @ w)

    target = ex.Posterior(log_prior, log_likelihood, rows(x, y))
    return Problem(
        target,
        jnp.zeros(6),
        compute=lambda: importance(target.potential, jnp.zeros(6), draws=2_000),
    )


@case("poisson-effects", "Poisson with effects of 60 groups, not centred, 3,000 rows")
def poisson_effects() -> Problem:
    rng = np.random.default_rng(3)
    n, groups = 3_000, 60
    group, x = rng.integers(groups, size=n), rng.standard_normal(n)
    score = 0.2 + 0.5 * rng.standard_normal(groups)[group] + 0.3 * x
    y = rng.poisson(np.exp(score)).astype(float)

    def log_prior(p: Any) -> Array:
        tau = jnp.exp(p["log_tau"])
        log = norm.logpdf(tau) + p["log_tau"] + norm.logpdf(p["z"]).sum()
        return log + norm.logpdf(p["mu"], 0.0, 5.0) + norm.logpdf(p["slope"], 0.0, 5.0)

    def log_likelihood(p: Any, row: Any) -> Array:
        g, x, y = row
        score = p["mu"] + jnp.exp(p["log_tau"]) * p["z"][g] + p["slope"] * x
        return y * score - jnp.exp(score)

    target = ex.Posterior(log_prior, log_likelihood, rows(group, x, y))
    start = zeros(log_tau=(), mu=(), slope=(), z=groups)
    return Problem(target, start, compute=lambda: nuts(target.potential, start, draws=2_500))


@case("negative-binomial", "negative binomial with unknown dispersion, 5,000 rows")
def negative_binomial() -> Problem:
    rng = np.random.default_rng(4)
    x = np.column_stack([np.ones(5_000), rng.standard_normal((5_000, 4))])
    rate = np.exp(x @ [1.0, 0.5, -0.3, 0.0, 0.2]) * rng.gamma(1.5, 1.0 / 1.5, 5_000)
    y = rng.poisson(rate).astype(float)

    def log_prior(p: Any) -> Array:
        return norm.logpdf(p["w"], 0.0, 5.0).sum() + norm.logpdf(p["log_size"], 0.0, 2.0)

    def log_likelihood(p: Any, row: Any) -> Array:
        x, y = row
        size, score = jnp.exp(p["log_size"]), x @ p["w"]
        log = gammaln(y + size) - gammaln(size) + size * p["log_size"] + y * score
        return log - (size + y) * jnp.logaddexp(p["log_size"], score)

    target = ex.Posterior(log_prior, log_likelihood, rows(x, y))
    start = zeros(log_size=(), w=5)
    return Problem(target, start, compute=lambda: importance(target.potential, start))


@case("zero-inflated", "zero-inflated Poisson, 2,000 rows")
def zero_inflated() -> Problem:
    rng = np.random.default_rng(5)
    x = rng.standard_normal(2_000)
    y = np.where(rng.random(2_000) < 0.3, 0, rng.poisson(np.exp(0.3 + 0.5 * x))).astype(float)

    def log_prior(p: Any) -> Array:
        log = norm.logpdf(p["logit"], 0.0, 2.0) + norm.logpdf(p["level"], 0.0, 5.0)
        return log + norm.logpdf(p["slope"], 0.0, 5.0)

    def log_likelihood(p: Any, row: Any) -> Array:
        x, y = row
        score = p["level"] + p["slope"] * x
        none, some = jax.nn.log_sigmoid(p["logit"]), jax.nn.log_sigmoid(-p["logit"])
        count = some + y * score - jnp.exp(score) - gammaln(y + 1.0)
        return jnp.where(y == 0.0, jnp.logaddexp(none, count), count)

    target = ex.Posterior(log_prior, log_likelihood, rows(x, y))
    start = zeros(level=(), logit=(), slope=())
    return Problem(target, start, compute=lambda: importance(target.potential, start))


def classes(count: int, n: int, features: int, seed: int, *, free: bool) -> Problem:
    """Softmax regression, all classes with coefficients (`free`) or the last one without."""
    rng = np.random.default_rng(seed)
    x = np.column_stack([np.ones(n), rng.standard_normal((n, features))])
    weights = 0.5 * rng.standard_normal((features + 1, count))
    score = x @ weights + rng.gumbel(size=(n, count))
    x, y = rows(x, score.argmax(axis=1))

    def log_prior(w: Array) -> Array:
        return norm.logpdf(w, 0.0, 1.0 if free else 5.0).sum()

    def log_likelihood(w: Array, row: Any) -> Array:
        x, y = row
        scores = x @ w
        scores = scores if free else jnp.append(scores, 0.0)
        return jax.nn.log_softmax(scores)[y]

    target = ex.Posterior(log_prior, log_likelihood, (x, y))
    start = jnp.zeros((features + 1, count if free else count - 1))
    return Problem(target, start, compute=lambda: importance(target.potential, start, draws=6_000))


@case("multinomial-3", "softmax regression of 3 classes, 5,000 rows, 10 coefficients")
def multinomial_3() -> Problem:
    return classes(3, 5_000, 4, 6, free=False)


@case("multinomial-10", "softmax regression of 10 classes, all free, 10,000 rows, d = 40")
def multinomial_10() -> Problem:
    return classes(10, 10_000, 3, 7, free=True)


@case("rare-events", "logistic, 100,000 rows with some 30 events, 5 coefficients", causes=SKEW)
def rare_events() -> Problem:
    rng = np.random.default_rng(8)
    x = np.column_stack([np.ones(100_000), rng.standard_normal((100_000, 4))])
    score = x @ [-9.0, 1.0, -0.5, 0.5, 0.0]
    y = (rng.random(100_000) < 1.0 / (1.0 + np.exp(-score))).astype(float)

    def log_prior(w: Array) -> Array:
        return norm.logpdf(w, 0.0, 10.0).sum()

    def log_likelihood(w: Array, row: Any) -> Array:
        x, y = row
        return y * (x @ w) - jax.nn.softplus(x @ w)

    target = ex.Posterior(log_prior, log_likelihood, rows(x, y))
    return Problem(
        target,
        jnp.zeros(5),
        compute=lambda: importance(target.potential, jnp.zeros(5), draws=4_000, freedom=10.0),
    )


@case("ordinal", "five ordered answers, cut points by logarithms of their gaps, 2,000 rows")
def ordinal() -> Problem:
    rng = np.random.default_rng(9)
    x = rng.standard_normal((2_000, 3))
    latent = x @ [0.8, -0.4, 0.0] + rng.logistic(size=2_000)
    x, y = rows(x, np.searchsorted([-1.5, -0.5, 0.7, 2.0], latent))

    def log_prior(p: Any) -> Array:
        log = norm.logpdf(p["w"], 0.0, 5.0).sum() + norm.logpdf(p["first"], 0.0, 5.0)
        return log + norm.logpdf(p["log_gap"]).sum()

    def log_likelihood(p: Any, row: Any) -> Array:
        x, y = row
        steps = jnp.cumsum(jnp.exp(p["log_gap"]))
        cuts = jnp.concatenate([p["first"][None], p["first"] + steps])
        below = jnp.concatenate([jnp.zeros(1), jax.nn.sigmoid(cuts - x @ p["w"]), jnp.ones(1)])
        return jnp.log(below[y + 1] - below[y])

    target = ex.Posterior(log_prior, log_likelihood, (x, y))
    start = zeros(first=(), log_gap=3, w=3)
    return Problem(target, start, compute=lambda: importance(target.potential, start))


@case("dirichlet", "log odds of 10 classes, counted, with a Dirichlet(1/2) prior")
def dirichlet() -> Problem:
    counts = np.array([0, 1, 2, 5, 10, 20, 50, 100, 300, 512.0])

    def potential(x: Array) -> Array:
        return -jnp.sum((counts + 0.5) * jax.nn.log_softmax(jnp.append(x, 0.0)))

    # The log odds of a Dirichlet vector are differences of logarithms of gammas.
    shape = counts + 0.5
    mean = digamma(shape[:-1]) - digamma(shape[-1])
    sd = np.sqrt(polygamma(1, shape[:-1]) + polygamma(1, shape[-1]))
    return Problem(ex.Target(potential), jnp.zeros(9), exact(mean, sd))
