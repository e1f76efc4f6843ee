"""Six posteriors of posteriordb, with its own long reference runs."""

import json
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array

import ergodax as ex
from benchmarks.strangers.bank import Absent, Problem, case, rows, zeros
from benchmarks.strangers.hierarchies import half_cauchy, half_normal
from benchmarks.strangers.reference import Reference

ROOT = Path(__file__).parents[2]


def shared(name: str) -> Path:
    """A file of the shared data sets; ERGODAX_SHARED_DATA names another folder.

    Raises:
        Absent: it is not there.
    """
    places = [os.environ.get("ERGODAX_SHARED_DATA"), ROOT.parent / "shared" / "data"]
    for place in places:
        if place and (path := Path(place) / name).exists():
            return path
    raise Absent(f"no {name}: set ERGODAX_SHARED_DATA to the folder that has it")


def read(name: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The data of a posterior, and its reference draws by name, on the constrained scale."""
    data = json.loads(shared(f"posteriordb/{name}.data.json").read_text(encoding="utf-8"))
    held = np.load(shared(f"posteriordb/{name}.reference.npz"))
    return data, dict(zip(held["names"].tolist(), held["draws"].T, strict=True))


def reference(*columns: np.ndarray) -> Reference:
    """The moments of reference draws in our coordinates; every fifth of 10,000 nearly free ones."""
    draws = np.column_stack(columns)
    sd = draws.std(axis=0)
    kurtosis = ((draws - draws.mean(axis=0)) ** 4).mean(axis=0) / sd**4
    errors = len(draws) ** -0.5, float(np.sqrt((kurtosis.max() - 1.0) / 4.0 / len(draws)))
    how = f"{len(draws)} reference draws of posteriordb (Stan, 10 chains, thinned)"
    return Reference(draws.mean(axis=0), sd, *errors, how)


def columns(draws: dict[str, np.ndarray], name: str, count: int) -> list[np.ndarray]:
    """The components of a vector."""
    return [draws[f"{name}[{k + 1}]"] for k in range(count)]


@case("posteriordb-sblrc", "linear regression, correlated, 100 x 6")
def sblrc() -> Problem:
    data, draws = read("sblrc-blr")
    x, y = rows(np.array(data["X"], float), np.array(data["y"], float))

    def log_prior(p: Any) -> Array:
        return norm.logpdf(p["beta"], 0.0, 10.0).sum() + half_normal(p["log_sigma"], 10.0)

    def log_likelihood(p: Any, row: Any) -> Array:
        x, y = row
        return norm.logpdf(y, x @ p["beta"], jnp.exp(p["log_sigma"]))

    answer = reference(*columns(draws, "beta", 5), np.log(draws["sigma"]))
    target = ex.Posterior(log_prior, log_likelihood, (x, y))
    return Problem(target, zeros(beta=5, log_sigma=()), answer)


@case("posteriordb-nes", "a survey, linear regression with flat priors, 1,330 x 10")
def nes() -> Problem:
    data, draws = read("nes1972-nes")
    age = np.array(data["age_discrete"])
    names = ("educ1", "gender", "income")
    x = np.column_stack(
        [np.ones(len(age)), data["real_ideo"], data["race_adj"]]
        + [age == k for k in (2, 3, 4)]
        + [data[name] for name in names]
    ).astype(float)
    y = np.array(data["partyid7"], float)
    answer = reference(*columns(draws, "beta", 9), np.log(draws["sigma"]))
    return _flat(x, y, answer)


@case("posteriordb-earnings", "earnings and height, not centred, flat priors, 1,192 x 5")
def earnings() -> Problem:
    data, draws = read("earnings-logearn_interaction")
    height, male = np.array(data["height"], float), np.array(data["male"], float)
    x = np.column_stack([np.ones(len(height)), height, male, height * male])
    y = np.log(np.array(data["earn"], float))
    answer = reference(*columns(draws, "beta", 4), np.log(draws["sigma"]))
    return _flat(x, y, answer)


def _flat(x: np.ndarray, y: np.ndarray, answer: Reference) -> Problem:
    def log_likelihood(p: Any, row: Any) -> Array:
        x, y = row
        return norm.logpdf(y, x @ p["beta"], jnp.exp(p["log_sigma"]))

    target = ex.Posterior(lambda p: p["log_sigma"], log_likelihood, rows(x, y))
    return Problem(target, zeros(beta=x.shape[1], log_sigma=()), answer)


@case("posteriordb-schools", "eight schools, not centred, as Stan's users have it")
def eight_schools() -> Problem:
    data, draws = read("eight_schools-eight_schools_noncentered")
    y, sd = rows(np.array(data["y"], float), np.array(data["sigma"], float))

    def log_prior(p: Any) -> Array:
        log = norm.logpdf(p["mu"], 0.0, 5.0) + half_cauchy(p["log_tau"], 5.0)
        return log + norm.logpdf(p["z"]).sum()

    def log_likelihood(p: Any, row: Any) -> Array:
        school, y, sd = row
        return norm.logpdf(y, p["mu"] + jnp.exp(p["log_tau"]) * p["z"][school], sd)

    z = [(theta - draws["mu"]) / draws["tau"] for theta in columns(draws, "theta", 8)]
    answer = reference(np.log(draws["tau"]), draws["mu"], *z)
    target = ex.Posterior(log_prior, log_likelihood, (jnp.arange(8), y, sd))
    return Problem(target, zeros(log_tau=(), mu=(), z=8), answer)


@case("posteriordb-ar", "AR(5), 195 rows with their lags")
def ar() -> Problem:
    data, draws = read("arK-arK")
    y = np.array(data["y"], float)
    lags = np.column_stack([y[5 - k : len(y) - k] for k in range(1, 6)])

    def log_prior(p: Any) -> Array:
        log = norm.logpdf(p["alpha"], 0.0, 10.0) + norm.logpdf(p["beta"], 0.0, 10.0).sum()
        return log + half_cauchy(p["log_sigma"], 2.5)

    def log_likelihood(p: Any, row: Any) -> Array:
        lags, y = row
        return norm.logpdf(y, p["alpha"] + lags @ p["beta"], jnp.exp(p["log_sigma"]))

    answer = reference(draws["alpha"], *columns(draws, "beta", 5), np.log(draws["sigma"]))
    target = ex.Posterior(log_prior, log_likelihood, rows(lags, y[5:]))
    return Problem(target, zeros(alpha=(), beta=5, log_sigma=()), answer)


@case("posteriordb-mixture", "a mixture of two normals, ordered, 1,000 rows")
def gauss_mix() -> Problem:
    data, draws = read("low_dim_gauss_mix-low_dim_gauss_mix")
    y = rows(np.array(data["y"], float))

    def means(p: Any) -> Array:
        return jnp.stack([p["first"], p["first"] + jnp.exp(p["log_gap"])])

    def log_prior(p: Any) -> Array:
        share = jax.nn.log_sigmoid(p["logit"]) + jax.nn.log_sigmoid(-p["logit"])
        log = norm.logpdf(means(p), 0.0, 2.0).sum() + p["log_gap"]
        return log + half_normal(p["log_sd"], 2.0).sum() + 5.0 * share

    def log_likelihood(p: Any, y: Array) -> Array:
        weights = jnp.stack([jax.nn.log_sigmoid(p["logit"]), jax.nn.log_sigmoid(-p["logit"])])
        return jax.nn.logsumexp(weights + norm.logpdf(y, means(p), jnp.exp(p["log_sd"])))

    first, second = columns(draws, "mu", 2)
    logit = np.log(draws["theta"] / (1.0 - draws["theta"]))
    sds = [np.log(sd) for sd in columns(draws, "sigma", 2)]
    answer = reference(first, np.log(second - first), *sds, logit)
    target = ex.Posterior(log_prior, log_likelihood, y)
    return Problem(target, zeros(first=(), log_gap=(), log_sd=2, logit=()), answer)
