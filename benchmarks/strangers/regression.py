"""Regressions: of all sizes, robust, collinear, badly scaled, wide, censored."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jax.scipy.stats import t as student
from jaxtyping import Array
from scipy.special import digamma, polygamma

import ergodax as ex
from benchmarks.strangers.bank import Problem, case, rows, zeros
from benchmarks.strangers.reference import Reference, exact, importance, nuts

SCALES = r"scale|precision|float64|condition|collinear|correlat"


def logistic(x: np.ndarray, y: np.ndarray, prior_sd: float, draws: int = 4_000) -> Problem:
    """Logistic regression with normal priors, the reference by importance sampling."""

    def log_prior(w: Array) -> Array:
        return norm.logpdf(w, 0.0, prior_sd).sum()

    def log_likelihood(w: Array, row: Any) -> Array:
        x, y = row
        return y * (x @ w) - jax.nn.softplus(x @ w)

    target, start = ex.Posterior(log_prior, log_likelihood, rows(x, y)), jnp.zeros(x.shape[1])
    return Problem(target, start, compute=lambda: importance(target.potential, start, draws=draws))


def labels(rng: np.random.Generator, score: np.ndarray) -> np.ndarray:
    """Zeros and ones with these log odds."""
    return (rng.random(score.size) < 1.0 / (1.0 + np.exp(-score))).astype(float)


def normal_answer(x: Any, y: Any, sigma: float, prior_sd: float) -> Reference:
    """Of linear regression with known noise and normal priors."""
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    precision = x.T @ x / sigma**2 + np.eye(x.shape[1]) / prior_sd**2
    covariance = np.linalg.inv(precision)
    return exact(np.linalg.solve(precision, x.T @ y / sigma**2), np.sqrt(np.diag(covariance)))


def linear(x: np.ndarray, y: np.ndarray, sigma: float, prior_sd: float) -> Problem:
    """Linear regression with known noise and normal priors."""
    x, y = rows(x, y)

    def log_prior(w: Array) -> Array:
        return norm.logpdf(w, 0.0, prior_sd).sum()

    def log_likelihood(w: Array, row: Any) -> Array:
        x, y = row
        return norm.logpdf(y, x @ w, sigma)

    target = ex.Posterior(log_prior, log_likelihood, (x, y))
    return Problem(target, jnp.zeros(x.shape[1]), normal_answer(x, y, sigma, prior_sd))


@case("student-t-41000", "Student regression, scale and degrees unknown, 41,000 x 10")
def student_t_41000() -> Problem:
    rng = np.random.default_rng(1)
    x = np.column_stack([np.ones(41_000), rng.standard_normal((41_000, 9))])
    y = x @ np.linspace(-1.0, 1.0, 10) + 0.7 * rng.standard_t(4.0, 41_000)
    return student_regression(x, y, draws=3_000)


@case("student-t-outliers", "the same with 1 % of gross outliers, 5,000 x 5")
def student_t_outliers() -> Problem:
    rng = np.random.default_rng(2)
    x = np.column_stack([np.ones(5_000), rng.standard_normal((5_000, 4))])
    y = x @ [1.0, 0.5, -0.5, 0.0, 2.0] + 0.3 * rng.standard_normal(5_000)
    bad = rng.choice(5_000, 50, replace=False)
    y[bad] += rng.choice([-1.0, 1.0], 50) * rng.uniform(50.0, 1_000.0, 50)
    return student_regression(x, y, draws=8_000)


def student_regression(x: np.ndarray, y: np.ndarray, draws: int) -> Problem:
    """With unknown scale and degrees of freedom."""

    def log_prior(p: Any) -> Array:
        freedom = jnp.exp(p["log_freedom"])
        log = norm.logpdf(p["w"], 0.0, 10.0).sum() + norm.logpdf(p["log_scale"], 0.0, 3.0)
        return log + jnp.log(freedom) - 0.1 * freedom + p["log_freedom"]  # Gamma(2, 0.1)

    def log_likelihood(p: Any, row: Any) -> Array:
        x, y = row
        return student.logpdf(y, jnp.exp(p["log_freedom"]), x @ p["w"], jnp.exp(p["log_scale"]))

    target = ex.Posterior(log_prior, log_likelihood, rows(x, y))
    start = zeros(log_freedom=(), log_scale=(), w=x.shape[1])
    near = start | {"w": jnp.asarray(np.linalg.lstsq(x, np.clip(y, -10, 10))[0])}
    return Problem(target, start, compute=lambda: importance(target.potential, near, draws=draws))


@case("skin-like", "logistic with squares and products, 245,057 x 10")
def skin_like() -> Problem:
    """Colours of skin and of the rest: three correlated channels of 256 values."""
    rng = np.random.default_rng(3)
    n = 245_057
    y = (rng.random(n) < 0.21).astype(float)
    light = rng.normal(130.0, 55.0, n)[:, None]
    skin = np.array([-20.0, 10.0, 50.0]) + 0.8 * light + 30.0
    rest = light + rng.normal(0.0, 15.0, (n, 3))
    colour = np.where(y[:, None] > 0, skin + rng.normal(0.0, 22.0, (n, 3)), rest)
    b, g, r = ((np.clip(np.round(colour), 0, 255) - 125.0) / 60.0).T
    x = np.column_stack([np.ones(n), b, g, r, b * b, g * g, r * r, b * g, b * r, g * r])
    return logistic(x, y, 10.0, draws=2_000)


@case("flights-like", "logistic on categories and skewed numbers, 325,724 x 37")
def flights_like() -> Problem:
    rng = np.random.default_rng(4)
    n = 325_724
    carrier = rng.choice(
        15, n, p=np.r_[0.18, 0.16, 0.16, 0.14, 0.1, np.full(8, 0.0312), 0.0103, 0.0001]
    )
    month, origin = rng.integers(12, size=n), rng.integers(3, size=n)
    numbers = rng.standard_normal((n, 7))
    numbers[:, 0] = (rng.gamma(0.3, 1.0, n) - 0.3) / 0.55  # rain: mostly none, at times a lot
    numbers[:, 1] = 0.9 * numbers[:, 2] + 0.436 * numbers[:, 1]
    parts = [np.ones((n, 1)), numbers]
    parts += [np.eye(k)[c][:, 1:] for k, c in ((15, carrier), (12, month), (3, origin))]
    x = np.column_stack(parts)
    x = np.column_stack([x, x[:, 1:3] * x[:, 3:4]])
    weights = np.r_[-1.5, 0.3 * rng.standard_normal(x.shape[1] - 1)]
    return logistic(x, labels(rng, x @ weights), 10.0, draws=1_600)


@case("logistic-500", "logistic, 500 x 10")
def logistic_500() -> Problem:
    rng = np.random.default_rng(5)
    x = rng.standard_normal((500, 10))
    return logistic(x, labels(rng, x @ np.linspace(-1.0, 1.0, 10)), 10.0, draws=8_000)


@case("logistic-50000", "logistic, 50,000 x 10")
def logistic_50000() -> Problem:
    rng = np.random.default_rng(6)
    x = rng.standard_normal((50_000, 10))
    return logistic(x, labels(rng, x @ np.linspace(-1.0, 1.0, 10)), 10.0)


@case("badly-scaled", "logistic, columns of scales from 1e-3 to 1e3, 5,000 x 6", causes=SCALES)
def badly_scaled() -> Problem:
    rng = np.random.default_rng(7)
    scale = np.logspace(-3, 3, 6)
    x = scale * rng.standard_normal((5_000, 6))
    return logistic(x, labels(rng, (x / scale) @ np.full(6, 0.5)), 1e4)


@case("not-centred", "logistic on a year (2013) and a price (1e5), 10,000 x 3", causes=SCALES)
def not_centred() -> Problem:
    rng = np.random.default_rng(8)
    year, price = 2013.0 + rng.integers(-5, 6, 10_000), 1e5 + 2e4 * rng.standard_normal(10_000)
    score = 0.2 * (year - 2013.0) - (price - 1e5) / 2e4
    x = np.column_stack([np.ones(10_000), year, price])
    return logistic(x, labels(rng, score), 1e3)


@case("collinear-1e8", "linear, two columns that differ by 1e-4, 3,000 x 5", causes=SCALES)
def collinear() -> Problem:
    rng = np.random.default_rng(9)
    x = rng.standard_normal((3_000, 5))
    x[:, 1] = x[:, 0] + 1e-4 * x[:, 1]
    y = x @ [1.0, 1.0, 0.5, 0.0, -0.5] + rng.standard_normal(3_000)
    return linear(x, y, 1.0, 1e3)


@case("ridge-1000", "linear, 2,000 rows and 1,000 coefficients with N(0, .1^2) priors")
def ridge() -> Problem:
    rng = np.random.default_rng(10)
    x = rng.standard_normal((2_000, 1_000))
    y = x @ (0.1 * rng.standard_normal(1_000)) + rng.standard_normal(2_000)
    return linear(x, y, 1.0, 0.1)


@case("wide", "linear, 100 rows and 300 coefficients")
def wide() -> Problem:
    rng = np.random.default_rng(11)
    x = rng.standard_normal((100, 300))
    y = x[:, :3] @ [2.0, -1.0, 1.0] + 0.5 * rng.standard_normal(100)
    return linear(x, y, 0.5, 1.0)


@case("linear-flat", "linear with flat priors and unknown noise, 300 x 4")
def linear_flat() -> Problem:
    rng = np.random.default_rng(12)
    x = np.column_stack([np.ones(300), rng.standard_normal((300, 3))])
    x, y = rows(x, x @ [1.0, 0.5, -0.5, 0.0] + 2.0 * rng.standard_normal(300))

    def log_likelihood(p: Any, row: Any) -> Array:
        x, y = row
        return norm.logpdf(y, x @ p["w"], jnp.exp(p["log_sigma"]))

    target = ex.Posterior(lambda p: 0.0, log_likelihood, (x, y))
    start = zeros(log_sigma=(), w=4)
    return Problem(target, start, flat_answer(x, y))


def flat_answer(x: Any, y: Any) -> Reference:
    """Under priors flat in w and log sigma: Student in w, the logarithm of a gamma in log sigma."""
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    centre, squares = np.linalg.lstsq(x, y)[:2]
    freedom = len(y) - x.shape[1]
    spread = np.sqrt(np.diag(np.linalg.inv(x.T @ x)) * squares / (freedom - 2))
    level = 0.5 * (np.log(squares / 2.0) - digamma(freedom / 2.0))
    width = 0.5 * np.sqrt(polygamma(1, freedom / 2.0))
    return exact({"log_sigma": level, "w": centre}, {"log_sigma": width, "w": spread})


@case("median", "median regression with unknown scale, 2,000 x 4: kinks")
def median() -> Problem:
    rng = np.random.default_rng(13)
    x = np.column_stack([np.ones(2_000), rng.standard_normal((2_000, 3))])
    x, y = rows(x, x @ [1.0, 0.5, -0.5, 0.0] + rng.standard_t(2.0, 2_000))

    def log_prior(p: Any) -> Array:
        return norm.logpdf(p["w"], 0.0, 10.0).sum() + norm.logpdf(p["log_scale"], 0.0, 3.0)

    def log_likelihood(p: Any, row: Any) -> Array:
        x, y = row
        return -jnp.abs(y - x @ p["w"]) * jnp.exp(-p["log_scale"]) - p["log_scale"]

    target = ex.Posterior(log_prior, log_likelihood, (x, y))
    start = zeros(log_scale=(), w=4)
    return Problem(target, start, compute=lambda: nuts(target.potential, start, draws=2_000))


@case("probit", "probit, 1,000 x 5")
def probit() -> Problem:
    rng = np.random.default_rng(14)
    x = rng.standard_normal((1_000, 5))
    y = np.where(x @ np.linspace(-1, 1, 5) + rng.standard_normal(1_000) > 0, 1.0, -1.0)

    def log_prior(w: Array) -> Array:
        return norm.logpdf(w, 0.0, 5.0).sum()

    def log_likelihood(w: Array, row: Any) -> Array:
        x, y = row
        return norm.logcdf(y * (x @ w))

    target = ex.Posterior(log_prior, log_likelihood, rows(x, y))
    return Problem(target, jnp.zeros(5), compute=lambda: importance(target.potential, jnp.zeros(5)))


@case("weibull-censored", "survival times, Weibull, a third censored, 1,000 x 3")
def weibull_censored() -> Problem:
    rng = np.random.default_rng(15)
    x = np.column_stack([np.ones(1_000), rng.standard_normal((1_000, 2))])
    time = np.exp(x @ [1.0, 0.3, -0.2]) * rng.weibull(1.5, 1_000)
    end = rng.exponential(5.0, 1_000)
    seen, time = (time < end).astype(float), np.minimum(time, end)

    def log_prior(p: Any) -> Array:
        return norm.logpdf(p["w"], 0.0, 5.0).sum() + norm.logpdf(p["log_shape"], 0.0, 1.0)

    def log_likelihood(p: Any, row: Any) -> Array:
        x, time, seen = row
        shape = jnp.exp(p["log_shape"])
        log = shape * (jnp.log(time) - x @ p["w"])
        return seen * (p["log_shape"] - jnp.log(time) + log) - jnp.exp(log)

    target = ex.Posterior(log_prior, log_likelihood, rows(x, time, seen))
    start = zeros(log_shape=(), w=3)
    return Problem(target, start, compute=lambda: importance(target.potential, start))


@case("heteroscedastic", "mean and log sd both linear, 3,000 x 4")
def heteroscedastic() -> Problem:
    rng = np.random.default_rng(16)
    x = np.column_stack([np.ones(3_000), rng.standard_normal((3_000, 3))])
    noise = np.exp(x @ [0.0, 0.5, -0.5, 0.2]) * rng.standard_normal(3_000)

    def log_prior(p: Any) -> Array:
        return norm.logpdf(p["mean"], 0.0, 5.0).sum() + norm.logpdf(p["spread"], 0.0, 2.0).sum()

    def log_likelihood(p: Any, row: Any) -> Array:
        x, y = row
        return norm.logpdf(y, x @ p["mean"], jnp.exp(x @ p["spread"]))

    target = ex.Posterior(log_prior, log_likelihood, rows(x, x @ [1.0, 0.5, 0.0, -0.5] + noise))
    start = zeros(mean=4, spread=4)
    return Problem(target, start, compute=lambda: importance(target.potential, start))
