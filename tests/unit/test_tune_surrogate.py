"""When HMC on a condensed posterior is tuned, and when it is left to NUTS."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

import ergodax as ex
from ergodax.tune import DecisionLog, tune_surrogate

GROUPS, EACH = 10, 40
TOLD = "the scale of some parameters follows others"


@pytest.mark.parametrize(("spread", "follows"), [(1.5, True), (0.05, False)])
def test_none_where_the_scale_of_effects_follows_their_sd(spread, follows):
    """A chain of one step seldom comes to where all effects are narrow, and no R-hat tells."""
    group = np.repeat(np.arange(GROUPS), EACH)
    y = np.random.default_rng(0).standard_normal(group.size)

    def log_prior(p):
        narrow = norm.logpdf(p["effect"], p["mean"], jnp.exp(p["log_sd"])).sum()
        return norm.logpdf(p["log_sd"], -3.0, spread) + norm.logpdf(p["mean"], 0.0, 5.0) + narrow

    def log_likelihood(p, row):
        return norm.logpdf(row[0], p["effect"][row[1]], 1.0)

    data = np.float32(y), np.int32(group)
    posterior = ex.Posterior(log_prior, log_likelihood, data)
    begin = {"log_sd": -3.0, "mean": 0.0, "effect": np.zeros(GROUPS)}
    begin, log = jax.tree.map(jnp.float32, begin), DecisionLog()
    found = tune_surrogate(posterior, begin, log, jax.random.key(0), progress=False)
    assert (found is None) == follows, str(log)
    assert (TOLD in str(log)) == follows, str(log)


def test_none_where_its_chains_run_away(monkeypatch):
    """A two-parameter item response model, single precision: the error of `condense` left infer."""
    module, calls = importlib.import_module("ergodax.tune.surrogate"), []

    def astray(posterior, centre, draws, **options):
        calls.append(centre)
        # What chains may come to that follow a polynomial, which need not have a lower bound.
        far = centre if len(calls) == 1 else jnp.full_like(centre, jnp.nan)
        return ex.exact.condense(posterior, far, draws, **options)

    monkeypatch.setattr(module, "condense", astray)
    posterior = ex.Posterior(
        lambda m: -0.5 * jnp.sum(m**2), lambda m, x: -0.5 * jnp.sum((x - m) ** 2), jnp.ones(500)
    )
    log, key = DecisionLog(), jax.random.key(0)
    assert tune_surrogate(posterior, jnp.ones(1), log, key, progress=False) is None
    assert len(calls) == 2 and "it is not finite where its chains are" in str(log)
