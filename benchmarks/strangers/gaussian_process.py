"""Gaussian processes: hyperparameters by the marginal likelihood, and latent functions."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jax.scipy.stats import norm
from jaxtyping import Array

import ergodax as ex
from benchmarks.strangers.bank import Problem, case, rows, zeros
from benchmarks.strangers.reference import exact, nuts, quadrature

ROUNDING = r"float64|precision|x64|rounding"


def covariance(x: Any, log_amplitude: Array, log_length: Array) -> Array:
    """Of the squared exponential kernel."""
    off = (x[:, None] - x[None, :]) / jnp.exp(log_length)
    return jnp.exp(2.0 * log_amplitude - 0.5 * off**2)


@case(
    "gp-smooth", "hyperparameters of a smooth process with little noise, 60 points", causes=ROUNDING
)
def gp_smooth() -> Problem:
    """The noise is 1e-3 of the amplitude: in single precision the Cholesky factor is NaN."""
    rng = np.random.default_rng(1)
    x = np.linspace(0.0, 1.0, 60)
    x, y = rows(x, np.sin(6.0 * x) + 0.5 * x**2 + 1e-3 * rng.standard_normal(60))

    def potential(p: Any) -> Array:
        noise = jnp.exp(2.0 * p["log_noise"])
        matrix = covariance(x, p["log_amplitude"], p["log_length"]) + noise * jnp.eye(60)
        factor = jnp.linalg.cholesky(matrix)
        white = solve_triangular(factor, y, lower=True)
        log = -0.5 * white @ white - jnp.log(jnp.diag(factor)).sum()
        log += norm.logpdf(p["log_amplitude"]) + norm.logpdf(p["log_length"], -1.0, 1.0)
        return -(log + norm.logpdf(p["log_noise"], -5.0, 2.0))

    start = zeros(log_amplitude=(), log_length=(), log_noise=())
    box = {"log_amplitude": (-2.2, 3.8), "log_length": (-1.9, 0.6), "log_noise": (-7.6, -6.2)}
    return Problem(
        ex.Target(potential), start, compute=lambda: quadrature(potential, start, box, 41)
    )


@case("gp-regression", "hyperparameters of a process with ample noise, 80 points")
def gp_regression() -> Problem:
    rng = np.random.default_rng(2)
    x = np.sort(rng.uniform(0.0, 5.0, 80))
    x, y = rows(x, np.sin(2.0 * x) + 0.3 * rng.standard_normal(80))

    def potential(p: Any) -> Array:
        noise = jnp.exp(2.0 * p["log_noise"])
        matrix = covariance(x, p["log_amplitude"], p["log_length"]) + noise * jnp.eye(80)
        factor = jnp.linalg.cholesky(matrix)
        white = solve_triangular(factor, y, lower=True)
        log = -0.5 * white @ white - jnp.log(jnp.diag(factor)).sum()
        return -(log + sum(norm.logpdf(value) for value in p.values()))

    start = zeros(log_amplitude=(), log_length=(), log_noise=())
    box = {"log_amplitude": (-2.2, 3.4), "log_length": (-1.8, 1.8), "log_noise": (-2.0, -0.4)}
    return Problem(
        ex.Target(potential), start, compute=lambda: quadrature(potential, start, box, 41)
    )


@case("gp-poisson", "Poisson counts on a process, not centred, 11 points, d = 13")
def gp_poisson() -> Problem:
    rng = np.random.default_rng(3)
    x = np.linspace(-10.0, 10.0, 11)
    x, y = rows(x, rng.poisson(np.exp(2.0 + np.sin(0.3 * x) + 0.05 * x)).astype(float))

    def potential(p: Any) -> Array:
        matrix = covariance(x, p["log_amplitude"], p["log_length"]) + 1e-4 * jnp.eye(11)
        score = jnp.linalg.cholesky(matrix) @ p["z"]
        length = jnp.exp(p["log_length"])
        log = 24.0 * p["log_length"] - 4.0 * length + p["log_length"]  # Gamma(25, 4)
        log += norm.logpdf(jnp.exp(p["log_amplitude"]), 0.0, 2.0) + p["log_amplitude"]
        return -(log + norm.logpdf(p["z"]).sum() + (y * score - jnp.exp(score)).sum())

    start = zeros(log_amplitude=(), log_length=(), z=11)
    return Problem(
        ex.Target(potential),
        start,
        compute=lambda: nuts(potential, start, draws=3_000, acceptance=0.95),
    )


@case(
    "gp-latent", "a latent function of 50 points, centred, a nearly singular prior", causes=ROUNDING
)
def gp_latent() -> Problem:
    rng = np.random.default_rng(4)
    x = np.linspace(0.0, 4.0, 50)
    x, y = rows(x, np.sin(2.0 * x) + 0.5 * rng.standard_normal(50))
    matrix = np.exp(-0.5 * ((np.asarray(x)[:, None] - np.asarray(x)[None]) / 0.7) ** 2)
    matrix = matrix.astype(np.float64) + 1e-5 * np.eye(50)
    precision = np.linalg.inv(matrix)
    held = jnp.asarray(precision, dtype=float)

    def potential(f: Array) -> Array:
        return 0.5 * f @ held @ f - norm.logpdf(y, f, 0.5).sum()

    covariance_ = np.linalg.inv(precision + 4.0 * np.eye(50))
    answer = exact(covariance_ @ (4.0 * np.asarray(y, np.float64)), np.sqrt(np.diag(covariance_)))
    return Problem(ex.Target(potential), jnp.zeros(50), answer)
