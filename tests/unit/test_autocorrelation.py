"""Autocorrelation, effective sample size and R-hat: worked examples and exact AR(1) values."""

import warnings
from importlib.metadata import version

import jax
import numpy as np
import pytest
from arviz_stats.base.array import array_stats

import ergodax as ex
from ergodax import diagnostics
from ergodax.stats import estimators
from ergodax.stats.estimators import effective_size, scale_reduction, standard_error

WORKED = np.array([[1.0, 2.0, 3.0, 4.0], [2.0, 3.0, 4.0, 5.0]])


@pytest.mark.parametrize(
    "kind, expected",
    [
        ("identity", 1.0246951),
        ("split", 1.9578900),
        ("z_scale", 1.8885002),
        ("folded", 1.0801234),
        ("rank", 1.8885002),  # the larger of the two
    ],
)
def test_r_hat_by_hand(kind, expected):
    assert float(diagnostics.r_hat(WORKED, kind)) == pytest.approx(expected, abs=5e-8)


def autoregression(rho, chains, n, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(chains, n))
    x[:, 1:] *= np.sqrt(1.0 - rho**2)
    for t in range(1, n):
        x[:, t] += rho * x[:, t - 1]
    return x


@pytest.mark.parametrize("rho, time", [(0.5, 3.0), (0.9, 19.0), (-0.5, 1.0 / 3.0)])
def test_autoregression(rho, time):
    """(1 + rho) / (1 - rho); 160,000 draws leave about 3 % of noise in the sum's cut."""
    x = autoregression(rho, 8, 20_000)
    assert float(diagnostics.integrated_autocorrelation_time(x)) == pytest.approx(time, rel=0.15)
    assert float(diagnostics.ess(x, "mean")) == pytest.approx(x.size / time, rel=0.15)
    at = diagnostics.autocorrelation(x)
    np.testing.assert_allclose(at[:, :4].mean(0), rho ** np.arange(4), atol=0.03)


def test_autocorrelation_is_the_definition():
    x = np.random.default_rng(1).normal(size=(2, 30, 3)).cumsum(axis=1)
    offset = x - x.mean(axis=1, keepdims=True)
    found = diagnostics.autocorrelation({"a": x})["a"]
    for lag in (0, 1, 7):
        products = offset[:, lag:] * offset[:, : 30 - lag]
        expected = products.sum(axis=1) / (offset**2).sum(axis=1)
        np.testing.assert_allclose(found[:, lag], expected, atol=1e-12)


def test_chains_that_disagree_are_seen():
    x = autoregression(0.5, 4, 500)
    assert float(diagnostics.r_hat(x)) < 1.03
    assert float(diagnostics.r_hat(x + np.arange(4)[:, None])) > 1.5
    assert float(diagnostics.r_hat(x * np.array([1, 1, 1, 5.0])[:, None])) > 1.1


def run(**options):
    target = ex.targets.gaussian(np.zeros(3), np.ones(3))
    kernel = ex.langevin(ex.FullGradient(target), 0.3)
    return ex.sample(
        kernel, np.zeros(3), 400, key=jax.random.key(0), num_chains=2, progress=False, **options
    )


def test_trees_keep_their_structure():
    samples = run()
    assert diagnostics.ess(samples).shape == (3,)
    nested = {"a": samples.position[..., 0], "f": np.tanh, "b": [samples.position]}
    for function in (diagnostics.ess, diagnostics.r_hat):
        found = function(nested)
        assert found["a"].shape == () and found["b"][0].shape == (3,) and found["f"] is None
    assert diagnostics.autocorrelation(samples).shape == (2, 400, 3)
    assert (diagnostics.ess(samples, "tail") > 10).all()


def test_efficiency_counts_the_steps_between_draws():
    samples = run(thin=4)
    found = diagnostics.efficiency(samples, thin=4, seconds=2.0)
    assert found.evaluations == 800  # 2 chains of 400 steps, one gradient each
    size = diagnostics.ess(samples, "mean")
    np.testing.assert_allclose(found.per_evaluation, size / 800)
    assert found.per_second is not None
    np.testing.assert_allclose(np.asarray(found.per_second), size / 2.0)
    assert diagnostics.efficiency(samples).per_second is None


def test_wrong_calls():
    x = np.zeros((1, 10))
    with pytest.raises(ValueError, match="2 chains"):
        diagnostics.r_hat(x)
    with pytest.raises(ValueError, match="kind must be"):
        diagnostics.ess(x, "median")
    with pytest.raises(ValueError, match="chains, draws"):
        diagnostics.ess(np.zeros(10))
    with pytest.raises(TypeError, match="tree of arrays"):
        diagnostics.ess("draws")
    samples = run()
    with pytest.raises(ValueError, match="thin"):
        diagnostics.efficiency(samples, thin=0)
    with pytest.raises(ValueError, match="seconds"):
        diagnostics.efficiency(samples, seconds=0.0)
    with pytest.raises(ValueError, match="evaluations"):
        diagnostics.efficiency(ex.Samples(samples.position, None, None))


STATISTICS = [
    *[("ess", lambda x, kind=kind: effective_size(x, kind), kind) for kind in ("mean", "bulk")],
    ("ess", lambda x: effective_size(x, "tail"), "tail"),
    ("mcse", lambda x: standard_error(x, "mean"), "mean"),
    *[
        ("rhat", lambda x, kind=kind: scale_reduction(x, kind), kind)
        for kind in ("rank", "z_scale", "folded", "split", "identity")
    ],
]
if version("arviz-stats") >= "1":  # before, of the squares' effective size alone
    STATISTICS.append(("mcse", lambda x: standard_error(x, "sd"), "sd"))


@pytest.mark.parametrize("chains", [1, 2, 4])
@pytest.mark.parametrize("draws", [3, 4, 5, 7, 10, 11, 200])
def test_the_estimators_are_those_of_arviz(chains, draws):
    """For draws that are independent, correlated in both ways, tied, apart and constant."""
    rng = np.random.default_rng(5)
    parts = [autoregression(rho, chains, draws, seed=7) for rho in (0.0, 0.9, -0.7)]
    parts.append(rng.integers(0, 3, (chains, draws)).astype(float))
    parts.append(parts[0] + 10.0 * np.arange(chains)[:, None])
    parts.append(np.ones((chains, draws)))
    x = np.stack(parts, axis=-1)
    for statistic, ours, method in STATISTICS:
        more = {"prob": (0.05, 0.95)} if method == "tail" else {}
        with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
            theirs = getattr(array_stats, statistic)(
                x, chain_axis=0, draw_axis=1, method=method, **more
            )
        np.testing.assert_allclose(ours(x), theirs, rtol=1e-9, err_msg=f"{statistic} {method}")


def test_many_components_are_looked_at_in_parts(monkeypatch):
    x = np.random.default_rng(2).normal(size=(4, 50, 3, 5))
    whole = [ours(x) for _, ours, _ in STATISTICS]
    assert all(each.shape == (3, 5) for each in whole)
    monkeypatch.setattr(estimators, "NUMBERS", 4 * 50 * 2)
    for each, (_, ours, _) in zip(whole, STATISTICS, strict=True):
        np.testing.assert_allclose(ours(x), each, rtol=1e-10)


def autocorrelated(rng, chains, draws, components, rho=0.9):
    """Chains x' = rho x + sqrt(1 - rho^2) N(0, 1), which begin in N(0, 1)."""
    x = rng.normal(size=(chains, draws, components))
    x[:, 1:] *= np.sqrt(1.0 - rho**2)
    for t in range(1, draws):
        x[:, t] += rho * x[:, t - 1]
    return x


@pytest.mark.parametrize("law", ["exponential", "normal", "autocorrelated"])
def test_widened_errors_hold_in_95_of_100(law):
    """Means of few draws; .002 is the standard error of a share of 10,000."""
    rng = np.random.default_rng(0)
    match law:
        case "exponential":
            x = rng.exponential(size=(4, 25, 40_000)) - 1.0
        case "normal":
            x = rng.normal(size=(4, 25, 40_000))
        case _:
            x = autocorrelated(rng, 4, 250, 10_000)
    off = np.abs(x.mean(axis=(0, 1)))
    error = standard_error(x)
    wider = estimators.widening(x, error)
    assert 0.935 < np.mean(off < 1.96 * error * wider) < 0.963
    assert np.mean(off < 1.96 * error) < 0.945, "the control: the plain bounds are too narrow"
    assert wider.min() >= 1.0


def test_the_error_of_an_sd_is_widened_as_that_of_the_mean_of_squares():
    x = np.random.default_rng(1).gamma(0.5, size=(4, 100, 3))
    of_sd, variance = standard_error(x, "sd"), x.var(axis=(0, 1))
    squares = (x - x.mean(axis=(0, 1))) ** 2
    expected = estimators.widening(squares, 2.0 * np.sqrt(variance) * of_sd)
    found = estimators.widening(x, of_sd, "sd")
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert found.min() > 1.01, "skewed squares: the factor matters here"


def test_the_error_of_an_sd_counts_no_more_draws_than_that_of_the_mean():
    """Squares of a chain that remembers its place forget it sooner, as far as they tell."""
    x = autocorrelated(np.random.default_rng(2), 4, 1_000, 3, 0.8)
    squares = (x - x.mean(axis=(0, 1))) ** 2
    of_sd = standard_error(x, "sd")
    of_squares = 2.0 * x.std(axis=(0, 1)) * of_sd
    fewer = estimators.widening(x, of_sd, "sd") / estimators.widening(squares, of_squares)
    sizes = estimators.effective_size(squares) / estimators.effective_size(x)
    np.testing.assert_allclose(fewer, np.sqrt(sizes), rtol=1e-12)
    assert sizes.min() > 1.3


@pytest.mark.parametrize("rho", [0.0, 0.9, 0.999])
def test_long_chains_are_looked_at_in_pieces(rho, monkeypatch):
    """As by one transform of the whole, to rounding; the slowest needs more lags than the first."""
    x = np.stack([autoregression(rho, 2, 40_000), np.ones((2, 40_000))], axis=-1)
    x[..., 1] = autoregression(0.5, 2, 40_000, seed=1)

    def told():
        return np.stack([effective_size(x), estimators._degrees_of_freedom(x, "mean")])

    in_pieces = told()
    monkeypatch.setattr(estimators, "LAGS", 10**9)
    np.testing.assert_allclose(in_pieces, told(), rtol=1e-9)
    theirs = [np.asarray(array_stats.ess(x[..., k], method="mean")) for k in (0, 1)]
    np.testing.assert_allclose(in_pieces[0], theirs, rtol=1e-6)
