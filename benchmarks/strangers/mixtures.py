"""Several modes: near, far, of unequal weight, and those of exchanged labels."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array

import ergodax as ex
from benchmarks.strangers.bank import Problem, case, rows, zeros
from benchmarks.strangers.reference import exact, nuts, quadrature

MODES = r"modes|multimodal|replica_exchange|several|label"


def two_normals(dimension: int, distance: float, weight: float, ratio: float = 1.0) -> Problem:
    """Two spherical normals: of sd 1 at 0 and of sd `ratio` at `distance` along the first axis."""
    centre = np.zeros(dimension)
    centre[0] = distance
    there = jnp.asarray(centre, dtype=float)

    def potential(x: Array) -> Array:
        first = jnp.log(weight) + norm.logpdf(x).sum()
        second = jnp.log(1.0 - weight) + norm.logpdf(x, there, ratio).sum()
        return -jnp.logaddexp(first, second)

    mean = (1.0 - weight) * centre
    second = weight + (1.0 - weight) * (ratio**2 + centre**2)
    return Problem(
        ex.Target(potential), jnp.zeros(dimension), exact(mean, np.sqrt(second - mean**2))
    )


@case("modes-near", "two normals, 4 sd apart, weights .7 and .3, d = 2", causes=MODES)
def modes_near() -> Problem:
    return two_normals(2, 4.0, 0.7)


@case("modes-far", "two normals, 20 sd apart, weights .7 and .3, d = 2", causes=MODES)
def modes_far() -> Problem:
    return two_normals(2, 20.0, 0.7)


@case(
    "modes-far-10",
    "two normals, 15 sd apart, sds 1 and .5, weights .6 and .4, d = 10",
    causes=MODES,
)
def modes_far_10() -> Problem:
    return two_normals(10, 15.0, 0.6, 0.5)


@case("spike-and-slab", "a normal of sd .05 on one of sd 2, weights .5, d = 1", causes=MODES)
def spike_and_slab() -> Problem:
    return two_normals(1, 0.0, 0.5, 0.05)


def exchanged_labels(num_rows: int, seed: int, points: int) -> Problem:
    """Rows of two normals at -1.5 and 1.5, of equal weight; both means unknown."""
    rng = np.random.default_rng(seed)
    x = rows(np.where(rng.random(num_rows) < 0.5, -1.5, 1.5) + rng.standard_normal(num_rows))

    def log_prior(m: Array) -> Array:
        return norm.logpdf(m, 0.0, 5.0).sum()

    def log_likelihood(m: Array, x: Array) -> Array:
        return jax.nn.logsumexp(norm.logpdf(x, m)) - jnp.log(2.0)

    target, start = ex.Posterior(log_prior, log_likelihood, x), jnp.zeros(2)
    box = {0: (-2.5, 2.5), 1: (-2.5, 2.5)}
    return Problem(target, start, compute=lambda: quadrature(target.potential, start, box, points))


@case("labels-exchanged", "a mixture of two normals, labels free, 500 rows, d = 2", causes=MODES)
def labels_exchanged() -> Problem:
    return exchanged_labels(500, 1, 201)


@case("labels-exchanged-5000", "the same, 5,000 rows", causes=MODES)
def labels_exchanged_5000() -> Problem:
    return exchanged_labels(5_000, 2, 301)


@case("cauchy-two-clusters", "a location of Cauchy rows in two clusters, 16 rows", causes=MODES)
def cauchy_two_clusters() -> Problem:
    rng = np.random.default_rng(3)
    x = rows(np.r_[-6.0 + rng.standard_normal(8), 6.0 + rng.standard_normal(8)])

    def log_likelihood(m: Array, x: Array) -> Array:
        return -jnp.log1p((x - m) ** 2)

    def log_prior(m: Array) -> Array:
        return norm.logpdf(m, 0.0, 20.0)

    target, start = ex.Posterior(log_prior, log_likelihood, x), jnp.zeros(())
    box = {0: (-15.0, 15.0)}
    return Problem(target, start, compute=lambda: quadrature(target.potential, start, box, 2_001))


@case(
    "mixture-overlapping", "two ordered normals that overlap, all unknown, 1,500 rows", causes=MODES
)
def mixture_overlapping() -> Problem:
    rng = np.random.default_rng(4)
    first = rng.random(1_500) < 0.6
    x = rows(np.where(first, rng.normal(-1.0, 1.0, 1_500), rng.normal(1.5, 0.7, 1_500)))

    def log_prior(p: Any) -> Array:
        log = norm.logpdf(p["first"], 0.0, 5.0) + norm.logpdf(p["log_gap"], 0.0, 1.0)
        log += norm.logpdf(p["log_sd"], 0.0, 1.0).sum()
        return log + norm.logpdf(p["logit"], 0.0, 1.5)

    def log_likelihood(p: Any, x: Array) -> Array:
        means = jnp.stack([p["first"], p["first"] + jnp.exp(p["log_gap"])])
        weights = jnp.stack([jax.nn.log_sigmoid(p["logit"]), jax.nn.log_sigmoid(-p["logit"])])
        return jax.nn.logsumexp(weights + norm.logpdf(x, means, jnp.exp(p["log_sd"])))

    target = ex.Posterior(log_prior, log_likelihood, x)
    start = zeros(first=(), log_gap=(), log_sd=2, logit=())
    return Problem(target, start, compute=lambda: nuts(target.potential, start, draws=2_000))


@case("sign-free", "y = (a b) x + noise, 300 rows: two ridges of opposite signs", causes=MODES)
def sign_free() -> Problem:
    rng = np.random.default_rng(5)
    x = rng.standard_normal(300)
    x, y = rows(x, 1.0 * x + rng.standard_normal(300))

    def log_prior(p: Any) -> Array:
        return norm.logpdf(p["a"], 0.0, 2.0) + norm.logpdf(p["b"], 0.0, 2.0)

    def log_likelihood(p: Any, row: Any) -> Array:
        x, y = row
        return norm.logpdf(y, p["a"] * p["b"] * x)

    target, start = ex.Posterior(log_prior, log_likelihood, (x, y)), zeros(a=(), b=())
    box = {"a": (-11.0, 11.0)}  # given a, normal in b
    return Problem(target, start, compute=lambda: quadrature(target.potential, start, box, 4_001))
