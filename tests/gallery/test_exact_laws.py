"""The exact curves of the figures: against closed forms and against all moments written out."""

import numpy as np
import pytest
import scipy.stats

from gallery.figures.autoregression import errors, variance
from gallery.figures.logistic import exact_moments, make_data
from gallery.figures.momentum_law import Law
from law import theory

FRICTIONS = np.array([0.2, 1.0, 5.0])


@pytest.mark.parametrize("noise", [0.0, 6.0])
def test_sghmc_with_its_noise_ignored_has_the_closed_forms_variance(noise):
    found = Law(0.1, FRICTIONS, noise, compensate=False)
    modes = [theory.Mode(1.0, 1.0, g, 0.1, 1.0, noise) for g in FRICTIONS.tolist()]
    expected = np.array([theory.semi_implicit(mode) for mode in modes])
    np.testing.assert_allclose(found.variance, expected[:, 0], rtol=1e-10)
    np.testing.assert_allclose(found.covariance[:, 0, 1], expected[:, 1], rtol=1e-10)
    np.testing.assert_allclose(found.covariance[:, 1, 1], expected[:, 2], rtol=1e-10)


def test_compensation_takes_the_heat_out_where_there_is_friction_enough():
    found = Law(0.1, FRICTIONS, 6.0, compensate=True).variance  # feasible from 0.3 on
    clean = Law(0.1, FRICTIONS, 0.0, compensate=False).variance
    np.testing.assert_allclose(found[1:], clean[1:], rtol=1e-12)
    # Below, the gradient's noise is all there is: it has the temperature h V / (2 gamma).
    np.testing.assert_allclose(found[0], clean[0] * 0.1 * 6.0 / (2 * 0.2), rtol=1e-12)


def test_the_error_of_a_variance_is_that_of_the_joint_gaussian():
    """All second moments of a chain of 30 steps, written out."""
    law, steps = Law(0.3, FRICTIONS, 2.0, compensate=False), 30
    found = law.error_of_variance(steps)
    for k in range(3):
        a, size = law.matrix[k], 2 * steps + 2
        # Each z_t as a linear function of the start and of all noise, with unit covariances.
        root = np.linalg.svd(law.spread[k])
        factor = root.U @ np.diag(np.sqrt(root.S))
        rows, z = [], np.zeros((2, size))
        z[:, :2] = np.eye(2)
        for t in range(steps):
            z = a @ z
            z[:, 2 + 2 * t : 4 + 2 * t] += factor
            rows.append(z[0].copy())
        joint = np.array(rows) @ np.array(rows).T
        bias = np.diag(joint).mean() - 1.0
        np.testing.assert_allclose(found[k] ** 2, bias**2 + 2.0 * np.mean(joint**2), rtol=1e-10)


def test_autocorrelation_times_are_sums_of_autocorrelations():
    law = Law(0.3, FRICTIONS, 2.0, compensate=True)
    z, rho = law.covariance[:, :, :1], []
    for _ in range(2000):
        z = law.matrix @ z
        rho.append(z[:, 0, 0] / law.variance)
    times = law.autocorrelation_times()
    np.testing.assert_allclose(times["mean"], 1.0 + 2.0 * np.sum(rho, axis=0), rtol=1e-8)
    squares = np.sum(np.square(rho), axis=0)
    np.testing.assert_allclose(times["variance"], 1.0 + 2.0 * squares, rtol=1e-8)
    assert times["mean"][0] < times["mean"][1], "less friction, a better mean"
    assert times["variance"][0] > times["variance"][1] < times["variance"][2], "but a U for squares"


@pytest.mark.parametrize("quantity", ["mean", "variance"])
def test_errors_of_an_autoregression_are_those_of_the_joint_gaussian(quantity):
    steps, noise, length = np.array([0.05, 0.6, 1.3]), 3.0, 25
    found = errors(steps, noise, length, quantity)
    for k, h in enumerate(steps):
        lags = np.subtract.outer(np.arange(length), np.arange(-1, length)).astype(float)
        weights = np.where(lags >= 0, (1.0 - h) ** np.maximum(lags, 0.0), 0.0)
        weights[:, 0] = (1.0 - h) ** np.arange(1, length + 1)  # of the start, of variance 1
        weights[:, 1:] *= np.sqrt(2.0 * h + h**2 * noise)
        joint = weights @ weights.T
        if quantity == "mean":
            bias, spread = 0.0, joint.mean()
        else:
            bias, spread = np.diag(joint).mean() - 1.0, 2.0 * np.mean(joint**2)
        np.testing.assert_allclose(found.bias[k], bias, rtol=1e-10, atol=1e-15)
        np.testing.assert_allclose(found.spread[k] ** 2, spread, rtol=1e-10)


def test_the_best_step_falls_with_the_cube_root_of_the_length():
    steps = np.geomspace(0.003, 0.1, 301)
    best = [steps[errors(steps, 1.0, n, "variance").total.argmin()] for n in (2500, 20_000)]
    assert best[0] / best[1] == pytest.approx(2.0, rel=0.05)
    # And the bias of a fixed step stays.
    far = errors(np.array([0.1]), 1.0, 40_000, "variance")
    assert far.total[0] == pytest.approx(variance(np.array([0.1]), 1.0)[0] - 1.0, rel=0.03)
    with pytest.raises(ValueError, match="quantity must be"):
        errors(steps, 1.0, 10, "median")


def test_a_posterior_is_integrated_to_rounding():
    """Rows without a slope: the intercept's posterior is known by quadrature on the line."""
    x, y = np.zeros(40), np.repeat([0.0, 1.0], [10, 30])
    found = exact_moments(x, y, 3.0, prior_variance=4.0)
    w = np.linspace(-5.0, 8.0, 20_001)
    log = 3.0 * (30 * w - 40 * np.logaddexp(0.0, w)) - w**2 / 8.0
    weight = np.exp(log - log.max())
    mean = np.average(w, weights=weight)
    assert found.mean == pytest.approx([mean, 0.0], abs=1e-6)
    expected = np.average((w - mean) ** 2, weights=weight)
    assert np.diag(found.covariance) == pytest.approx([expected, 4.0], rel=1e-5)
    assert abs(np.diag(exact_moments(x, y, 1.0, 4.0).covariance)[0] / expected - 1.0) > 1.0


def test_the_data_follow_the_model():
    x, y = make_data(20_000)
    assert scipy.stats.kstest(x - 1.0, "norm").pvalue > 1e-6
    share = scipy.special.expit(x - 1.0)
    z = np.sum(y - share) / np.sqrt(np.sum(share * (1.0 - share)))
    assert abs(z) < scipy.stats.norm.isf(0.5e-6)
    np.testing.assert_array_equal(make_data(100)[0], x[:100])
