"""Averages weighted by step sizes, against exact theory and against the plain ones."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arviz_stats.base.array import array_stats

import ergodax as ex
from ergodax.postprocess import weighted


def samples(draws):
    return ex.Samples(draws, {}, {})


@pytest.fixture
def draws():
    noise = np.random.default_rng(0).normal(size=(4, 200, 3))
    return np.cumsum(noise, axis=1) * 0.05 + noise


def test_equal_weights_are_none(draws):
    table, plain = weighted(samples({"w": draws}), np.ones(200)), samples({"w": draws}).summary()
    assert list(table.columns) == list(plain.columns) and list(table.index) == list(plain.index)
    same = ["mean", "sd", "mcse"]
    np.testing.assert_allclose(table[same], plain[same], rtol=1e-9)
    axes: dict[str, Any] = {"chain_axis": 0, "draw_axis": 1}
    split = array_stats.rhat(draws, method="split", **axes)
    np.testing.assert_allclose(table["r_hat"], split, rtol=1e-12)
    np.testing.assert_allclose(table["ess"], (table["sd"] / table["mcse"]) ** 2, rtol=1e-12)


def test_errors_do_not_depend_on_where_the_draws_lie(draws):
    w = np.random.default_rng(1).uniform(0.5, 2.0, (4, 200))
    here, there = (weighted(samples({"w": x}), w) for x in (draws, draws + 100.0))
    np.testing.assert_allclose(there[["sd", "mcse", "ess"]], here[["sd", "mcse", "ess"]], rtol=1e-6)


def test_whole_weights_are_repetitions():
    x, w = np.array([[1.0, 5.0, 2.0, 7.0, 4.0]]), np.array([3, 1, 2, 1, 1])
    table = weighted(samples(x), w)
    repeated = np.repeat(x[0], w)
    assert table["mean"].item() == pytest.approx(repeated.mean(), rel=1e-12)
    share = w / w.sum()
    expected = repeated.var() / (1.0 - np.sum(share**2))
    assert table["sd"].item() ** 2 == pytest.approx(expected, rel=1e-12)


def run_of(kernel, **options):
    given = {"num_chains": 2, "key": jax.random.key(1), "progress": False} | options
    return ex.sample(kernel, jnp.ones(2), 60, **given)


def adaptive():
    gradient = ex.FullGradient(ex.targets.gaussian(jnp.zeros(2), 1.0))
    return ex.sa_sgld(gradient, 0.1, rate=10.0, power=1.0)


def test_a_sampler_with_weights_is_summarised_by_them():
    run = run_of(adaptive(), thin=2)
    weight = np.asarray(run.info.weight, np.float64)
    assert weight.shape == (2, 30) and weight.std() > 0.1 * weight.mean()
    mean = np.einsum("ct,ctd->d", weight, run.position) / weight.sum()
    np.testing.assert_allclose(run.summary()["mean"], mean, rtol=1e-6)
    np.testing.assert_array_equal(run.summary(), weighted(run))
    assert abs(mean - run.position.mean(axis=(0, 1))).max() > 0.01


def test_weights_become_repetitions():
    run = run_of(adaptive())
    equal = run.equally_weighted()
    assert equal.info.weight is None and equal.num_draws == run.num_draws
    for chain in range(2):
        share = 60 * run.info.weight[chain] / run.info.weight[chain].sum()
        drawn = [(equal.position[chain] == row).all(axis=1).sum() for row in run.position[chain]]
        assert np.abs(np.array(drawn) - share).max() < 1.0
    step = (
        equal.info.step_size[0, 7],
        np.flatnonzero(run.position[0, :, 0] == equal.position[0, 7, 0]),
    )
    assert step[0] in run.info.step_size[0, step[1]], "each draw keeps its Info"
    assert equal.equally_weighted() is equal


UNWEIGHTED = {
    "ArviZ": lambda run: run.to_arviz(),
    "this statistic": lambda run: ex.diagnostics.ess(run),
    "online.accumulate": lambda run: run_of(
        ex.online.accumulate(adaptive(), moments=ex.online.Moments())
    ),
    "diagnostics.bias": lambda run: ex.diagnostics.bias(
        lambda h: adaptive(), jnp.zeros(2), 0.1, 10, key=jax.random.key(0)
    ),
}


@pytest.mark.parametrize("user", UNWEIGHTED)
def test_what_takes_no_weights_says_so(user):
    with pytest.raises(ValueError, match=f"{user} takes all draws.*equally_weighted"):
        UNWEIGHTED[user](run_of(adaptive()))


@pytest.mark.slow
@pytest.mark.parametrize("a", [0.0, 0.5, 0.8])
@pytest.mark.parametrize("power", [0.0, 0.55])
def test_mcse_of_an_autoregression(a, power):
    """The mean of mcse^2 over 400 series is w^T S w / W^2, the variance of the weighted mean."""
    n, series = 1600, 400
    w = (1.0 + np.arange(n) / 20.0) ** -power
    covariance = a ** np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    x = np.linalg.cholesky(covariance) @ np.random.default_rng(1).normal(size=(n, series))
    table, share = weighted(samples(x[None]), w), w / w.sum()
    exact = share @ covariance @ share
    mean_square = np.mean(table["mcse"] ** 2)
    # One mcse^2 spreads by some 30 %, the mean of 400 by 1.5 %; ArviZ errs on the large side.
    assert mean_square == pytest.approx(exact, rel=0.2)
    spread = (1.0 - exact) / (1.0 - share @ share)
    assert np.mean(table["sd"] ** 2) == pytest.approx(spread, rel=0.05)
    # The error without weights, and the one without correlation, are other numbers.
    if power:
        plain = np.mean(weighted(samples(x[None]), np.ones(n))["mcse"] ** 2)
        assert abs(plain / exact - 1.0) > 0.25
    if a:
        assert share @ share < 0.5 * exact


def test_mcse_where_the_chain_slows_down():
    """Correlation e^(-k h_t) in a step h_t that falls two-hundredfold, as in a decreasing run."""
    n, series = 2000, 400
    h = 0.3 * (1.0 + np.arange(n) / 3.0) ** -0.8
    time = np.cumsum(h)
    covariance = np.exp(-2.0 * np.abs(np.subtract.outer(time, time)))
    x = np.linalg.cholesky(covariance) @ np.random.default_rng(2).normal(size=(n, series))
    table, share = weighted(samples(x[None]), h), h / h.sum()
    exact = share @ covariance @ share
    # A run of 12 units of time, each about one draw: the error is known to about a quarter.
    assert np.mean(table["mcse"] ** 2) == pytest.approx(exact, rel=0.25)


def test_chains_that_disagree(draws):
    apart = draws + np.arange(4.0)[:, None, None] * 10.0
    assert (weighted(samples(apart), np.linspace(1.0, 0.1, 200))["r_hat"] > 1.5).all()


def test_the_step_sizes_are_the_weights(key):
    gradient = ex.FullGradient(ex.targets.gaussian(jnp.zeros(2), 1.0))
    kernel = ex.sgld(gradient, ex.schedule.Polynomial(0.5, offset=5.0))
    run = ex.sample(kernel, jnp.ones(2), 60, key=key, num_chains=3, progress=False)
    h = run.info.step_size.astype(float)
    np.testing.assert_allclose(
        weighted(run)["mean"],
        np.einsum("ct,ctd->d", h, run.position) / h.sum(),
        rtol=1e-6,
    )
    np.testing.assert_array_equal(weighted(run), weighted(run, h))


def test_a_constant_and_a_single_weight(draws):
    assert np.isnan(weighted(samples(np.ones((2, 9))), np.ones(9))["r_hat"].item())
    table = weighted(samples(draws), np.eye(200)[7])
    np.testing.assert_allclose(table["mean"], draws[:, 7].mean(axis=0), rtol=1e-12)


@pytest.mark.parametrize(
    "weights, error, message",
    [
        (None, TypeError, "no info.step_size; pass weights="),
        (np.ones(3), ValueError, r"weights must have the shape .* \(4, 200\).*\(3,\)"),
        (-np.ones(200), ValueError, "weights must be finite and not negative"),
        (np.full(200, np.inf), ValueError, "weights must be finite"),
        (np.zeros(200), ValueError, "not all zero"),
    ],
)
def test_weights_refused(draws, weights, error, message):
    with pytest.raises(error, match=message):
        weighted(samples(draws), weights)


def test_too_few_draws(draws):
    with pytest.raises(ValueError, match="4 draws"):
        weighted(samples(draws[:, :3]), np.ones(3))
