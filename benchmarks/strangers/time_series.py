"""Time series: autoregressions, volatility, states that are hidden, changepoints, an ODE."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jax.scipy.stats import norm
from jaxtyping import Array

import ergodax as ex
from benchmarks.strangers.bank import Problem, case, rows, zeros
from benchmarks.strangers.hierarchies import NECK
from benchmarks.strangers.reference import importance, nuts, quadrature
from benchmarks.strangers.regression import flat_answer


@case("ar-2", "AR(2) given as rows with their lags, flat priors, 500 rows")
def ar_2() -> Problem:
    rng = np.random.default_rng(1)
    y = np.zeros(600)
    for t in range(2, 600):
        y[t] = 0.3 + 1.2 * y[t - 1] - 0.4 * y[t - 2] + 0.5 * rng.standard_normal()
    y = y[98:]
    x, y = rows(np.column_stack([np.ones(500), y[1:-1], y[:-2]]), y[2:])

    def log_likelihood(p: Any, row: Any) -> Array:
        lags, y = row
        return norm.logpdf(y, lags @ p["w"], jnp.exp(p["log_sigma"]))

    target = ex.Posterior(lambda p: 0.0, log_likelihood, (x, y))
    return Problem(target, zeros(log_sigma=(), w=3), flat_answer(x, y))


@case("garch", "GARCH(1, 1), 1,000 days, stationary by its coordinates")
def garch() -> Problem:
    rng = np.random.default_rng(2)
    y, variance = np.zeros(1_000), 1.0
    for t in range(1_000):
        y[t] = 0.1 + np.sqrt(variance) * rng.standard_normal()
        variance = 0.1 + 0.2 * (y[t] - 0.1) ** 2 + 0.7 * variance
    y = rows(y)

    def potential(p: Any) -> Array:
        """alpha + beta is the logistic function of `total`, the share of alpha that of `share`."""
        total, share = jax.nn.sigmoid(p["total"]), jax.nn.sigmoid(p["share"])
        omega, off = jnp.exp(p["log_omega"]), y - p["mu"]

        def step(variance: Array, off: Array) -> tuple[Array, Array]:
            after = omega + total * share * off**2 + total * (1.0 - share) * variance
            return after, norm.logpdf(off, 0.0, jnp.sqrt(variance))

        log = jax.lax.scan(step, jnp.ones(()), off)[1].sum()
        log += norm.logpdf(p["mu"], 0.0, 1.0) + norm.logpdf(p["log_omega"], -1.0, 2.0)
        return -(log + norm.logpdf(p["total"], 2.0, 1.5) + norm.logpdf(p["share"], -1.0, 1.5))

    start = zeros(log_omega=(), mu=(), share=(), total=())
    return Problem(
        ex.Target(potential),
        start,
        compute=lambda: importance(potential, start, draws=20_000, freedom=5.0),
    )


@case("stochastic-volatility", "stochastic volatility, 200 days, not centred, d = 203", causes=NECK)
def stochastic_volatility() -> Problem:
    rng = np.random.default_rng(3)
    level = np.zeros(200)
    for t in range(1, 200):
        level[t] = 0.95 * level[t - 1] + 0.25 * rng.standard_normal()
    y = rows(np.exp((level - 0.5) / 2.0) * rng.standard_normal(200))

    def potential(p: Any) -> Array:
        sigma, phi = jnp.exp(p["log_sigma"]), jnp.tanh(p["atanh_phi"])
        first = p["z"][0] * sigma / jnp.sqrt(1.0 - phi**2)

        def step(before: Array, z: Array) -> tuple[Array, Array]:
            after = phi * before + sigma * z
            return after, after

        levels = jnp.append(first, jax.lax.scan(step, first, p["z"][1:])[1])
        log = norm.logpdf(y, 0.0, jnp.exp((p["mu"] + levels) / 2.0)).sum()
        log += norm.logpdf(p["z"]).sum() + norm.logpdf(p["mu"], 0.0, 2.0)
        return -(
            log + norm.logpdf(p["log_sigma"], -1.5, 0.7) + norm.logpdf(p["atanh_phi"], 1.5, 0.7)
        )

    start = zeros(atanh_phi=(), log_sigma=(), mu=(), z=200)
    return Problem(
        ex.Target(potential),
        start,
        compute=lambda: nuts(potential, start, draws=1_500, dense=False),
    )


@case("local-level", "a random walk seen with noise, 100 times, centred, d = 102", causes=NECK)
def local_level() -> Problem:
    rng = np.random.default_rng(4)
    y = rows(np.cumsum(0.3 * rng.standard_normal(100)) + rng.standard_normal(100))

    def potential(p: Any) -> Array:
        step, noise = jnp.exp(p["log_step"]), jnp.exp(p["log_noise"])
        log = norm.logpdf(p["log_step"], -1.0, 1.0) + norm.logpdf(p["log_noise"], 0.0, 1.0)
        log += norm.logpdf(p["level"][0], 0.0, 5.0)
        log += norm.logpdf(jnp.diff(p["level"]), 0.0, step).sum()
        return -(log + norm.logpdf(y, p["level"], noise).sum())

    start = zeros(level=100, log_noise=(), log_step=())
    box = {"log_noise": (-1.4, 0.9), "log_step": (-5.5, 1.0)}
    return Problem(
        ex.Target(potential), start, compute=lambda: quadrature(potential, start, box, (41, 61))
    )


@case("changepoint", "yearly counts with one change of rate, its year summed out, 112 years")
def changepoint() -> Problem:
    rng = np.random.default_rng(5)
    y = rows(rng.poisson(np.where(np.arange(112) < 41, 3.1, 0.9)).astype(float))
    before = jnp.concatenate([jnp.zeros(1, y.dtype), jnp.cumsum(y)])
    years = jnp.arange(113, dtype=y.dtype)

    def potential(p: Any) -> Array:
        early, late = p["log_early"], p["log_late"]
        log = before * early - years * jnp.exp(early)
        log += (before[-1] - before) * late - (112 - years) * jnp.exp(late)
        prior = norm.logpdf(early, 0.0, 1.5) + norm.logpdf(late, 0.0, 1.5)
        return -(jax.nn.logsumexp(log) + prior)

    start = zeros(log_early=(), log_late=())
    box = {"log_early": (-1.5, 2.5), "log_late": (-2.5, 2.5)}
    return Problem(
        ex.Target(potential), start, compute=lambda: quadrature(potential, start, box, 401)
    )


@case("lotka-volterra", "predators and prey, an ODE by Runge-Kutta, 20 times, d = 8")
def lotka_volterra() -> Problem:
    truth = np.log([0.55, 0.028, 0.84, 0.026, 33.0, 6.0])
    noise = 0.15 * np.random.default_rng(6).standard_normal((20, 2))

    def path(rates: Array, first: Array) -> Array:
        """Logarithms of both species after each of 20 years, ten steps a year."""
        birth, eaten, death, growth = jnp.exp(rates)

        def slope(x: Array) -> Array:
            prey, predators = jnp.exp(x)
            return jnp.stack([birth - eaten * predators, growth * prey - death])

        def step(x: Array, _: None) -> tuple[Array, None]:
            h = 0.1
            a = slope(x)
            b = slope(x + 0.5 * h * a)
            c = slope(x + 0.5 * h * b)
            return x + h / 6.0 * (a + 2.0 * b + 2.0 * c + slope(x + h * c)), None

        def year(x: Array, _: None) -> tuple[Array, Array]:
            x = jax.lax.scan(step, x, None, length=10)[0]
            return x, x

        return jax.lax.scan(year, first, None, length=20)[1]

    seen = rows(np.asarray(path(jnp.asarray(truth[:4]), jnp.asarray(truth[4:]))) + noise)
    centre = jnp.asarray(np.log([1.0, 0.05, 1.0, 0.05, 10.0, 10.0]), dtype=float)

    def potential(p: Any) -> Array:
        log = norm.logpdf(p["rates"], centre[:4], 0.5).sum()
        log += norm.logpdf(p["first"], centre[4:], 1.0).sum()
        log += norm.logpdf(p["log_noise"], -1.0, 1.0).sum()
        off = path(p["rates"], p["first"])
        return -(log + norm.logpdf(seen, off, jnp.exp(p["log_noise"])).sum())

    start = {"first": centre[4:], "log_noise": -jnp.ones(2), "rates": centre[:4]}
    near = start | {"rates": jnp.asarray(truth[:4]), "first": jnp.asarray(truth[4:])}
    return Problem(
        ex.Target(potential),
        start,
        compute=lambda: importance(potential, near, draws=20_000, freedom=10.0),
    )


@case("hidden-markov", "two hidden states summed out, normal rows, 300 times")
def hidden_markov() -> Problem:
    rng = np.random.default_rng(7)
    state = np.zeros(300, int)
    for t in range(1, 300):
        state[t] = state[t - 1] if rng.random() < 0.9 else 1 - state[t - 1]
    y = rows(np.array([-1.0, 1.5])[state] + rng.standard_normal(300))

    def potential(p: Any) -> Array:
        stay = jax.nn.log_sigmoid(p["logit_stay"])
        leave = jax.nn.log_sigmoid(-p["logit_stay"])
        moves = jnp.array([[stay[0], leave[0]], [leave[1], stay[1]]])
        means = jnp.stack([p["first"], p["first"] + jnp.exp(p["log_gap"])])
        logs = norm.logpdf(y[:, None], means, jnp.exp(p["log_sd"]))

        def step(alpha: Array, log: Array) -> tuple[Array, None]:
            return jax.nn.logsumexp(alpha[:, None] + moves, axis=0) + log, None

        alpha = jax.lax.scan(step, logs[0] - jnp.log(2.0), logs[1:])[0]
        log = jax.nn.logsumexp(alpha) + norm.logpdf(p["first"], 0.0, 3.0)
        log += norm.logpdf(p["log_gap"], 0.0, 1.0) + norm.logpdf(p["log_sd"], 0.0, 1.0)
        return -(log + norm.logpdf(p["logit_stay"], 1.0, 1.5).sum())

    start = zeros(first=(), log_gap=(), log_sd=(), logit_stay=2)
    near = start | {"first": jnp.asarray(-1.0), "logit_stay": jnp.full(2, 2.0)}
    return Problem(ex.Target(potential), start, compute=lambda: nuts(potential, near, draws=2_000))


@case(
    "poisson-autoregressive",
    "counts with an AR(1) level, 120 times, not centred, d = 123",
    causes=NECK,
)
def poisson_autoregressive() -> Problem:
    rng = np.random.default_rng(8)
    level = np.zeros(120)
    for t in range(1, 120):
        level[t] = 0.8 * level[t - 1] + 0.4 * rng.standard_normal()
    y = rows(rng.poisson(np.exp(1.0 + level)).astype(float))

    def potential(p: Any) -> Array:
        sigma, phi = jnp.exp(p["log_sigma"]), jnp.tanh(p["atanh_phi"])

        def step(before: Array, z: Array) -> tuple[Array, Array]:
            after = phi * before + sigma * z
            return after, after

        levels = jax.lax.scan(step, jnp.zeros(()), p["z"])[1]
        score = p["mu"] + levels
        log = (y * score - jnp.exp(score) - gammaln(y + 1.0)).sum() + norm.logpdf(p["z"]).sum()
        log += norm.logpdf(p["mu"], 0.0, 2.0) + norm.logpdf(p["atanh_phi"], 0.5, 1.0)
        return -(log + norm.logpdf(p["log_sigma"], -1.0, 1.0))

    start = zeros(atanh_phi=(), log_sigma=(), mu=(), z=120)
    return Problem(
        ex.Target(potential),
        start,
        compute=lambda: nuts(potential, start, draws=1_500, dense=False),
    )
