"""The Fokker-Planck solver against closed forms, and its order, mass and positivity."""

import sys

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm, solve_continuous_lyapunov

import ergodax as ex
from ergodax.verify.fokker_planck import fokker_planck
from ergodax.verify.grid import Axis

pytestmark = pytest.mark.usefixtures("x64")

LINE = Axis(-7.0, 7.0, 400)


def one(z):
    return 1.0


def moments(equation, density=None):
    """Mean and covariance of a law on a grid."""
    d = len(equation.grid)
    mean = np.array([equation.mean(lambda z, i=i: z[i], density) for i in range(d)])
    second = [
        [equation.mean(lambda z, i=i, j=j: z[i] * z[j], density) for j in range(d)]
        for i in range(d)
    ]
    return mean, np.array(second) - np.outer(mean, mean)


# --- One dimension -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sigma, alpha, time, variance", [(1.0, 1.0, 0.5, 0.3160602794), (2.0, 0.5, 3.0, 3.8008517265)]
)
def test_ornstein_uhlenbeck_from_a_point(sigma, alpha, time, variance):
    """Var = sigma^2 (1 - e^(-2 alpha t)) / (2 alpha); mean e^(-alpha t). Extrapolated in width."""

    def law(points):
        axis = Axis(-12.0, 12.0, points)
        equation = fokker_planck(lambda z: -alpha * z, lambda z: 0.5 * sigma**2, axis)
        start = equation.point_mass([1.0])
        at = equation.points[start > 0][0, 0]  # the centre of the cell, not 1
        mean, covariance = moments(equation, equation.evolve(start, time))
        return np.array([mean[0] - at * np.exp(-alpha * time), covariance[0, 0] - variance])

    coarse, fine = law(240), law(480)
    assert np.abs(fine).max() < 4e-3
    np.testing.assert_allclose((4.0 * fine - coarse) / 3.0, 0.0, atol=1e-4)


def test_a_double_well_is_stationary_to_second_order():
    well = ex.targets.double_well(0.25)

    def miss(points):
        equation = fokker_planck(lambda z: z - z**3, one, Axis(-4.0, 4.0, points))
        expected = equation.density(lambda z: jnp.exp(-well.potential(z)))
        return np.abs(equation.stationary() / expected - 1.0)[expected > 1e-6].max()

    errors = np.array([miss(n) for n in (100, 200, 400)])
    np.testing.assert_allclose(np.log2(errors[:-1] / errors[1:]), 2.0, atol=0.15)


def test_exponential_fitting_is_exact_for_a_constant_ratio():
    """f / D constant: p D = e^(f x / D), at a cell Peclet number of 12."""
    equation = fokker_planck(lambda z: 6.0 * one(z) * jnp.ones(1), one, Axis(0.0, 16.0, 8))
    expected = equation.density(lambda z: jnp.exp(6.0 * (z[0] - 16.0)))
    np.testing.assert_allclose(equation.stationary(), expected, rtol=1e-9, atol=1e-20)


def soft(z):
    return 1.0 / (1.0 + z**2)


def multiplicative(reading):
    """dx with D = 1 / (1 + x^2), f = -D x + reading D': Ito's reading is 1."""

    def drift(z):
        return -soft(z) * z - reading * 2.0 * z * soft(z) ** 2

    return fokker_planck(drift, soft, LINE)


def assert_normal(density, equation):
    expected = equation.density(lambda z: jnp.exp(-0.5 * z[0] ** 2))
    np.testing.assert_allclose(density, expected, atol=2e-3 * expected.max())


def test_state_dependent_diffusion():
    assert_normal((right := multiplicative(1.0)).stationary(), right)


@pytest.mark.parametrize("reading", [0.5, 0.0])  # Stratonovich's, and Gamma dropped
def test_another_reading_of_the_noise_is_rejected(reading):
    wrong = multiplicative(reading)
    with pytest.raises(AssertionError, match="Not equal"):
        assert_normal(wrong.stationary(), wrong)


def test_without_diffusion_the_flux_is_upwind():
    equation = fokker_planck(lambda z: -z, lambda z: 0.0, Axis(-3.0, 3.0, 301))
    law = equation.evolve(equation.point_mass([2.0]), 1.0)
    np.testing.assert_allclose(equation.mean(lambda z: z[0], law), 2.0 * np.exp(-1.0), atol=0.02)
    assert (equation.rates.toarray() + np.diag(equation.exits)).min() >= 0


# --- Two dimensions ------------------------------------------------------------------------

RATE = np.array([[1.0, 2.0], [-1.0, 3.0]])
SPREAD = np.array([[1.0, 0.3], [0.3, 0.6]])
START = np.array([1.0, -0.5])


def irreversible(points, spread=SPREAD, rate=RATE):
    grid = [Axis(-6.0, 6.0, points), Axis(-5.0, 5.0, points)]
    return fokker_planck(lambda z: -jnp.asarray(rate) @ z, lambda z: jnp.asarray(spread), grid)


def extrapolated(law):
    """Richardson's extrapolation of moments in the width."""
    return [(4.0 * f - c) / 3.0 for c, f in zip(law(60), law(120), strict=True)]


@pytest.mark.parametrize("correlation", [0.3, -0.3, 0.0])
def test_an_irreversible_linear_process(correlation):
    spread = np.array([[1.0, correlation], [correlation, 0.6]])
    covariance = solve_continuous_lyapunov(RATE, 2.0 * spread)
    found = extrapolated(lambda n: moments(irreversible(n, spread)))
    np.testing.assert_allclose(found[0], 0.0, atol=1e-8)
    np.testing.assert_allclose(found[1], covariance, atol=2e-4)


def test_its_transient():
    """Mean e^(-Bt) z and covariance S - e^(-Bt) S e^(-B't), from a narrow normal law."""
    time, narrow = 0.6, 0.15
    stationary, flow = solve_continuous_lyapunov(RATE, 2.0 * SPREAD), expm(-0.6 * RATE)

    def law(points):
        equation = irreversible(points)
        start = equation.density(lambda z: jnp.exp(-0.5 * jnp.sum((z - START) ** 2) / narrow))
        return moments(equation, equation.evolve(start, time))

    mean, covariance = extrapolated(law)
    np.testing.assert_allclose(mean, flow @ START, atol=1e-4)
    expected = stationary + flow @ (narrow * np.eye(2) - stationary) @ flow.T
    np.testing.assert_allclose(covariance, expected, atol=5e-4)


def test_mass_and_positivity():
    equation = irreversible(80)
    law = equation.point_mass(START)
    for _ in range(5):
        law = equation.evolve(law, 0.4)
        assert abs(equation.mass(law) - 1.0) < 1e-13
        assert law.min() > 0.0
    columns = np.asarray(equation.rates.sum(axis=0))
    assert np.abs(columns).max() < 1e-12 * equation.exits.max()


def test_long_times_end_in_the_stationary_law():
    equation = irreversible(40)
    law = equation.evolve(equation.point_mass(START), 50.0)
    np.testing.assert_allclose(law, equation.stationary(), atol=1e-10)
    np.testing.assert_allclose(equation.evolve(law, 0.0), law)


def test_two_short_times_make_a_long_one():
    equation = irreversible(40)
    start = equation.point_mass(START)
    twice = equation.evolve(equation.evolve(start, 0.3), 0.4)
    np.testing.assert_allclose(twice, equation.evolve(start, 0.7), atol=1e-12)


def test_a_strong_correlation_needs_cells_of_the_right_shape():
    spread = np.array([[4.0, 1.8], [1.8, 1.0]])
    with pytest.raises(ValueError, match=r"lies in \[0.45, 0.556\]"):
        irreversible(60, spread)
    grid = [Axis(-14.0, 14.0, 120), Axis(-7.0, 7.0, 120)]
    equation = fokker_planck(lambda z: -z, lambda z: jnp.asarray(spread), grid)
    np.testing.assert_allclose(moments(equation)[1], spread, rtol=0.03)


# --- Faults --------------------------------------------------------------------------------


def test_centred_differences_lose_positivity(monkeypatch):
    """The check of positivity sees the scheme that has none."""

    def centred(left, right, pull, width):
        return left / width**2 + 0.5 * pull / width, right / width**2 - 0.5 * pull / width

    monkeypatch.setattr(sys.modules["ergodax.verify.fokker_planck"], "fitted", centred)
    equation = fokker_planck(lambda z: -8.0 * z, lambda z: 0.1, Axis(-4.0, 4.0, 40))
    assert (equation.rates.toarray() + np.diag(equation.exits)).min() < 0


def test_a_correlation_left_out_is_rejected():
    covariance = solve_continuous_lyapunov(RATE, 2.0 * SPREAD)
    wrong = moments(irreversible(60, np.diag(np.diag(SPREAD))))[1]
    with pytest.raises(AssertionError, match="Not equal"):
        np.testing.assert_allclose(wrong, covariance, atol=0.02)


@pytest.mark.parametrize("scale", [1.0, 1e9])
def test_rounding_is_no_correlation_too_strong_in_any_unit(scale):
    """D_00 = D_01 / aspect but for rounding: the axis keeps nothing."""
    spread = scale * np.array([[0.3, 0.1], [0.1, 1.0]])
    grid = [Axis(-3.0, 3.0, 10), Axis(-1.0, 1.0, 10)]
    equation = fokker_planck(lambda z: -z, lambda z: jnp.asarray(spread), grid)
    assert equation.mass(equation.stationary()) == pytest.approx(1.0)
