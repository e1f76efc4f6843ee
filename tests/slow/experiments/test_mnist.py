"""Posterior variances of a logistic regression: exact parts exactly, the whole in small."""

import json
import os
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import ergodax as ex
from ergodax.learn import tables
from ergodax.learn.tables import Table
from experiments.command import Options
from experiments.matthews_weare_2018 import gaussian_fit, mnist, mnist_schemes
from experiments.matthews_weare_2018 import moments as of
from experiments.page import write

PRIOR = 2.0
SMALL = mnist.Size(8, (15.0, 50.0), (8,), (8,), 800, 8)
MNIST = Path(os.environ.get("ERGODAX_MNIST", "mnist.npz"))


def logistic_table(rows=60, d=2):
    rng = np.random.default_rng(3)
    x = np.column_stack([rng.standard_normal((rows, d - 1)), np.ones(rows)])
    y = (rng.random(rows) < expit(x @ np.linspace(1.5, 0.5, d))).astype(float)
    return Table(x, y, [f"x{k}" for k in range(d)], ("0", "1"))


@pytest.fixture(scope="module")
def problem():
    return mnist_schemes.prepare(logistic_table(), PRIOR)


def moments_on_a_grid(table, width=8.0, points=401):
    """Mean and variances of two coefficients, by the trapezoidal rule."""
    axis = np.linspace(-width, width, points)
    w = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    logits = w @ table.features.T
    log = (table.target * logits - np.logaddexp(0, logits)).sum(1) - (w**2).sum(1) / 2 / PRIOR**2
    mass = np.exp(log - log.max())
    mean = mass @ w / mass.sum()
    return mean, mass @ (w - mean) ** 2 / mass.sum()


def test_the_reference_against_quadrature(problem):
    """64,000 draws by two estimators; both within six of their own errors."""
    _, exact = moments_on_a_grid(problem.table)
    found = of.run_reference(problem, 4000, 16, 1)
    assert found.error < 0.4 * found.plain_error < 0.01
    for variance, spread in ((found.variance, found.error), (found.plain, found.plain_error)):
        assert of.error(variance, exact) < 6 * spread
    laplace = np.diag(np.linalg.inv(problem.gaussian.hessian))
    assert of.error(laplace, exact) > 6 * found.error


def test_a_stored_reference_is_used_only_where_it_fits(problem, tmp_path):
    path = tmp_path / "new" / "reference.npz"
    assert of.load(path, problem, 10) is None
    found = of.run_reference(problem, 50, 2, 1)
    of.save(found, path)
    again = of.load(path, problem, 100)
    assert again is not None and again.error == found.error and again.chains == 2
    np.testing.assert_array_equal(again.variance, found.variance)
    assert of.load(path, problem, 101) is None
    other = mnist_schemes.prepare(logistic_table(61), PRIOR)
    assert of.load(path, other, 100) is None


def test_the_controlled_scheme_finds_the_variances_and_the_gaussian_does_not(problem):
    _, exact = moments_on_a_grid(problem.table)
    where = mnist_schemes.controlled(problem)
    kernel = ex.nogin(where.gradient(20), 0.2, mnist_schemes.FRICTION)
    starts = problem.starts(where.basis, 16, 0)
    moments = of.follow(
        kernel, mnist.last_gradient, starts, where.basis, [10_000], 500, jax.random.key(2)
    )
    numbers = mnist.errors(moments, True, exact)
    alone = of.error(moments.gaussian, exact)
    assert numbers["pooled_error"][0] < 0.02 < 0.5 * alone
    assert numbers["pooled_error"][0] < 0.01 + 6 * numbers["pooled_monte_carlo"][0]


def test_run_and_files(tmp_path):
    said = []
    store = tmp_path / "reference.npz"
    result = mnist.run(logistic_table(200, 4), PRIOR, SMALL, store, 0, said.append)
    assert store.exists() and any("800 draws" in line for line in said)
    assert result.facts["set_up_passes"] < 15
    controlled = result.table[result.table["scheme"] == mnist_schemes.CONTROLLED]
    assert set(controlled["estimator"]) == {mnist.DRAWS, mnist.STEIN}
    paths = write(mnist.present(result), tmp_path, "mnist")
    assert all(path.stat().st_size > 100 for path in paths.values())
    facts = json.loads(paths["facts"].read_text(encoding="utf-8"))
    assert facts["rows"] == 200 and len(facts["verdicts"]) >= 2
    assert len(pd.read_csv(paths["table"])) == len(result.table)


def test_the_command(tmp_path, capsys, monkeypatch):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 150)
    x = rng.normal(0.6 * y[:, None, None], 1.0, (150, 3, 3))
    np.savez(tmp_path / "images.npz", x_train=x, y_train=np.where(y, 9, 7))
    monkeypatch.setattr(mnist, "QUICK", SMALL)
    options = Options(quick=True, output=tmp_path / "out", json=True)
    images = tmp_path / "images.npz"
    mnist.mnist(data=images, components=2, prior_scale=PRIOR, options=options)
    facts = json.loads(capsys.readouterr().out)
    assert facts["coefficients"] == 3 and Path(facts["files"]["picture"]).exists()
    with pytest.raises(FileNotFoundError, match="no such file"):
        mnist.mnist(data=tmp_path / "none.npz", options=options)


@pytest.mark.skipif(not MNIST.exists(), reason="ERGODAX_MNIST names no file")
def test_the_control_variate_on_the_digits_themselves():
    """The noise of a gradient is three orders below that of an ordinary minibatch."""
    images = tables.read_npz(MNIST, "x_train", "y_train", ("7", "9"))
    table = mnist.standardised(images, 128)
    assert table.features.shape == (12_214, 129)
    gaussian = gaussian_fit.fit(table, 10.0)
    assert gaussian.passes < 8
    basis, x = gaussian_fit.whitening(gaussian), table.features
    uniform = np.full(len(x), 1 / len(x))
    _, ordinary = gaussian_fit.diagonalised(x, basis, gaussian.score, uniform)
    chance = gaussian_fit.importance(x, basis, gaussian)
    _, mine = gaussian_fit.diagonalised(x, basis, gaussian.residual, chance)
    assert mine.mean() < 10 and ordinary.mean() / mine.mean() > 1000
