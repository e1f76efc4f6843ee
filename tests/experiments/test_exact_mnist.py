"""A logistic posterior: the Gaussian fitted to it, the gradient it controls, Stein's identity."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import ergodax as ex
from ergodax.learn.tables import Table
from experiments.matthews_weare_2018 import gaussian_fit, mnist, mnist_schemes
from experiments.matthews_weare_2018 import moments as of

PRIOR = 2.0


def logistic_table(rows=60, d=2):
    rng = np.random.default_rng(3)
    x = np.column_stack([rng.standard_normal((rows, d - 1)), np.ones(rows)])
    y = (rng.random(rows) < expit(x @ np.linspace(1.5, 0.5, d))).astype(float)
    return Table(x, y, [f"x{k}" for k in range(d)], ("0", "1"))


@pytest.fixture(scope="module")
def problem():
    return mnist_schemes.prepare(logistic_table(), PRIOR)


def test_the_averages_are_those_over_the_gaussian(problem):
    gaussian, table = problem.gaussian, problem.table
    # The last average is over N(centre, C) with the C of the last Newton step, near H^-1.
    covariance = np.linalg.inv(gaussian.hessian)
    again = gaussian_fit._average(table, gaussian.centre, covariance, PRIOR)
    normal = np.random.default_rng(0).standard_normal((200_000, 2))
    w = gaussian.centre + normal @ np.linalg.cholesky(covariance).T
    probability = expit(w @ table.features[0])
    np.testing.assert_allclose(again.level[0], probability.mean(), atol=6 * 0.5 / 447)
    slope = probability * (1 - probability)
    np.testing.assert_allclose(again.slope[0], slope.mean(), atol=6 * 0.25 / 447)
    np.testing.assert_allclose(again.hessian, gaussian.hessian, rtol=0.05)
    assert np.sqrt(gaussian.offset @ covariance @ gaussian.offset) < gaussian_fit.NEAR


def test_the_decomposition_of_the_gradient_is_exact(problem):
    """offset + u + the rows' residuals is the gradient, wherever and however good the fit."""
    basis = mnist_schemes.controlled(problem).basis
    gaussian, posterior = problem.gaussian, problem.coordinates(basis)
    u = jnp.array([1.7, -2.3])
    z, centre, _ = posterior.data
    residual = jax.nn.sigmoid(centre + z @ u) - gaussian.level - gaussian.slope * (z @ u)
    mine = basis.T @ gaussian.offset + u + residual @ z
    np.testing.assert_allclose(mine, jax.grad(posterior.potential)(u), atol=1e-4)


def test_the_fit_says_when_it_fails():
    with pytest.raises(ValueError, match="2 Newton steps. Standardise"):
        gaussian_fit.fit(logistic_table(), PRIOR, most_rounds=2)


def test_the_alias_table_has_the_probabilities():
    probability = np.array([0.5, 0.001, 0.2, 0.0, 0.299])
    table = ex.exact.AliasTable(probability)
    mine = np.asarray(table.keep) / 5
    np.add.at(mine, np.asarray(table.alias), (1.0 - np.asarray(table.keep)) / 5)
    np.testing.assert_allclose(mine, probability, atol=1e-7)
    rows = np.asarray(table.draw(jax.random.key(0), 100_000))
    counts = np.bincount(rows, minlength=5) / 100_000
    np.testing.assert_allclose(counts, probability, atol=6 * 0.5 / 316)


def gradients_by_row(problem, u, weighted=True):
    """The gradient of a batch of one for each row that it may be, and the chances of the rows."""
    control = mnist_schemes.controlled(problem).gradient(1).gradient
    rows = len(problem.table.target)
    chance = control.probability if weighted else jnp.full(rows, 1 / rows)

    def of(row):
        parts = (jnp.zeros(rows), jnp.full(rows, row, jnp.int32))
        only = eqx.tree_at(lambda table: (table.keep, table.alias), control.table, parts)
        parts = (control.target, control.offset, control.level, control.slope, chance, only)
        forced = mnist_schemes.GaussianControl(*parts, control.noise, 1)
        return forced.estimate(jax.random.key(0), None, u)[0].gradient

    return np.asarray(jax.vmap(of)(jnp.arange(rows))), np.asarray(control.probability)


def test_the_gradient_is_unbiased_over_the_rows(problem):
    u = jnp.array([1.2, -0.7])
    exact = jax.grad(mnist_schemes.controlled(problem).gradient(1).target.potential)(u)
    gradients, chance = gradients_by_row(problem, u)
    np.testing.assert_allclose(chance @ gradients, exact, rtol=1e-3)
    wrong, chance = gradients_by_row(problem, u, weighted=False)
    assert not np.allclose(chance @ wrong, exact, rtol=1e-2)


def test_the_noise_is_the_second_moment_over_rows_and_gaussian(monkeypatch):
    """Residuals by Monte Carlo over the Gaussian, to one in a hundred."""
    monkeypatch.setattr(gaussian_fit, "NEAR", 1e-4)  # a fit so near that its last step is nothing
    problem = mnist_schemes.prepare(logistic_table(), PRIOR)
    where = mnist_schemes.controlled(problem)
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


def test_stein_is_exact_on_a_gaussian_whatever_the_draws():
    """With B B^T = Cov w the variance of any few steps of any chain is the exact one."""
    covariance = np.array([[2.0, 0.6], [0.6, 0.5]])
    basis = np.linalg.cholesky(covariance)
    kernel = ex.hmc(ex.FullGradient(ex.Target(lambda u: 0.5 * jnp.sum(u**2))), 0.3)
    moments = of.follow(
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
    moments = of.Moments(np.array([1, 4]), averages, np.ones(1))
    after = moments.after(0)
    assert after.steps == [3]
    np.testing.assert_allclose(after.averages, 2.0)


def test_errors_are_relative_norms():
    truth = np.array([3.0, 4.0])
    errors = of.error(np.array([[3.0, 5.0], [3.0, 1.0]]), truth)
    np.testing.assert_allclose(errors, [0.2, 0.6])
    root, spread = of.over_chains(errors)
    np.testing.assert_allclose(root, np.sqrt(0.2))
    np.testing.assert_allclose(spread, 0.16 / (2 * root))


def test_where_an_error_falls_to_the_goal_and_stays():
    def rows(name, errors):
        head = {"scheme": name, "batch_size": 6, "estimator": "draws", "step_size": 0.1}
        numbers = zip((10.0, 20.0, 40.0), errors, strict=True)
        more = {"seconds": 1.0, "trace_error": 0.001}
        return [head | more | {"passes": p, "error": e} for p, e in numbers]

    table = pd.DataFrame(
        rows("NOGIN", (0.009, 0.02, 0.008)) + rows("a", (0.1, 0.1, 0.02)) + rows("b", [np.nan] * 3)
    )
    found = mnist.reached_table(table).set_index("scheme").to_dict("index")
    assert found["NOGIN"]["passes_to_error"] == 40.0
    assert np.isnan(found["a"]["passes_to_error"]) and found["a"]["extrapolated"] == 160.0
    assert np.isnan(found["b"]["passes_to_error"]) and np.isnan(found["b"]["extrapolated"])
    assert all(row["passes_to_trace_error"] == 10.0 for row in found.values())
