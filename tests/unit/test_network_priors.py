"""Priors of weights: densities against SciPy, scaling by inputs, assignment by path."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from ergodax import network

priors = network.priors


def horseshoe_like(z, floor):
    """The density as written, without its cancellation taken care of."""
    return np.log1p(1 / (z**2 + floor**2)) / (2 * np.pi * (np.sqrt(1 + floor**2) - floor))


CASES = [
    (priors.Normal(0.7, location=0.2), lambda w, s: stats.norm.logpdf(w, 0.2, 0.7 / s)),
    (priors.Laplace(0.7), lambda w, s: stats.laplace.logpdf(w, 0, 0.7 / s)),
    (priors.Student(0.7, 4.0), lambda w, s: stats.t.logpdf(w, 4, 0, 0.7 / s)),
    (
        priors.HorseshoeLike(0.7, 0.3),
        lambda w, s: np.log(horseshoe_like(w * s / 0.7, 0.3) * s / 0.7),
    ),
]


@pytest.mark.parametrize(("prior", "exact"), CASES, ids=lambda x: type(x).__name__)
@pytest.mark.parametrize("inputs", [1, 9])
def test_density(x64, prior, exact, inputs):
    weights = np.random.default_rng(0).normal(size=(4, inputs))
    value = prior.log_density(jnp.asarray(weights), inputs)
    np.testing.assert_allclose(value, exact(weights, np.sqrt(inputs)).sum(), rtol=1e-5)


def test_the_scale_is_that_of_one_input_without_fan_in(x64):
    weights = jnp.array([0.3, -1.0])
    flat = priors.Normal(2.0, fan_in=False).log_density(weights, 25)
    np.testing.assert_allclose(flat, stats.norm.logpdf([0.3, -1.0], 0, 2.0).sum(), rtol=1e-6)


@pytest.mark.parametrize("floor", [0.01, 0.3, 2.0])
def test_the_horseshoe_like_density_integrates_to_one(floor):
    prior = priors.HorseshoeLike(1.0, floor)
    with jax.enable_x64(True):
        inside = integrate.quad(
            lambda z: float(jnp.exp(prior.log_density(jnp.asarray(z, float), 1))), 0, 50,
            points=[floor, 1.0], limit=200,
        )[0]  # fmt: skip
    tail = 1 / 50 / (2 * np.pi * (np.sqrt(1 + floor**2) - floor))  # of log(1 + 1/z^2) = 1/z^2
    assert abs(2 * (inside + tail) - 1) < 1e-4


def test_float32_stays_float32(x64):
    for prior, _ in CASES:
        assert prior.log_density(jnp.ones(3, jnp.float32), 3).dtype == jnp.float32


def test_the_first_pattern_that_matches_counts():
    narrow, wide = priors.Normal(0.1), priors.Laplace(3.0)
    prior = priors.ByPath({"*.0.*": narrow, "*.bias": wide})
    found = prior.assign(["layers.0.bias", "layers.1.bias", "layers.1.weight"])
    assert found[0] is prior.patterns["*.0.*"] and found[1] is prior.patterns["*.bias"]
    assert isinstance(found[2], priors.Normal) and float(found[2].scale) == 1.0


def test_a_posterior_gives_each_array_its_prior(x64):
    module = eqx.nn.MLP(4, 1, 9, 1, dtype=jnp.float64, key=jax.random.key(0))
    data = (np.ones((3, 4)), np.ones(3))
    prior = priors.ByPath({"*.bias": priors.Student(0.5, 3.0)}, priors.Normal(2.0))
    posterior = network.posterior(module, data, network.likelihoods.Gaussian(0.1), prior)
    first, last = module.layers
    expected = (
        stats.norm.logpdf(first.weight, 0, 2 / np.sqrt(4)).sum()
        + stats.norm.logpdf(last.weight, 0, 2 / np.sqrt(9)).sum()
        + stats.t.logpdf(first.bias, 3, 0, 0.5).sum()
        + stats.t.logpdf(last.bias, 3, 0, 0.5).sum()
    )
    np.testing.assert_allclose(posterior.log_prior(posterior.start), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: priors.Normal(0.0), ValueError, "scale must be positive"),
        (lambda: priors.Normal("wide"), TypeError, "scale must be a number"),
        (lambda: priors.Normal(1.0, location=None), TypeError, "location must be a number"),
        (lambda: priors.Student(1.0, -1.0), ValueError, "degrees must be positive"),
        (lambda: priors.HorseshoeLike(1.0, 0.0), ValueError, "floor must be positive"),
        (lambda: priors.ByPath({}), ValueError, "patterns is empty"),
        (lambda: priors.ByPath({"*": 1.0}), TypeError, r"patterns\['\*'\] must be a prior"),
        (lambda: priors.ByPath({"a": priors.Normal()}).assign(["b"]), ValueError, "matches none"),
    ],
)
def test_bad_input(make, error, message):
    with pytest.raises(error, match=message):
        make()
