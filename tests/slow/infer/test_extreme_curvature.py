"""Posteriors bounded by rows of extreme curvature: infer is right where batches are blind.

The exact moments are sums over a grid, which a coarser one confirms. Estimates are
compared with them at 5 of the errors that the result reports, below one false alarm in a million
for each figure; the control is far beyond that.
"""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
import scipy.special

import ergodax as ex
from ergodax.tune import whole_temperature
from ergodax.tune.infer import infer

KEY = jax.random.key(20261122)
ERRORS = 5.0
CENTRE = np.array([1.0, -0.5])
ACROSS = np.array([0.447, 0.894])  # the direction in which they bound the posterior
ROWS, DISTINCT = 20_000, 400


def table(extreme, steepness, rows=ROWS):
    """Logistic regression of two coefficients with some rows of huge features.

    Their decision boundaries pass the truth on both sides, the nearest at two tenths of a standard
    deviation, and the logit changes there by `steepness` in a unit of the position.
    """
    rng = np.random.default_rng(extreme)
    few = rng.standard_normal((DISTINCT, 2))
    x = np.repeat(few, rows // DISTINCT, axis=0)
    y = rng.random(rows) < scipy.special.expit(x @ CENTRE)
    side = np.resize([1.0, -1.0], extreme)[:, None]
    offset = np.linspace(0.003, 0.013, extreme)[:, None]
    steep = steepness * (side * ACROSS + offset * CENTRE / (CENTRE @ CENTRE))
    order = rng.permutation(rows + extreme)
    x, y = np.concatenate([x, steep])[order], np.concatenate([y, np.ones(extreme)])[order]
    return x.astype(np.float32), y.astype(np.float32)


def posterior(x, y):
    def log_likelihood(w, row):
        logit = w @ row[0]
        return row[1] * logit - jax.nn.softplus(logit)

    return ex.Posterior(lambda w: -0.5 * jnp.sum(w**2), log_likelihood, (x, y))


def exact(x, y, points=301):
    """Means and sds by a grid, in double precision over the distinct rows."""
    rows, which, counts = np.unique(
        x.astype(np.float64), axis=0, return_inverse=True, return_counts=True
    )
    ones = np.bincount(which.ravel(), weights=y)

    def log_density(w):
        logits = w @ rows.T
        return logits @ ones - np.logaddexp(0.0, logits) @ counts - 0.5 * np.sum(w**2, axis=1)

    found = scipy.optimize.minimize(
        lambda w: -log_density(w[None])[0],
        CENTRE,
        method="Nelder-Mead",
        options={"xatol": 1e-7, "fatol": 1e-9, "maxiter": 4_000},
    )
    mean, half = found.x, 0.15
    for _ in range(3):  # each grid fits the density of the one before
        axis = np.linspace(-half, half, points)
        grid = mean + np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
        values = np.concatenate([log_density(part) for part in np.array_split(grid, 60)])
        weight = np.exp(values - values.max())
        weight /= weight.sum()
        mean = weight @ grid
        sd = np.sqrt(weight @ (grid - mean) ** 2)
        half = 8.0 * sd.max()
    return mean, sd


def sampled(x, y):
    return infer(posterior(x, y), jnp.zeros(2), key=KEY, progress=False)


def off_by(result, mean, sd):
    """How far means and sds are off, in posterior sds and in the errors that are reported."""
    figures = result.table
    off = np.abs(np.stack([figures["mean"] - mean, figures["sd"] - sd])) / sd
    errors = figures[["mcse_mean", "mcse_sd"]].to_numpy().T
    if "bias_mean" in figures:
        errors = errors + figures[["bias_mean", "bias_sd"]].to_numpy().T
    return off, off / errors


def without(x, y, huge=1e3):
    """The table less the rows of extreme curvature."""
    plain = np.abs(x).max(axis=1) < huge
    return x[plain], y[plain]


def test_infer_is_right_with_one_extreme_observation(monkeypatch):
    """As with many rows, where NUTS would be late and all rows differ."""
    module = importlib.import_module("ergodax.tune.infer")
    monkeypatch.setattr(module, "warm_up_seconds", lambda *given: 1e9)
    monkeypatch.setattr(module, "counted", lambda posterior: None)
    x, y = table(1, 1e5)
    result = sampled(x, y)
    off, in_errors = off_by(result, *exact(x, y))
    assert result.converged and in_errors.max() < ERRORS, f"{off}\n{in_errors}\n{result}"
    assert "surrogate" in [decision.what for decision in result.account.decisions]


def test_nuts_on_all_rows_after_a_pilot_that_failed(monkeypatch):
    """With few rows NUTS is in time, and is no second best."""
    module = importlib.import_module("ergodax.tune.infer")
    monkeypatch.setattr(module, "tune", lambda *given, **settings: None)
    x, y = table(5, 3e3, rows=2_400)
    result = sampled(x, y)
    off, in_errors = off_by(result, *exact(x, y))
    assert result.converged and in_errors.max() < ERRORS, f"{off}\n{in_errors}\n{result}"
    assert any("rows, with full gradients" in d.why for d in result.account.decisions)


def test_infer_is_right_between_several():
    x, y = table(5, 3e3)
    result = sampled(x, y)
    off, in_errors = off_by(result, *exact(x, y))
    assert result.converged and in_errors.max() < ERRORS, f"{off}\n{in_errors}\n{result}"


def test_what_no_batch_has_seen_would_be_noticed():
    """The control: the same without the one row, as a run of batches takes it to be."""
    x, y = table(1, 1e5)
    result = sampled(*without(x, y))
    off, in_errors = off_by(result, *exact(x, y))
    assert result.converged, str(result)
    assert off.max() > 0.2 and in_errors.max() > ERRORS, f"{off}\n{in_errors}"


def test_all_rows_tell_draws_that_missed_the_extreme_observation():
    """Normal draws about the posterior without the row have temperature 1 there, far more here."""
    x, y = table(1, 1e5)
    mean, sd = exact(*without(x, y))
    draws = mean + sd * np.random.default_rng(0).standard_normal((4, 500, 2))
    draws = draws.astype(np.float32)
    told = whole_temperature(posterior(x, y), draws, key=KEY)
    plain = whole_temperature(posterior(*without(x, y)), draws, key=KEY)
    # 100 draws of 2 dimensions: a standard deviation of 0.1, and the sds are those of correlated
    # coefficients.
    assert told > 10.0 and abs(plain - 1.0) < 0.5


def test_the_grid_is_fine_enough():
    for extreme, steepness in ((1, 1e5), (5, 3e3)):
        x, y = table(extreme, steepness)
        (mean, sd), (coarse_mean, coarse_sd) = exact(x, y), exact(x, y, points=151)
        assert np.max(np.abs(mean - coarse_mean) / sd) < 0.02
        assert np.max(np.abs(coarse_sd / sd - 1.0)) < 0.02
