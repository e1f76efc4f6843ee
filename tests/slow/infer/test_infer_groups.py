"""`infer` of models with groups: what it decides about the latents, and its answer.

Means and sds of the answer, whose error it says is below 0.05 sd, within 0.25 of the exact ones.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

import ergodax as ex

SD = 0.5


def rows(groups=12, seed=0):
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(groups), 4)
    return (0.8 * rng.standard_normal(groups)[group] + SD * rng.standard_normal(len(group))), group


def exact(y, group):
    """Mean and sd of mu and log tau under flat and N(0, 1) priors, by quadrature."""
    means = np.bincount(group, y) / 4.0
    mu, rho = np.meshgrid(np.linspace(-3, 3, 401), np.linspace(-6, 3, 801), indexing="ij")
    q = np.exp(2 * rho) + SD**2 / 4.0
    log = -0.5 * rho**2 - 0.5 * ((means[:, None, None] - mu) ** 2 / q + np.log(q)).sum(axis=0)
    weights = np.exp(log - log.max())
    weights /= weights.sum()
    found = {}
    for name, x in {"mu": mu, "rho": rho}.items():
        mean = (weights * x).sum()
        found[name] = mean, np.sqrt((weights * (x - mean) ** 2).sum())
    return found


def model(y, group, log_likelihood):
    return ex.groups.GroupedPosterior(
        lambda s: norm.logpdf(s["rho"]) + 0.0 * s["mu"],
        lambda b, s: norm.logpdf(b, s["mu"], jnp.exp(s["rho"])),
        log_likelihood,
        y,
        group,
    )


def check(samples, reference):
    for name, (mean, sd) in reference.items():
        draws = np.asarray(samples[name], float)
        assert abs(draws.mean() - mean) < 0.25 * sd, name
        assert abs(draws.std() - sd) < 0.25 * sd, name


def test_a_normal_hierarchy_has_its_exact_posterior(key):
    y, group = rows()
    posterior = model(y, group, lambda s, b, y: norm.logpdf(y, b, SD))
    result = ex.infer(posterior, {"mu": 0.0, "rho": 0.0}, key=key, progress=False)
    assert result.converged
    decision = result.account.decisions[0]
    assert decision.chosen == "integrated out" and "closed form" in decision.why
    check(result.samples.position, exact(y, group))
    wrong = exact(np.asarray(y) + 0.6, group)["mu"]  # the test can tell
    assert abs(result.samples.position["mu"].mean() - wrong[0]) > 0.25 * wrong[1]


def test_what_no_rule_integrates_is_sampled_with_the_rest(key):
    """Five numbers a latent; the last four are so tightly bound that the answer is the same."""
    y, group = rows()

    def log_latent(b, s):
        return norm.logpdf(b[0], s["mu"], jnp.exp(s["rho"])) + norm.logpdf(b[1:]).sum()

    posterior = ex.groups.GroupedPosterior(
        lambda s: norm.logpdf(s["rho"]) + 0.0 * s["mu"],
        log_latent,
        lambda s, b, y: norm.logpdf(y, b[0], SD) - 0.01 * jnp.sum(jnp.cosh(b[1:])),
        y,
        group,
        latent=jnp.zeros(5),
    )
    result = ex.infer(posterior, {"mu": 0.0, "rho": 0.0}, key=key, progress=False)
    decision = result.account.decisions[0]
    assert decision.chosen == "sampled with the rest" and "too many for quadrature" in decision.why
    assert result.samples.position["latent"].shape[2:] == (12, 5)
    assert result.converged
    check(result.samples.position["shared"], exact(y, group))


def test_draws_that_need_more_nodes_get_them(key):
    """At the start groups are all alike and quadrature is easy; at draws it is not."""
    rng = np.random.default_rng(1)
    group = np.repeat(np.arange(40), 3)
    logit = 2.5 * rng.standard_normal(40)[group]
    y = (rng.random(len(group)) < 1.0 / (1.0 + np.exp(-logit))).astype(np.float32)
    posterior = model(y, group, lambda s, b, y: y * b - jax.nn.softplus(b))
    start = {"mu": 0.0, "rho": -2.0}
    few = posterior.marginal(start).log_likelihood.account.order
    result = ex.infer(posterior, start, key=key, progress=False)
    assert result.converged
    assert "nodes" in result.account.decisions[0].why
    draw = jax.tree.map(lambda x: x[0, -1], result.samples.position)
    assert posterior.marginal(start, draw).log_likelihood.account.order > few
    assert "draws need more nodes" in result.account.decisions[0].why


def test_an_inference_that_was_kept_is_returned_as_it_was(key, tmp_path):
    y, group = rows()
    counts = np.floor(np.exp(y)).astype(np.float32)
    posterior = model(counts, group, lambda s, b, y: y * b - jnp.exp(b))
    place, start = tmp_path / "kept", {"mu": 0.0, "rho": 0.0}
    first = ex.infer(posterior, start, key=key, progress=False, checkpoint=ex.Checkpoint(place))
    assert first.converged
    again = ex.Checkpoint(place, resume=True)
    second = ex.infer(posterior, start, key=key, progress=False, checkpoint=again)
    assert second.verdict() == first.verdict()
    for name in start:
        np.testing.assert_array_equal(first.samples.position[name], second.samples.position[name])
    other = model(counts + 1.0, group, lambda s, b, y: y * b - jnp.exp(b))
    with pytest.raises(ex.CheckpointError):
        ex.infer(other, start, key=key, progress=False, checkpoint=again)
