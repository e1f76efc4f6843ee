"""Item response and paired comparison: persons and items, each with a level of its own."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array

import ergodax as ex
from benchmarks.strangers.bank import Problem, case, rows, zeros
from benchmarks.strangers.reference import nuts


def answers(rng: np.random.Generator, score: np.ndarray) -> tuple[Any, ...]:
    """Persons, items and zeros or ones of a table of log odds."""
    persons, items = score.shape
    person, item = np.meshgrid(np.arange(persons), np.arange(items), indexing="ij")
    right = (rng.random(score.shape) < 1.0 / (1.0 + np.exp(-score))).astype(float)
    return rows(person.ravel(), item.ravel(), right.ravel())


@case("item-response-1pl", "100 persons, 20 items, difficulties, 2,000 rows, d = 122")
def item_response_1pl() -> Problem:
    rng = np.random.default_rng(1)
    score = 1.2 * rng.standard_normal((100, 1)) - rng.standard_normal(20)

    def log_prior(p: Any) -> Array:
        log = norm.logpdf(p["ability"]).sum() + norm.logpdf(p["log_spread"], 0.0, 1.0)
        log += norm.logpdf(p["difficulty"], p["mu"], 1.0).sum()
        return log + norm.logpdf(p["mu"], 0.0, 2.0)

    def log_likelihood(p: Any, row: Any) -> Array:
        i, j, y = row
        score = jnp.exp(p["log_spread"]) * p["ability"][i] - p["difficulty"][j]
        return y * score - jax.nn.softplus(score)

    target = ex.Posterior(log_prior, log_likelihood, answers(rng, score))
    start = zeros(ability=100, difficulty=20, log_spread=(), mu=())
    return Problem(target, start, compute=lambda: nuts(target.potential, start, dense=False))


@case("item-response-2pl", "200 persons, 15 items with discriminations, 3,000 rows, d = 231")
def item_response_2pl() -> Problem:
    rng = np.random.default_rng(2)
    ability, difficulty = rng.standard_normal((200, 1)), rng.standard_normal(15)
    score = np.exp(0.4 * rng.standard_normal(15)) * (ability - difficulty)

    def log_prior(p: Any) -> Array:
        log = norm.logpdf(p["ability"]).sum() + norm.logpdf(p["log_slope"], 0.0, 0.5).sum()
        log += norm.logpdf(p["difficulty"], p["mu"], 1.5).sum()
        return log + norm.logpdf(p["mu"], 0.0, 2.0)

    def log_likelihood(p: Any, row: Any) -> Array:
        i, j, y = row
        score = jnp.exp(p["log_slope"][j]) * (p["ability"][i] - p["difficulty"][j])
        return y * score - jax.nn.softplus(score)

    target = ex.Posterior(log_prior, log_likelihood, answers(rng, score))
    start = zeros(ability=200, difficulty=15, log_slope=15, mu=())
    return Problem(target, start, compute=lambda: nuts(target.potential, start, dense=False))


@case("paired-comparison", "30 players in 2,500 games, skills and their spread, d = 31")
def paired_comparison() -> Problem:
    rng = np.random.default_rng(3)
    skill = 0.8 * rng.standard_normal(30)
    first = rng.integers(30, size=2_500)
    second = (first + rng.integers(1, 30, size=2_500)) % 30
    won = rng.random(2_500) < 1.0 / (1.0 + np.exp(skill[second] - skill[first]))

    def log_prior(p: Any) -> Array:
        spread = jnp.exp(p["log_spread"])
        return norm.logpdf(p["skill"], 0.0, spread).sum() + norm.logpdf(p["log_spread"])

    def log_likelihood(p: Any, row: Any) -> Array:
        i, j, won = row
        score = p["skill"][i] - p["skill"][j]
        return won * score - jax.nn.softplus(score)

    target = ex.Posterior(log_prior, log_likelihood, rows(first, second, won.astype(float)))
    start = zeros(log_spread=(), skill=30)
    return Problem(target, start, compute=lambda: nuts(target.potential, start))
