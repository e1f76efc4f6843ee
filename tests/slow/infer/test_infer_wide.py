"""infer where no matrix of all dimensions is kept: a diagonal, and the sharpest directions.

The limits are lowered, so that a small problem takes the way of a large one. Estimates are compared
with the truth at 6 of the errors that the result itself reports, of 60 figures: below one false
alarm in a million.
"""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex

D, ROWS = 30, 3_000
ERRORS = 6.0


@pytest.fixture
def wide(monkeypatch):
    """Sets the largest dimension for the sharpest directions; a matrix has 8 at most."""
    for name in ("curvature", "start", "infer", "estimator", "background"):
        module = importlib.import_module(f"ergodax.tune.{name}")
        for limit in ("LARGEST_DENSE", "LARGEST_AVERAGED", "LARGEST_SECOND_ORDER"):
            if hasattr(module, limit):
                monkeypatch.setattr(module, limit, 8)

    def low_rank_up_to(largest: int) -> None:
        module = importlib.import_module("ergodax.tune.curvature")
        monkeypatch.setattr(module, "LARGEST_LOW_RANK", largest)

    return low_rank_up_to


def regression():
    """A linear regression whose features share a factor, its mean and its sds."""
    rng = np.random.default_rng(20261122)
    x = rng.normal(size=(ROWS, D)) + 5.0 * rng.normal(size=(ROWS, 1))
    y = x @ rng.normal(size=D) + rng.normal(size=ROWS)
    data = x.astype(np.float32), y.astype(np.float32)
    target = ex.Posterior(
        lambda w: -0.5 * jnp.sum(w**2), lambda w, row: -0.5 * (row[1] - row[0] @ w) ** 2, data
    )
    x, y = (a.astype(np.float64) for a in data)
    covariance = np.linalg.inv(x.T @ x + np.eye(D))
    return target, covariance @ (x.T @ y), np.sqrt(np.diag(covariance))


def test_directions_that_share_a_factor(wide):
    target, mean, sd = regression()
    wide(1_000)
    result = ex.infer(target, jnp.zeros(D), key=jax.random.key(1), progress=False)
    table = result.table
    assert result.converged, str(result)
    assert any("a diagonal and the sharpest" in d.chosen for d in result.account.decisions)
    means = np.abs(table["mean"] - mean) / (table["sd"] * (table["mcse_mean"] + table["bias_mean"]))
    sds = np.abs(table["sd"] - sd) / (table["sd"] * (table["mcse_sd"] + table["bias_sd"]))
    assert max(means.max(), sds.max()) < ERRORS
    np.testing.assert_allclose(result.tuned.coordinates.scales, sd, rtol=0.3)


def test_a_diagonal_alone_does_not_do(wide):
    """The control: no batch serves in diagonal coordinates, which is said."""
    target, *_ = regression()
    wide(0)
    result = ex.infer(target, jnp.zeros(D), key=jax.random.key(1), progress=False, max_seconds=10.0)
    assert any("diagonal of the Fisher" in d.chosen for d in result.account.decisions)
    assert any(d.what == "batches" and d.chosen == "none" for d in result.account.decisions)
