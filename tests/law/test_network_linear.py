"""A network of one linear layer is Bayesian linear regression, whose posterior is known.

The chains of a run are independent, so their last positions are independent draws once the start
is forgotten. Mean and covariance of 2,048 draws are compared with the exact ones by chi-square
statistics, each with a false alarm of 1e-7; the discretisation's bias is below a tenth of the
Monte Carlo error. Faults: the scale by inputs forgotten, and the factor N / n forgotten.
"""

import equinox as eqx
import jax
import numpy as np
import pytest
from scipy import stats

import ergodax as ex
from ergodax import network

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(7)
ROWS, INPUTS, NOISE, SCALE, DRAWS = 12, 3, 0.8, 1.2, 2048
X = (0.4 * RNG.normal(size=(ROWS, INPUTS))).astype(np.float32)
Y = (X @ [1.0, -2.0, 0.5] + 0.3 + NOISE * RNG.normal(size=ROWS)).astype(np.float32)
FALSE_ALARM = 1e-7


def exact():
    """Mean and covariance of (weights, bias), by the normal equations."""
    design = np.column_stack([X.astype(float), np.ones(ROWS)])
    prior = np.diag([INPUTS / SCALE**2] * INPUTS + [1 / SCALE**2])
    covariance = np.linalg.inv(design.T @ design / NOISE**2 + prior)
    return covariance @ design.T @ Y / NOISE**2, covariance


def posterior(fan_in=True, share=1.0):
    """`share` is the factor of the likelihood; n / N forgets the factor N / n of a batch."""
    module = eqx.nn.Linear(INPUTS, 1, key=jax.random.key(0))
    likelihood = network.likelihoods.Gaussian(NOISE / share**0.5)
    prior = network.priors.Normal(SCALE, fan_in=fan_in)
    return network.posterior(module, (X, Y), likelihood, prior)


def full(target):
    """BAOAB: the exact law of the positions of a Gaussian target, at any stable step."""
    return ex.langevin(ex.FullGradient(target), 0.15, 2.0), 250


def batches(target):
    """SGHMC, half of the rows a batch, the gradient's noise compensated; bias of order h."""
    noise = ex.ScoreCovariance(ex.Minibatch(target, ROWS // 2), structure="dense")
    return ex.sghmc(noise, 0.02, 4.0, compensate=True), 1000


def nogin(target):
    """NOGIN on batches, which corrects for the covariance of the gradient's noise."""
    noise = ex.ScoreCovariance(ex.Minibatch(target, ROWS // 2), structure="dense")
    return ex.nogin(noise, 0.05, 4.0), 500


def draws(target, sampler, key):
    kernel, steps = sampler(target)
    run = {"num_chains": DRAWS, "thin": steps, "key": key, "progress": False}
    samples = ex.sample(kernel, target.start, steps, **run)
    linear = samples.position["network"]
    weights = np.concatenate([linear.weight[:, 0, 0], linear.bias[:, 0]], axis=1)
    return weights.astype(float)


def alarms(w):
    """The p-values of the mean and of the covariance."""
    mean, covariance = exact()
    root = np.linalg.cholesky(covariance)
    white = np.linalg.solve(root, (w - mean[None]).T).T
    d, apart = w.shape[1], white.T @ white / len(w) - np.eye(w.shape[1])
    of_mean = stats.chi2.sf(len(w) * np.sum(white.mean(axis=0) ** 2), d)
    of_covariance = stats.chi2.sf(0.5 * len(w) * np.sum(apart**2), d * (d + 1) // 2)
    return of_mean, of_covariance


@pytest.mark.parametrize("sampler", [full, batches, nogin], ids=lambda f: f.__name__)
def test_law(sampler, key):
    assert min(alarms(draws(posterior(), sampler, key))) > FALSE_ALARM


@pytest.mark.parametrize(
    "fault", [{"fan_in": False}, {"share": 0.5}], ids=["no fan-in", "no factor"]
)
def test_faults_are_rejected(fault, key):
    assert min(alarms(draws(posterior(**fault), full, key))) < FALSE_ALARM


def test_the_exact_predictive_density(key):
    """Streamed over the draws: a normal with the noise's and the weights' variance."""
    target = posterior()
    rows, targets = X[:4], Y[:4] + 0.5
    inside, _ = full(target)
    kernel = network.predictive(inside, target, rows, targets, after=200, every=20)
    run = {"num_chains": 256, "thin": 1000, "key": key, "progress": False}
    prediction = kernel.results(ex.sample(kernel, target.start, 1200, **run))
    for field in (prediction.log_density, prediction.draw_log_density, prediction.below):
        assert field is not None and np.isfinite(field).all()
    mean, covariance = exact()
    design = np.column_stack([rows.astype(float), np.ones(4)])
    spread = np.einsum("ij,jk,ik->i", design, covariance, design)
    # 12,800 draws, nearly independent: 5.5 standard errors, with a third more for the rest.
    error = 7.5 / np.sqrt(prediction.count)
    np.testing.assert_array_less(np.abs(prediction.mean - design @ mean), error * np.sqrt(spread))
    np.testing.assert_array_less(np.abs(prediction.spread / spread - 1), error * np.sqrt(2))
    total = np.sqrt(spread + NOISE**2)
    density = stats.norm.logpdf(targets, design @ mean, total)
    np.testing.assert_allclose(np.asarray(prediction.log_density), density, atol=error)
    below = stats.norm.cdf(targets, design @ mean, total)
    np.testing.assert_allclose(np.asarray(prediction.below), below, atol=error)
    assert prediction.noise == pytest.approx(NOISE**2, rel=1e-5)
