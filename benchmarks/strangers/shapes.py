"""Densities without data: funnels, bananas, tails, scales, many dimensions."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array

import ergodax as ex
from benchmarks.strangers.bank import Problem, case, rows, zeros
from benchmarks.strangers.reference import exact, quadrature

TAILS = r"tail|moment|variance.*infinit|infinit.*variance|heavy"
SCALES = r"scale|precision|float64|condition"


@case("neal-funnel", "Neal's funnel, 10 dimensions", causes=r"funnel|diverg|tail|curvature var")
def neal_funnel() -> Problem:
    def potential(p: Any) -> Array:
        return -norm.logpdf(p["v"], 0.0, 3.0) - norm.logpdf(p["x"], 0.0, jnp.exp(p["v"] / 2)).sum()

    sd = {"v": np.array(3.0), "x": np.full(9, np.exp(9.0 / 4.0))}
    start = zeros(v=(), x=9)
    return Problem(ex.Target(potential), start, exact({"v": np.zeros(1), "x": np.zeros(9)}, sd))


@case("banana", "a curved valley, 2 dimensions")
def banana() -> Problem:
    def potential(x: Array) -> Array:
        return 0.5 * x[0] ** 2 + 0.5 * ((x[1] - 2.0 * x[0] ** 2) / 0.3) ** 2

    answer = exact(np.array([0.0, 2.0]), np.sqrt([1.0, 8.0 + 0.09]))
    return Problem(ex.Target(potential), jnp.zeros(2), answer)


@case("rosenbrock", "Rosenbrock's valley, 2 dimensions, scales of 1 and .03")
def rosenbrock() -> Problem:
    def potential(x: Array) -> Array:
        return 0.5 * (x[0] - 1.0) ** 2 + 0.5 * ((x[1] - x[0] ** 2) / 0.03) ** 2

    answer = exact(np.array([1.0, 2.0]), np.sqrt([1.0, 6.0 + 0.03**2]))
    return Problem(ex.Target(potential), jnp.zeros(2), answer)


@case(
    "brownian-32",
    "Brownian motion seen with noise, 10 of 30 times missing, d = 32",
    causes=r"narrow|funnel",  # where either scale goes to 0, as in a hierarchy
)
def brownian_32() -> Problem:
    rng = np.random.default_rng(1)
    path = np.cumsum(0.1 * rng.standard_normal(30))
    seen = np.r_[:10, 20:30]
    y = rows(path[seen] + 0.15 * rng.standard_normal(20))

    def potential(p: Any) -> Array:
        inner, outer = jnp.exp(p["log_step"]), jnp.exp(p["log_noise"])
        log = norm.logpdf(p["log_step"], 0.0, 2.0) + norm.logpdf(p["log_noise"], 0.0, 2.0)
        log += norm.logpdf(jnp.diff(p["path"]), 0.0, inner).sum()
        log += norm.logpdf(p["path"][0], 0.0, inner)
        return -(log + norm.logpdf(y, p["path"][seen], outer).sum())

    start = zeros(log_noise=(), log_step=(), path=30)
    box = {"log_noise": (-12.0, 0.5), "log_step": (-12.0, 1.5)}
    return Problem(
        ex.Target(potential),
        start,
        compute=lambda: quadrature(potential, start, box, (201, 201)),
    )


@case("scales-1e6", "independent normals, sds from 1e-3 to 1e3, d = 20", causes=SCALES)
def scales() -> Problem:
    sd = np.logspace(-3, 3, 20)
    scale = jnp.asarray(sd, dtype=float)
    target = ex.Target(lambda x: 0.5 * jnp.sum((x / scale) ** 2))
    return Problem(target, jnp.zeros(20), exact(np.zeros(20), sd))


@case("gaussian-1000", "a normal with correlation .9 between neighbours, d = 1,000")
def gaussian_1000() -> Problem:
    def potential(x: Array) -> Array:
        return 0.5 * x[0] ** 2 + 0.5 * jnp.sum((x[1:] - 0.9 * x[:-1]) ** 2) / 0.19

    return Problem(ex.Target(potential), jnp.zeros(1_000), exact(np.zeros(1_000), np.ones(1_000)))


@case("student-t-5", "Student with 5 degrees of freedom, d = 10", causes=TAILS)
def student_t() -> Problem:
    target = ex.Target(lambda x: 7.5 * jnp.log1p(jnp.sum(x**2) / 5.0))
    return Problem(target, jnp.zeros(10), exact(np.zeros(10), np.full(10, np.sqrt(5.0 / 3.0))))


@case("cauchy", "independent Cauchys, d = 3: no mean, no sd", proper=False, causes=TAILS)
def cauchy() -> Problem:
    return Problem(ex.Target(lambda x: jnp.sum(jnp.log1p(x**2))), jnp.zeros(3))


@case("laplace", "independent Laplace variables, d = 20: a kink at the mode")
def laplace() -> Problem:
    target = ex.Target(lambda x: jnp.sum(jnp.abs(x)))
    return Problem(target, jnp.zeros(20), exact(np.zeros(20), np.full(20, np.sqrt(2.0))))


@case("far-start", "a normal with mean 1e3 and sd 1, begun at zero, d = 5")
def far_start() -> Problem:
    target = ex.Target(lambda x: 0.5 * jnp.sum((x - 1e3) ** 2))
    return Problem(target, jnp.zeros(5), exact(np.full(5, 1e3), np.ones(5)))


@case("quartic", "exp(-|x|^4), d = 10: no curvature at the mode")
def quartic() -> Problem:
    # |x|^4 is Gamma(d/4), and the second moment of the radius follows.
    from scipy.special import gamma

    second = gamma(12.0 / 4.0) / gamma(10.0 / 4.0) / 10.0
    target = ex.Target(lambda x: jnp.sum(x**2) ** 2)
    return Problem(target, jnp.zeros(10), exact(np.zeros(10), np.full(10, np.sqrt(second))))
