"""Inference without hyperparameters: right answers, errors that cover them, and no silent failure.

Estimates are compared with the truth at 5 of the errors that the result itself reports, below one
false alarm in a million for each figure.
"""

import importlib
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

import ergodax as ex
from ergodax.tune.decisions import LARGEST_R_HAT, error_table, is_accurate
from ergodax.tune.infer import infer
from ergodax.tune.nuts_kernel import Nuts

KEY = jax.random.key(20261121)
ERRORS = 5.0


def run(target, init, **options):
    return infer(target, init, **{"key": KEY, "progress": False} | options)


def logistic(size=20_000, d=3, seed=3):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(size, d)) @ np.array([[1.0, 0.8, 0.0], [0.0, 0.6, 0.0], [0.0, 0.0, 20.0]])
    y = rng.random(size) < scipy.special.expit(x @ np.array([1.0, -0.5, 0.02]))
    data = x.astype(np.float32), y.astype(np.float32)

    def log_likelihood(w, row):
        return row[1] * (row[0] @ w) - jnp.logaddexp(0.0, row[0] @ w)

    return ex.Posterior(lambda w: -0.5 * jnp.sum(w**2) / 25.0, log_likelihood, data)


def quadrature(posterior, points=9):
    """Means and sds by Gauss-Hermite quadrature about the mode, in double precision."""
    x, y = (np.asarray(a, np.float64) for a in posterior.data)
    w = np.zeros(x.shape[1])
    for _ in range(30):
        p = scipy.special.expit(x @ w)
        hessian = (x * (p * (1 - p))[:, None]).T @ x + np.eye(len(w)) / 25.0
        w = w - np.linalg.solve(hessian, x.T @ (p - y) + w / 25.0)
    nodes, weights = np.polynomial.hermite_e.hermegauss(points)
    grid = np.stack(np.meshgrid(*[nodes] * len(w), indexing="ij"), axis=-1).reshape(-1, len(w))
    weight = np.prod(np.stack(np.meshgrid(*[weights] * len(w), indexing="ij"), axis=-1), axis=-1)
    at = w + grid @ np.linalg.inv(np.linalg.cholesky(hessian))
    logits = at @ x.T
    density = logits @ y - np.logaddexp(0.0, logits).sum(axis=1) - 0.02 * (at**2).sum(axis=1)
    density += 0.5 * (grid**2).sum(axis=1)
    weight = weight.ravel() * np.exp(density - density.max())
    weight /= weight.sum()
    mean = weight @ at
    return mean, np.sqrt(weight @ (at - mean) ** 2)


def off_by(table, mean, sd):
    """How far means and sds are off, in units of the errors that are reported."""
    means = np.abs(table["mean"] - mean) / (table["sd"] * (table["mcse_mean"] + table["bias_mean"]))
    sds = np.abs(table["sd"] - sd) / (table["sd"] * (table["mcse_sd"] + table["bias_sd"]))
    return np.concatenate([means, sds])


def test_stochastic_gradients_agree_with_quadrature():
    posterior = logistic()
    result, (mean, sd) = run(posterior, jnp.zeros(3)), quadrature(posterior)
    table = result.table
    assert result.converged and result.tuned.bias is not None, str(result)
    assert off_by(table, mean, sd).max() < ERRORS
    # The negative controls: half an sd, and a wrong scale, are rejected in every component.
    assert off_by(table, mean + 0.5 * sd, sd)[:3].min() > ERRORS
    assert off_by(table, mean, 1.5 * sd)[3:].min() > ERRORS
    # Converged means that the accuracy is kept.
    assert (table["error"] < result.accuracy).all() and (table["r_hat"] < LARGEST_R_HAT).all()
    draws = np.asarray(result.samples.position)
    np.testing.assert_allclose(draws.mean(axis=(0, 1)), table["mean"], rtol=1e-4)
    # A bias as large as the posterior would be reported.
    biases = result.tuned.bias.table.assign(bias_coarse=sd.max())
    biased = types.SimpleNamespace(table=biases, ratio=result.tuned.bias.ratio)
    assert not is_accurate(error_table(result.samples, biased), result.accuracy)
    lines = str(result).splitlines()
    assert lines[0] == "converged: every error is below 0.05 posterior sd"
    for word in ("start", "coordinates", "estimator", "sampler", "length"):
        assert any(line.startswith(word) for line in lines), word
    assert {"mode", "scale", "tuning", "diagnostics"} <= set(result.account.seconds)


def gaussian(d=3):
    """Means 1 to d, sds 1 to d, as a dict of a vector and a scalar."""
    means = jnp.arange(1.0, d + 1)

    def potential(z):
        scaled = (jnp.append(z["w"], z["b"]) - means) / means
        return 0.5 * jnp.sum(scaled**2)

    return ex.Target(potential), {"w": jnp.zeros(d - 1), "b": jnp.zeros(())}


def test_a_target_without_data_and_a_position_that_is_a_tree():
    target, init = gaussian()
    result = run(target, init)
    assert result.converged and result.tuned.bias is None
    assert set(result.samples.position) == {"w", "b"}
    assert list(result.table.index) == ["b", "w[0]", "w[1]"]
    truth = np.array([3.0, 1.0, 2.0])
    assert off_by(result.table, truth, truth).max() < ERRORS
    again = run(target, init).samples.position
    np.testing.assert_array_equal(again["w"], result.samples.position["w"])


def test_no_time_is_reported():
    target, init = gaussian()
    result = run(target, init, accuracy=1e-3, max_seconds=0.0)
    assert not result.converged and str(result).startswith("NOT converged: ")
    assert result.table["error"].max() > 1e-3


def two_modes(apart):
    return ex.Target(
        lambda x: -jnp.logaddexp(*(-0.5 * jnp.sum((x - m) ** 2) for m in (-apart, apart)))
    )


@pytest.mark.parametrize("init", [0.0, 6.0])
def test_chains_jump_between_two_modes(init):
    result = run(two_modes(6.0), jnp.full(1, init))
    assert result.converged and off_by(result.table, 0.0, np.sqrt(37.0)).max() < ERRORS
    assert any(d.what == "modes" for d in result.account.decisions)


def test_chains_jump_between_two_modes_of_much_data():
    """log-likelihood -(x - w^2)^2: the data do not tell w from -w."""
    rng = np.random.default_rng(5)
    data = (1.0 + rng.normal(size=2_500)).astype(np.float32)
    target = ex.Posterior(
        lambda w: -0.5 * jnp.sum(w**2), lambda w, x: -0.1 * jnp.sum((x - w**2) ** 2), data
    )
    result = run(target, jnp.ones(1))
    w, x = np.linspace(-2.0, 2.0, 8_001), data.astype(np.float64)
    # The sum of (x - w^2)^2 but for a constant.
    log = -0.5 * w**2 - 0.1 * (len(x) * w**4 - 2.0 * w**2 * x.sum())
    density = np.exp(log - log.max())
    sd = np.sqrt(np.sum(w**2 * density) / np.sum(density))
    assert result.converged and off_by(result.table, 0.0, sd).max() < ERRORS
    assert any(d.what == "modes" for d in result.account.decisions)


def test_two_modes_in_many_dimensions_are_reported(monkeypatch):
    def potential(x):
        return two_modes(25.0).potential(x[:1]) + 0.5 * jnp.sum(x[1:] ** 2)

    monkeypatch.setattr(importlib.import_module("ergodax.tune.nuts"), "WINDOWS", ())
    result = run(ex.Target(potential), jnp.ones(1_025), max_seconds=60.0, num_chains=2)
    assert not result.converged and result.table["r_hat"].iloc[0] > 1.2
    assert any(d.what == "modes" for d in result.account.decisions)


def test_a_density_without_an_integral_does_not_converge():
    result = run(ex.Target(lambda x: 0.5 * x[0] ** 2 + 0.0 * x[1]), jnp.ones(2))
    assert not result.converged and "improper" in result.verdict()
    assert "position[1]" in result.verdict() and "position[0]" not in result.verdict()


def narrow(x):
    """N(1e4, 3e-4^2), which single precision does not resolve."""
    return 0.5 * jnp.sum(((x - 1e4) / 3e-4) ** 2)


def test_a_posterior_that_single_precision_cannot_resolve_is_sampled_in_double():
    result = run(ex.Target(narrow), jnp.full(2, 1e4))
    assert result.converged and result.samples.position.dtype == np.float64
    assert any(d.what == "anew" for d in result.account.decisions)
    assert off_by(result.table, 1e4, 3e-4).max() < ERRORS


@pytest.mark.parametrize("mean", [1e4, 1e6])
def test_a_sum_that_single_precision_rounds_is_sampled_in_double(mean):
    """Counts of Poisson regression: the potential is 1e7 and more, where floats are 1 apart."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=300)
    y = rng.poisson(mean * np.exp(0.5 * x)).astype(np.float64)
    columns, w = np.column_stack([x, np.ones(300)]), np.array([0.5, np.log(mean)])
    for _ in range(20):  # the mode, about which the law is normal but for 1 in 1e5
        rate = np.exp(columns @ w)
        hessian = columns.T @ (columns * rate[:, None])
        w += np.linalg.solve(hessian, columns.T @ (y - rate))

    def log_likelihood(w, row):
        x, y = (number.astype(w.dtype) for number in row)
        eta = w[0] * x + w[1]
        return y * eta - jnp.exp(eta)

    data = x.astype(np.float32), y.astype(np.float32)
    prior = lambda w: -0.5e-4 * jnp.sum(w**2)  # noqa: E731
    result = run(ex.Posterior(prior, log_likelihood, data), jnp.zeros(2))
    assert result.converged, str(result)
    assert off_by(result.table, w, np.sqrt(np.diag(np.linalg.inv(hessian)))).max() < ERRORS
    single = lambda w, row: log_likelihood(w, row) if w.dtype == jnp.float32 else [][0]  # noqa: E731
    result = run(ex.Posterior(prior, single, data), jnp.zeros(2), max_seconds=30.0)
    assert not result.converged and "rounding changes the potential" in result.verdict()


def test_a_model_for_single_precision_alone_is_told_what_it_lacks():
    single = ex.Target(lambda x: narrow(x) if x.dtype == jnp.float32 else [][0])
    result = run(single, jnp.full(2, 1e4))
    assert not result.converged and "float32 resolves" in result.verdict()


def test_trajectories_that_diverge_are_reported():
    # A step at |x| = 1, which no gradient tells of.
    target = ex.Target(lambda x: 0.5 * jnp.sum(x**2) + jnp.sum(jnp.where(jnp.abs(x) > 1, 1e4, 0)))
    result = run(target, jnp.zeros(1))
    assert not result.converged and "diverged" in result.verdict()


def test_the_dtype_is_the_user_s(x64):
    target = ex.Target(lambda x: 0.5 * jnp.sum((x - jnp.ones(2, x.dtype)) ** 2))
    result = run(target, jnp.zeros(2, jnp.float32))
    assert result.converged and result.samples.position.dtype == jnp.float32


def test_nuts_is_a_kernel():
    scales = jnp.array([1.0, 2.0])
    kernel = Nuts(ex.Target(lambda u: 0.5 * jnp.sum((u / scales) ** 2)), jnp.asarray(0.8))
    samples = ex.sample(
        kernel, jnp.zeros(2), 1_000, key=KEY, num_chains=4, burn_in=50, progress=False
    )
    table = error_table(samples)
    assert off_by(table, 0.0, np.array([1.0, 2.0])).max() < ERRORS
    assert np.all(samples.info.evaluations >= 1) and np.all(samples.info.finite)
    assert 0.5 < np.mean(samples.info.acceptance) <= 1.0
