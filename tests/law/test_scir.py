"""The Cox-Ingersoll-Ross sampler: its step from what it asks of the generators, its law sampled.

What a step asks of Poisson's law and the Gamma law determines the law of theta. Chains are many and
side by side, so that their ends are independent; comparisons are at 5 standard errors or p = 1e-6.
"""

from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import ergodax as ex
from ergodax.sampler import simplex

ALPHA, COUNTS = 0.1, np.array([800, 150, 50, 0])
ROWS = np.repeat(np.arange(4), COUNTS)


def posterior():
    return ex.Posterior(
        lambda eta: jnp.sum(ALPHA * eta - jnp.exp(eta)), lambda eta, row: eta[row], ROWS
    )


def gamma(b):
    """theta ~ Gamma(b, 1), in eta."""
    return ex.Target(lambda eta: jnp.sum(jnp.exp(eta) - b * eta))


def ends(kernel, start, key, steps=1, chains=100_000):
    """theta after some steps of many chains."""

    @jax.jit
    def run(keys):
        def one(key):
            first, *others = jax.random.split(key, 1 + steps)
            state = kernel.init(first, jnp.log(start))
            for other in others[: 1 if steps == 1 else 0]:
                state, _ = kernel.step(other, state)
            if steps > 1:
                state, _ = jax.lax.scan(
                    lambda s, k: (kernel.step(k, s)[0], None), state, jnp.stack(others)
                )
            return jnp.exp(state.position)

        return jax.vmap(one)(keys)

    return np.asarray(run(jax.random.split(key, chains)), float)


def assert_moments(theta, mean, variance):
    """5 standard errors of each, from the sample's own moments."""
    n, centred = len(theta), theta - theta.mean()
    assert abs(theta.mean() - mean) < 5.0 * theta.std() / np.sqrt(n)
    spread = np.sqrt((np.mean(centred**4) - theta.var() ** 2) / n)
    assert abs(theta.var() - variance) < 5.0 * spread


def test_what_a_step_asks_for(x64):
    """At temperature 2: the rate, and the shape from the exact gradient and the count."""
    b, theta, h, t = np.array([0.7, 3.0]), np.array([1.3, 0.2]), 0.3, 2.0
    kernel, asked = ex.scir(ex.FullGradient(gamma(b)), h, temperature=t), {}
    state = kernel.init(jax.random.key(0), jnp.log(theta))

    def poisson(key, rate):
        asked["rate"] = rate
        return jnp.array([2, 5])

    def log_gamma(key, shape):
        asked["shape"] = shape
        return jnp.array([0.25, -400.0])

    with (
        mock.patch.object(jax.random, "poisson", poisson),
        mock.patch.object(simplex, "log_gamma", log_gamma),
    ):
        new, info = kernel.step(jax.random.key(1), state)
    spread = t * (1.0 - np.exp(-h))
    np.testing.assert_allclose(asked["rate"], theta * np.exp(-h) / spread, rtol=1e-12)
    np.testing.assert_allclose(asked["shape"], b / t + np.array([2, 5]), rtol=1e-12)
    np.testing.assert_allclose(new.position, np.log(spread) + np.array([0.25, -400.0]))
    assert info.feasible is not None and bool(info.feasible)


def test_the_law_of_a_step(key):
    """A scaled noncentral chi-square with 2 b degrees of freedom."""
    theta, b, h = 1.3, 0.7, 0.3
    found = ends(ex.scir(ex.FullGradient(gamma(b)), h), np.full(1, theta), key)[:, 0]
    assert_moments(found, 1.1444909324, 0.5462397562)
    half = 0.5 * (1.0 - np.exp(-h))
    numbers = 2.0 * b, theta * np.exp(-h) / half, 0.0, half
    assert stats.ncx2.pdf(1.1, *numbers) == pytest.approx(0.5317921857, abs=1e-9)
    assert stats.kstest(found, lambda x: stats.ncx2.cdf(x, *numbers)).pvalue > 1e-6
    assert stats.kstest(found, stats.gamma(b).cdf).pvalue < 1e-6, "not yet the stationary law"


@pytest.mark.slow
def test_all_rows_give_the_dirichlet_posterior_at_a_large_step(key):
    kernel = ex.scir(ex.FullGradient(posterior()), 5.0)
    theta = ends(kernel, np.ones(4), key, steps=4, chains=10_000)
    shares = theta / theta.sum(axis=1, keepdims=True)
    total = ALPHA * 4 + COUNTS.sum()
    for k, count in enumerate(COUNTS):
        law = stats.beta(ALPHA + count, total - ALPHA - count)
        # Below float32's least number a weight is zero; the law is compared above it.
        share = np.maximum(shares[:, k], 1e-37)
        assert stats.kstest(share[share > 1e-37], lambda x, law=law: _above(law, x)).pvalue > 1e-6
        assert abs((share > 1e-37).mean() - law.sf(1e-37)) < 0.025


def _above(law, x):
    """The distribution function of the law given that it is above 1e-37."""
    return (law.cdf(x) - law.cdf(1e-37)) / law.sf(1e-37)


@pytest.mark.slow
def test_batches_of_ten_add_the_variance_that_they_should(key):
    """b + tanh(h / 2) Var(b) for the largest count, with replacement."""
    h, variance, chains = 0.5, 4718.79859846, 2000
    kernel = ex.scir(ex.Minibatch(posterior(), 10, replace=True), h)
    theta = ends(kernel, ALPHA + COUNTS, key, steps=20, chains=chains)
    noise = (1000 / 10) * 800 * (1 - 0.8)
    assert variance == pytest.approx(800.1 + np.tanh(h / 2) * noise, abs=0.1)
    assert_moments(theta[:, 0], 800.1, variance)
    # A category that no row has keeps its prior, whatever the batches.
    assert theta[:, 3].mean() == pytest.approx(ALPHA, abs=5.0 * np.sqrt(ALPHA / chains))


@pytest.mark.slow
def test_a_batch_that_is_not_scaled_is_seen(key):
    """N / n forgotten: the counts are those of the batch."""
    small = ex.Posterior(
        lambda eta: jnp.sum(ALPHA * eta - jnp.exp(eta)), lambda eta, row: eta[row] / 100.0, ROWS
    )
    theta = ends(ex.scir(ex.Minibatch(small, 10), 0.5), np.ones(4), key, steps=20, chains=500)
    with pytest.raises(AssertionError):
        assert_moments(theta[:, 0], 800.1, 800.1)


@pytest.mark.parametrize("b", [-2.0, 0.0])
def test_a_shape_that_is_not_positive_is_not_feasible(b, key):
    kernel = ex.scir(ex.FullGradient(gamma(b)), 0.1)
    _, info = kernel.step(key, kernel.init(key, jnp.zeros(1)))
    assert info.feasible is not None and not bool(info.feasible) and bool(info.finite)
    assert "theta - g > 0" in kernel.infeasible
