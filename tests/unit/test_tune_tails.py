"""A marginal density that does not fall off is named; proper ones, however slow, are not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

import ergodax as ex
from ergodax.tune import tails
from ergodax.tune.background import double_precision
from ergodax.tune.tails import endless_tail

GROUPS = 3
LIKE = {"log_tau": np.zeros(()), "mu": np.zeros(()), "theta": np.zeros(GROUPS)}
LOG_PRIORS = {
    "half-Cauchy": lambda t: t - jnp.log1p(jnp.exp(2.0 * t)),
    "tau^-0.7": lambda t: 0.3 * t - jnp.exp(t),
    "wide normal": lambda t: -0.5 * (t / 5.0) ** 2,
}


def groups(log_prior) -> ex.Target:
    """Effects of groups, centred: their density has no bound as tau goes to 0."""
    y = np.random.default_rng(7).standard_normal(GROUPS)

    def potential(p):
        log = norm.logpdf(p["theta"], p["mu"], jnp.exp(p["log_tau"])).sum()
        return -(log + norm.logpdf(y, p["theta"], 1.0).sum() + log_prior(p["log_tau"]))

    return ex.Target(potential)


def draws(shift: float) -> dict[str, np.ndarray]:
    """Of four chains that have not come together in log tau."""
    rng = np.random.default_rng(0)
    log_tau = rng.normal(shift, 1.4, (4, 300)) + np.array([0.0, 0.5, 1.0, -0.5])[:, None]
    mu = rng.normal(0.0, 0.3, (4, 300))
    noise = np.exp(log_tau)[..., None] * rng.standard_normal((4, 300, GROUPS))
    return {"log_tau": log_tau, "mu": mu, "theta": mu[..., None] + noise}


def told(target: ex.Target, like=LIKE, of=None) -> str:
    of = draws(-2.5) if of is None else of
    with double_precision():
        return endless_tail(target, jax.tree.map(jnp.asarray, like), of)


def test_a_flat_prior_on_a_log_scale_is_named_with_its_end():
    assert told(groups(lambda t: 0.0 * t)).startswith("log_tau decreases from -")


def test_a_density_that_grows_is_named():
    assert told(groups(lambda t: -0.5 * t)).startswith("log_tau decreases from -")


@pytest.mark.parametrize("name", LOG_PRIORS)
def test_proper_priors_are_not_named(name):
    assert told(groups(LOG_PRIORS[name])) == ""


@pytest.mark.parametrize("shift", [-23.0, -14.0])
def test_it_is_named_where_draws_have_come_to_where_rounding_decides(shift):
    """Chains that began in the spike stay there, and beyond it no determinant is to be had."""
    spread = np.array([-6.0, 0.0, 6.0, 9.0]) * (shift > -20.0)
    lost = draws(shift)
    lost["log_tau"] = lost["log_tau"] + spread[:, None]
    noise = np.random.default_rng(1).standard_normal(lost["theta"].shape)
    lost["theta"] = lost["mu"][..., None] + np.exp(lost["log_tau"])[..., None] * noise
    stopped = {name: np.repeat(x[:, -1:], x.shape[1], axis=1) for name, x in lost.items()}
    for of in (lost, stopped):  # chains that can go no farther tell as much
        assert "log_tau decreases from -" in told(groups(lambda t: 0.0 * t), of=of)
    for log_prior in LOG_PRIORS.values():
        assert told(groups(log_prior), of=lost) == ""


def test_of_chains_that_stand_still_the_farthest_component_is_looked_at(monkeypatch):
    """Their R-hats are all infinite but for rounding, in any order."""
    monkeypatch.setattr(tails, "WORST", 1)
    monkeypatch.setattr(tails, "r_hat", lambda rows: np.arange(1e15, 1e15 + rows.shape[-1]))
    lost = draws(-40.0)
    lost["log_tau"] = lost["log_tau"] - 30.0 * np.arange(4.0)[:, None]
    lost["theta"] = np.repeat(lost["mu"][..., None], GROUPS, axis=-1)
    stopped = {name: np.repeat(x[:, -1:], x.shape[1], axis=1) for name, x in lost.items()}
    assert "log_tau decreases from -" in told(groups(lambda t: 0.0 * t), of=stopped)


def test_the_other_end_is_looked_at_too():
    flat_above = ex.Target(lambda p: 0.5 * p[1] ** 2 + jax.nn.softplus(-3.0 * p[0]))
    rng = np.random.default_rng(1)
    apart = rng.standard_normal((4, 300, 2)) + np.array([0.0, 1.0, 2.0, 3.0])[:, None, None]
    assert told(flat_above, np.zeros(2), apart).startswith("position[0] grows from ")
    cauchy = ex.Target(lambda p: 0.5 * p[1] ** 2 + jnp.log1p(p[0] ** 2))
    assert told(cauchy, np.zeros(2), apart) == ""


def test_a_component_is_found_behind_others_in_which_chains_differ_more():
    flat = ex.Target(lambda p: 0.5 * jnp.sum(p[:2] ** 2) + 0.0 * p[2])
    apart = np.random.default_rng(1).standard_normal((4, 50, 3))
    apart += np.arange(4.0)[:, None, None] * np.array([3.0, 2.0, 1.0])
    assert told(flat, np.zeros(3), apart).startswith("position[2] ")


def test_one_component_has_no_others_to_integrate_out():
    line = ex.Target(lambda p: 0.0 * p[0])
    assert told(line, np.zeros(1), np.random.default_rng(1).standard_normal((4, 50, 1))) == ""


def test_a_look_that_would_take_long_is_not_taken(monkeypatch):
    target = ex.targets.gaussian(np.zeros(2), 1.0)
    monkeypatch.setattr(tails, "seconds_of_gradient", lambda target, like: 1e-4)
    for timed in (True, False):
        assert tails.is_quick(target, np.zeros(2), 0, timed=timed)
        assert not tails.is_quick(target, np.zeros(1_000), 0, timed=timed)
    monkeypatch.setattr(tails, "seconds_of_gradient", lambda target, like: 1.0)
    assert tails.is_quick(target, np.zeros(2), 0, timed=False)
    assert not tails.is_quick(target, np.zeros(2), 0, timed=True)


def test_what_is_not_finite_is_not_called_flat():
    def potential(p):
        inside = (p[0] >= 0.0) & (p[0] <= 9.0)
        return jnp.where(inside, 0.5 * p[1] ** 2, jnp.inf)

    apart = np.random.default_rng(1).uniform(0.0, 9.0, (4, 100, 2))
    assert told(ex.Target(potential), np.zeros(2), apart) == ""


def test_derivatives_that_are_not_finite_and_few_draws_raise_nothing():
    def potential(p):
        return jnp.where(p[0] > 9.5, jnp.nan, 0.0) + 0.5 * p[1] ** 2 + jnp.sqrt(10.0 - p[0])

    apart = np.random.default_rng(1).uniform(0.0, 9.0, (4, 100, 2))
    assert told(ex.Target(potential), np.zeros(2), apart) == ""
    few = {name: x[:, :3] for name, x in draws(0.0).items()}
    still = {name: 0.0 * x for name, x in draws(0.0).items()}
    for of in (few, still):
        assert told(groups(lambda t: 0.0 * t), of=of) == ""
