"""Control variates on posteriors: the variance of estimates over repeats, and no bias.

The factor by which the variance falls is a ratio of two sample variances over the same repeats.
With r repeats its logarithm is known to about 2 sqrt(2 / r); the factors asked for are far
below those that there are, so that a false alarm is less likely than 1e-6.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import ergodax as ex
from ergodax.postprocess import gradients, zero_variance

pytestmark = pytest.mark.slow

MNIST = Path(__file__).resolve().parents[3] / "shared" / "data" / "mnist.npz"
N, D, REPEATS = 10_000, 10, 24


@pytest.fixture(scope="module")
def regression() -> tuple[ex.Posterior, np.ndarray, np.ndarray]:
    """y = X w + N(0, 1), w ~ N(0, 10): the posterior with its exact mean and covariance."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, D)) @ (np.eye(D) + 0.3 * rng.normal(size=(D, D)))
    y = x @ rng.normal(size=D) + rng.normal(size=N)
    covariance = np.linalg.inv(x.T @ x + np.eye(D) / 10.0)

    def log_likelihood(w, example):
        return -0.5 * (example[1] - example[0] @ w) ** 2

    data = (x.astype(np.float32), y.astype(np.float32))
    posterior = ex.Posterior(lambda w: -0.05 * jnp.sum(w**2), log_likelihood, data)
    return posterior, covariance @ (x.T @ y), covariance


@pytest.fixture(scope="module")
def draws(regression) -> ex.Samples:
    """48 chains, two to a repeat."""
    posterior, mean, covariance = regression
    kernel = ex.langevin(ex.FullGradient(posterior), 0.5, mass=np.linalg.inv(covariance))
    return ex.sample(
        kernel, mean.astype(np.float32), 1000, key=jax.random.key(3), num_chains=2 * REPEATS,
        burn_in=50, thin=2, progress=False,
    )  # fmt: skip


def over_repeats(x: Any, g: Any, chains: int = 2, **options: Any) -> tuple[np.ndarray, np.ndarray]:
    """Plain and improved estimates of each repeat, (repeats, functionals)."""
    parts = (slice(r, r + chains) for r in range(0, len(x), chains))
    found = [zero_variance(x[part], g[part], **options) for part in parts]
    return np.array([f.plain_mean for f in found]), np.array([f.mean for f in found])


def factor(plain: np.ndarray, improved: np.ndarray) -> float:
    """Of the variances over the repeats, the geometric mean over functionals."""
    return float(np.exp(np.mean(np.log(plain.var(axis=0) / improved.var(axis=0)))))


def assert_unbiased(estimates: np.ndarray, truth: np.ndarray, tolerance: Any) -> None:
    """`tolerance` is for single precision and what a finite step size leaves."""
    error = estimates.std(axis=0, ddof=1) / np.sqrt(len(estimates))
    allowed = stats.t.isf(0.5e-6 / len(truth), len(estimates) - 1) * error + tolerance
    assert np.all(np.abs(estimates.mean(axis=0) - truth) <= allowed)


def test_exact_gradients(regression, draws):
    posterior, mean, covariance = regression
    sd = np.sqrt(np.diag(covariance))
    slopes = gradients(draws, posterior)
    plain, improved = over_repeats(draws.position, slopes)
    assert factor(plain, improved) > 1e4  # the posterior is Gaussian: what is left is rounding
    assert_unbiased(improved, mean, 0.003 * sd)
    plain, improved = over_repeats(draws.position, slopes, functions="variance", order=2)
    assert factor(plain, improved) > 5.0
    assert_unbiased(improved, sd**2, 0.003 * sd**2)


def test_noisy_gradients(regression, draws):
    """V = 0.05 Lambda, as large batches have, or control variates near the mode."""
    posterior, mean, covariance = regression
    estimator = ex.NoisyGradient(posterior, 0.05 * np.linalg.inv(covariance))
    slopes = gradients(draws, estimator, key=jax.random.key(4))
    plain, improved = over_repeats(draws.position, slopes)
    assert factor(plain, improved) > 5.0
    assert_unbiased(improved, mean, 0.003 * np.sqrt(np.diag(covariance)))


def test_a_control_variate_of_another_posterior_is_biased(regression, draws):
    """The negative control: gradients that forget half of the data's weight."""
    posterior, mean, covariance = regression
    half = ex.Target(lambda w: posterior.potential(w) - 20.0 * w[0])
    _, improved = over_repeats(draws.position, gradients(draws, half))
    with pytest.raises(AssertionError):
        assert_unbiased(improved, mean, 0.003 * np.sqrt(np.diag(covariance)))


@pytest.mark.skipif(not MNIST.exists(), reason="shared data are not here")
def test_the_digits():
    """7 against 9, 128 principal components and an intercept."""
    from ergodax.learn import families, regression, tables

    images = tables.read_npz(MNIST, "x_train", "y_train", ("7", "9"))
    (table,) = tables.varying([images], 128)
    rows = regression.Rows(table.features, table.target, table.names, classes=table.classes)
    posterior = regression.regression(rows, families.LOGISTIC, 10.0).posterior
    start = ex.find_mode(posterior, jnp.zeros(129)).position
    hessian = np.asarray(jax.jit(jax.hessian(posterior.potential))(start), np.float64)
    kernel = ex.langevin(ex.FullGradient(posterior), 0.5, mass=hessian)
    samples = ex.sample(
        kernel, start, 4000, key=jax.random.key(0), num_chains=32, burn_in=50, thin=4,
        progress=False,
    )  # fmt: skip
    slopes = gradients(samples, posterior)
    for options in ({}, {"functions": "variance", "order": 2}):
        gain = factor(*over_repeats(samples.position, slopes, 4, **options))
        print(options.get("functions", "mean"), gain)  # shown by pytest -rA
        assert gain > 5.0
