"""Posterior variances of a logistic regression: exact parts exactly, the whole in small."""

import json
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import ergodax as ex
from ergodax.apps.reproduce import (
    digits,
    digits_fit,
    digits_gradient,
    digits_moments,
    digits_pages,
    digits_reference,
    digits_schemes,
)
from ergodax.cli.reproduce import ReproduceOptions
from ergodax.cli.reproduce_mnist import mnist
from ergodax.learn.tables import Table

PRIOR = 2.0
SMALL = digits.Size(8, (15.0, 50.0), (8,), (8,), 800, 8)
MNIST = Path(os.environ.get("ERGODAX_MNIST", "mnist.npz"))


def logistic_table(rows=60, d=2):
    rng = np.random.default_rng(3)
    x = np.column_stack([rng.standard_normal((rows, d - 1)), np.ones(rows)])
    y = (rng.random(rows) < expit(x @ np.linspace(1.5, 0.5, d))).astype(float)
    return Table(x, y, [f"x{k}" for k in range(d)], ("0", "1"))


@pytest.fixture(scope="module")
def problem():
    return digits_schemes.prepare(logistic_table(), PRIOR)


def moments_on_a_grid(table, width=8.0, points=401):
    """Mean and variances of two coefficients, by the trapezoidal rule."""
    axis = np.linspace(-width, width, points)
    w = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    logits = w @ table.features.T
    log = (table.target * logits - np.logaddexp(0, logits)).sum(1) - (w**2).sum(1) / 2 / PRIOR**2
    mass = np.exp(log - log.max())
    mean = mass @ w / mass.sum()
    return mean, mass @ (w - mean) ** 2 / mass.sum()


# --- The Gaussian --------------------------------------------------------------------------


def test_the_averages_are_those_over_the_gaussian(problem):
    gaussian, table = problem.gaussian, problem.table
    # The last average is over N(centre, C) with the C of the last Newton step, near H^-1.
    covariance = np.linalg.inv(gaussian.hessian)
    again = digits_fit._average(table, gaussian.centre, covariance, PRIOR)
    normal = np.random.default_rng(0).standard_normal((200_000, 2))
    w = gaussian.centre + normal @ np.linalg.cholesky(covariance).T
    probability = expit(w @ table.features[0])
    np.testing.assert_allclose(again.level[0], probability.mean(), atol=6 * 0.5 / 447)
    slope = probability * (1 - probability)
    np.testing.assert_allclose(again.slope[0], slope.mean(), atol=6 * 0.25 / 447)
    np.testing.assert_allclose(again.hessian, gaussian.hessian, rtol=0.05)
    assert np.sqrt(gaussian.offset @ covariance @ gaussian.offset) < digits_fit.NEAR


def test_the_decomposition_of_the_gradient_is_exact(problem):
    """offset + u + the rows' residuals is the gradient, wherever and however good the fit."""
    basis = digits_schemes.controlled(problem).basis
    gaussian, posterior = problem.gaussian, problem.coordinates(basis)
    u = jnp.array([1.7, -2.3])
    z, centre, _ = posterior.data
    residual = jax.nn.sigmoid(centre + z @ u) - gaussian.level - gaussian.slope * (z @ u)
    mine = basis.T @ gaussian.offset + u + residual @ z
    np.testing.assert_allclose(mine, jax.grad(posterior.potential)(u), atol=1e-4)


def test_the_fit_says_when_it_fails():
    with pytest.raises(ValueError, match="2 Newton steps. Standardise"):
        digits_fit.fit(logistic_table(), PRIOR, most_rounds=2)


# --- The gradient --------------------------------------------------------------------------


def test_the_alias_table_has_the_probabilities():
    probability = np.array([0.5, 0.001, 0.2, 0.0, 0.299])
    table = digits_gradient.alias_table(probability)
    mine = np.asarray(table.keep) / 5
    np.add.at(mine, np.asarray(table.alias), (1.0 - np.asarray(table.keep)) / 5)
    np.testing.assert_allclose(mine, probability, atol=1e-7)
    rows = np.asarray(table.draw(jax.random.key(0), 100_000))
    counts = np.bincount(rows, minlength=5) / 100_000
    np.testing.assert_allclose(counts, probability, atol=6 * 0.5 / 316)


def gradients_by_row(problem, u, weighted=True):
    """The gradient of a batch of one for each row that it may be, and the chances of the rows."""
    control = digits_schemes.controlled(problem).gradient(1).gradient
    rows = problem.posterior.num_data
    chance = control.probability if weighted else jnp.full(rows, 1 / rows)

    def of(row):
        only = digits_gradient.AliasTable(jnp.zeros(rows), jnp.full(rows, row, jnp.int32))
        parts = (control.target, control.offset, control.level, control.slope, chance, only)
        forced = digits_gradient.GaussianControl(*parts, control.noise, 1)
        return forced.estimate(jax.random.key(0), None, u)[0].gradient

    return np.asarray(jax.vmap(of)(jnp.arange(rows))), np.asarray(control.probability)


def test_the_gradient_is_unbiased_over_the_rows(problem):
    u = jnp.array([1.2, -0.7])
    exact = jax.grad(digits_schemes.controlled(problem).gradient(1).target.potential)(u)
    gradients, chance = gradients_by_row(problem, u)
    np.testing.assert_allclose(chance @ gradients, exact, rtol=1e-3)
    wrong, chance = gradients_by_row(problem, u, weighted=False)
    assert not np.allclose(chance @ wrong, exact, rtol=1e-2)


def test_the_noise_is_the_second_moment_over_rows_and_gaussian(monkeypatch):
    """Residuals by Monte Carlo over the Gaussian, to one in a hundred."""
    monkeypatch.setattr(digits_fit, "NEAR", 1e-4)  # a fit so near that its last step is nothing
    problem = digits_schemes.prepare(logistic_table(), PRIOR)
    where = digits_schemes.controlled(problem)
    gaussian, control = problem.gaussian, where.gradient(1).gradient
    z, centre, _ = (np.asarray(x, np.float64) for x in control.target.data)
    u = np.random.default_rng(0).standard_normal((100_000, 2))
    along = u @ z.T
    left = expit(centre + along) - gaussian.level - gaussian.slope * along
    weight = (left**2).mean(0) / np.asarray(control.probability, np.float64)
    second = (z * weight[:, None]).T @ z
    scale = np.sqrt(np.outer(where.noise, where.noise))
    np.testing.assert_allclose(second / scale, np.eye(2), atol=0.1)
    growth = jax.vmap(control.growth)(jnp.asarray(u, jnp.float32))
    assert float(growth.mean()) == pytest.approx(1.0, abs=6 * 2.3 / 316)


# --- Moments -------------------------------------------------------------------------------


def test_stein_is_exact_on_a_gaussian_whatever_the_draws():
    """With B B^T = Cov w the variance of any few steps of any chain is the exact one."""
    covariance = np.array([[2.0, 0.6], [0.6, 0.5]])
    basis = np.linalg.cholesky(covariance)
    kernel = ex.hmc(ex.FullGradient(ex.Target(lambda u: 0.5 * jnp.sum(u**2))), 0.3)
    moments = digits_moments.follow(
        kernel,
        lambda state: (state.position, state.estimate.gradient),
        np.full((3, 2), 4.0, np.float32),
        basis,
        [1, 3],
        1,
        jax.random.key(0),
    )
    exact = np.broadcast_to(np.diag(covariance), (2, 3, 2))
    np.testing.assert_allclose(moments.variances(stein=True), exact, rtol=1e-5)
    assert not np.allclose(moments.variances(stein=False), exact, rtol=0.2)


def test_averages_after_a_checkpoint():
    averages = np.stack([np.full((4, 2, 1), value) for value in (10.0, 4.0)])
    moments = digits_moments.Moments(np.array([1, 4]), averages, np.ones(1))
    after = moments.after(0)
    assert after.steps == [3]
    np.testing.assert_allclose(after.averages, 2.0)


def test_errors_are_relative_norms():
    truth = np.array([3.0, 4.0])
    errors = digits_moments.error(np.array([[3.0, 5.0], [3.0, 1.0]]), truth)
    np.testing.assert_allclose(errors, [0.2, 0.6])
    root, spread = digits_moments.over_chains(errors)
    np.testing.assert_allclose(root, np.sqrt(0.2))
    np.testing.assert_allclose(spread, 0.16 / (2 * root))


# --- The whole -----------------------------------------------------------------------------


def test_the_reference_against_quadrature(problem):
    """64,000 draws by two estimators; both within six of their own errors."""
    _, exact = moments_on_a_grid(problem.table)
    found = digits_reference.run(problem, 4000, 16, 1)
    assert found.error < 0.4 * found.plain_error < 0.01
    for variance, spread in ((found.variance, found.error), (found.plain, found.plain_error)):
        assert digits_moments.error(variance, exact) < 6 * spread
    laplace = np.diag(np.linalg.inv(problem.gaussian.hessian))
    assert digits_moments.error(laplace, exact) > 6 * found.error


def test_a_stored_reference_is_used_only_where_it_fits(problem, tmp_path):
    path = tmp_path / "new" / "reference.npz"
    assert digits_reference.load(path, problem, 10) is None
    found = digits_reference.run(problem, 50, 2, 1)
    digits_reference.save(found, path)
    again = digits_reference.load(path, problem, 100)
    assert again is not None and again.error == found.error and again.chains == 2
    np.testing.assert_array_equal(again.variance, found.variance)
    assert digits_reference.load(path, problem, 101) is None
    other = digits_schemes.prepare(logistic_table(61), PRIOR)
    assert digits_reference.load(path, other, 100) is None


def test_the_controlled_scheme_finds_the_variances_and_the_gaussian_does_not(problem):
    _, exact = moments_on_a_grid(problem.table)
    where = digits_schemes.controlled(problem)
    kernel = ex.nogin(where.gradient(20), 0.2, digits_schemes.FRICTION)
    starts = problem.starts(where.basis, 16, 0)
    moments = digits_moments.follow(
        kernel, digits._looked, starts, where.basis, [10_000], 500, jax.random.key(2)
    )
    numbers = digits.errors(moments, True, exact)
    alone = digits_moments.error(moments.gaussian, exact)
    assert numbers["pooled_error"][0] < 0.02 < 0.5 * alone
    assert numbers["pooled_error"][0] < 0.01 + 6 * numbers["pooled_monte_carlo"][0]


def test_where_an_error_falls_to_the_goal_and_stays():
    def rows(name, errors):
        head = {"scheme": name, "batch_size": 6, "estimator": "draws", "step_size": 0.1}
        numbers = zip((10.0, 20.0, 40.0), errors, strict=True)
        more = {"seconds": 1.0, "trace_error": 0.001}
        return [head | more | {"passes": p, "error": e} for p, e in numbers]

    table = pd.DataFrame(
        rows("NOGIN", (0.009, 0.02, 0.008)) + rows("a", (0.1, 0.1, 0.02)) + rows("b", [np.nan] * 3)
    )
    found = digits.reached_table(table).set_index("scheme").to_dict("index")
    assert found["NOGIN"]["passes_to_error"] == 40.0
    assert np.isnan(found["a"]["passes_to_error"]) and found["a"]["extrapolated"] == 160.0
    assert np.isnan(found["b"]["passes_to_error"]) and np.isnan(found["b"]["extrapolated"])
    assert all(row["passes_to_trace_error"] == 10.0 for row in found.values())


def test_run_and_files(tmp_path):
    said = []
    store = tmp_path / "reference.npz"
    result = digits.run(logistic_table(200, 4), PRIOR, SMALL, store, say=said.append)
    assert store.exists() and any("800 draws" in line for line in said)
    assert result.facts["set_up_passes"] < 15
    controlled = result.table[result.table["scheme"] == digits_schemes.CONTROLLED]
    assert set(controlled["estimator"]) == {digits.DRAWS, digits.STEIN}
    paths = digits_pages.write(result, tmp_path)
    assert all(path.stat().st_size > 100 for path in paths.values())
    facts = json.loads(paths["facts"].read_text(encoding="utf-8"))
    assert facts["rows"] == 200 and len(facts["verdicts"]) >= 2
    assert len(pd.read_csv(paths["table"])) == len(result.table)


def test_the_command(tmp_path, capsys, monkeypatch):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 150)
    x = rng.normal(0.6 * y[:, None, None], 1.0, (150, 3, 3))
    np.savez(tmp_path / "images.npz", x_train=x, y_train=np.where(y, 9, 7))
    monkeypatch.setattr(digits, "QUICK", SMALL)
    options = ReproduceOptions(quick=True, progress=False, output=tmp_path / "out", json=True)
    mnist(data=tmp_path / "images.npz", components=2, prior_scale=PRIOR, options=options)
    facts = json.loads(capsys.readouterr().out)
    assert facts["coefficients"] == 3 and Path(facts["files"]["picture"]).exists()
    with pytest.raises(FileNotFoundError, match="no such file"):
        mnist(data=tmp_path / "none.npz", options=options)


@pytest.mark.skipif(not MNIST.exists(), reason="ERGODAX_MNIST names no file")
def test_the_control_variate_on_the_digits_themselves():
    """The noise of a gradient is three orders below that of an ordinary minibatch."""
    from ergodax.learn import tables

    images = tables.read_npz(MNIST, "x_train", "y_train", ("7", "9"))
    table = tables.prepare(images, images, 128)[0]
    assert table.features.shape == (12_214, 129)
    gaussian = digits_fit.fit(table, 10.0)
    assert gaussian.passes < 8
    basis, x = digits_fit.whitening(gaussian), table.features
    uniform = np.full(len(x), 1 / len(x))
    _, ordinary = digits_fit.diagonalised(x, basis, gaussian.score, uniform)
    chance = digits_fit.importance(x, basis, gaussian)
    _, mine = digits_fit.diagonalised(x, basis, gaussian.residual, chance)
    assert mine.mean() < 10 and ordinary.mean() / mine.mean() > 1000
