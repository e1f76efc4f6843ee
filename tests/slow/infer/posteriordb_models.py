"""Six models of posteriordb in unconstrained coordinates, and the way back.

Each density is written out from the model's definition. A positive parameter is sampled as its
logarithm, a probability as its logit, and the log absolute Jacobian of the map is part of the
prior.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import ergodax as ex


class Model(NamedTuple):
    """A target, where to begin, and position -> the parameters in the order of the reference."""

    target: ex.Target | ex.Posterior
    init: Any
    parameters: Callable[[Any], jax.Array]


def normal(x, mean, sd):
    return -0.5 * ((x - mean) / sd) ** 2 - jnp.log(sd)


def half_cauchy(x, scale):
    return -jnp.log1p((x / scale) ** 2)


def linear_regression(x, y, log_prior) -> Model:
    """Rows (x, y), y ~ Normal(x . beta, sigma); `log_prior` has the Jacobian, log sigma."""

    def log_likelihood(position, row):
        return normal(row[1], row[0] @ position["beta"], jnp.exp(position["log_sigma"]))

    init = {"beta": jnp.zeros(x.shape[1]), "log_sigma": jnp.zeros(())}
    return Model(ex.Posterior(log_prior, log_likelihood, (x, y)), init, beta_and_sigma)


def beta_and_sigma(position):
    return jnp.append(position["beta"], jnp.exp(position["log_sigma"]))


def flat(position):
    return position["log_sigma"]


def blr(data) -> Model:
    def log_prior(position):
        beta, sigma = position["beta"], jnp.exp(position["log_sigma"])
        squares = jnp.sum((beta / 10.0) ** 2) + (sigma / 10.0) ** 2
        return -0.5 * squares + position["log_sigma"]

    return linear_regression(np.asarray(data["X"]), np.asarray(data["y"]), log_prior)


def nes(data) -> Model:
    columns = {name: np.asarray(value, float) for name, value in data.items()}
    x = [np.ones(data["N"]), columns["real_ideo"], columns["race_adj"]]
    x += [1.0 * (columns["age_discrete"] == age) for age in (2, 3, 4)]
    x += [columns["educ1"], columns["gender"], columns["income"]]
    return linear_regression(np.stack(x, axis=1), columns["partyid7"], flat)


def earnings(data) -> Model:
    height, male = np.asarray(data["height"], float), np.asarray(data["male"], float)
    x = np.stack([np.ones_like(height), height, male, height * male], axis=1)
    return linear_regression(x, np.log(np.asarray(data["earn"], float)), flat)


def eight_schools(data) -> Model:
    y, errors = jnp.asarray(data["y"], float), jnp.asarray(data["sigma"], float)

    def effects(position):
        return position["mu"] + jnp.exp(position["log_tau"]) * position["z"]

    def potential(position):
        prior = normal(position["mu"], 0.0, 5.0) - 0.5 * jnp.sum(position["z"] ** 2)
        prior += half_cauchy(jnp.exp(position["log_tau"]), 5.0) + position["log_tau"]
        return -prior - jnp.sum(normal(y, effects(position), errors))

    def parameters(position):
        rest = jnp.stack([position["mu"], jnp.exp(position["log_tau"])])
        return jnp.append(effects(position), rest)

    init = {"z": jnp.zeros(8), "mu": jnp.zeros(()), "log_tau": jnp.zeros(())}
    return Model(ex.Target(potential), init, parameters)


def autoregression(data) -> Model:
    y, lags = np.asarray(data["y"], float), data["K"]
    past = jnp.asarray(np.stack([y[lags - k : -k] for k in range(1, lags + 1)], axis=1), float)
    now = jnp.asarray(y[lags:], float)

    def potential(position):
        sigma = jnp.exp(position["log_sigma"])
        squares = position["alpha"] ** 2 + jnp.sum(position["beta"] ** 2)
        prior = -0.5 * squares / 100.0 + half_cauchy(sigma, 2.5) + position["log_sigma"]
        mean = position["alpha"] + past @ position["beta"]
        return -prior - jnp.sum(normal(now, mean, sigma))

    def parameters(position):
        return jnp.append(position["alpha"], beta_and_sigma(position))

    init = {"alpha": jnp.zeros(()), "beta": jnp.zeros(lags), "log_sigma": jnp.zeros(())}
    return Model(ex.Target(potential), init, parameters)


def mixture(data) -> Model:
    """The means are (m, m + exp(log_gap)), which keeps their order."""

    def components(position):
        low = position["low"]
        return jnp.stack([low, low + jnp.exp(position["log_gap"])]), jnp.exp(position["log_sigma"])

    def log_prior(position):
        means, sigmas = components(position)
        prior = -0.125 * (jnp.sum(means**2) + jnp.sum(sigmas**2))
        share = jax.nn.log_sigmoid(position["logit"]) + jax.nn.log_sigmoid(-position["logit"])
        jacobian = position["log_gap"] + jnp.sum(position["log_sigma"]) + share
        return prior + 4.0 * share + jacobian

    def log_likelihood(position, y):
        logit = position["logit"]
        weights = jnp.stack([jax.nn.log_sigmoid(logit), jax.nn.log_sigmoid(-logit)])
        return jax.nn.logsumexp(weights + normal(y, *components(position)))

    def parameters(position):
        share = jax.nn.sigmoid(position["logit"])
        return jnp.append(jnp.concatenate(components(position)), share)

    zero = jnp.zeros(())
    init = {"low": zero - 1.0, "log_gap": zero, "log_sigma": jnp.zeros(2), "logit": zero}
    return Model(ex.Posterior(log_prior, log_likelihood, np.asarray(data["y"])), init, parameters)


MODELS = {
    "sblrc-blr": blr,
    "nes1972-nes": nes,
    "earnings-logearn_interaction": earnings,
    "eight_schools-eight_schools_noncentered": eight_schools,
    "arK-arK": autoregression,
    "low_dim_gauss_mix-low_dim_gauss_mix": mixture,
}
