"""Modified SGLD: which part of the bias goes, and which stays."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import solve_discrete_lyapunov

import ergodax as ex
from ergodax.sampler.overdamped import msgld
from ergodax.verify import Axis, stationary_law

from . import theory
from .problems import line, problem

pytestmark = pytest.mark.usefixtures("x64")


def test_known_number():
    gradient = ex.NoisyGradient(line(), 5.0)
    law = stationary_law(msgld(gradient, 0.2), np.zeros(1))
    assert law.cov()[0, 0] == pytest.approx(1.1805555556, abs=1e-10)
    exact = stationary_law(msgld(gradient, 0.2, form="exact"), np.zeros(1))
    assert exact.cov()[0, 0] == pytest.approx(1.0 / 0.9, abs=1e-10)


def noise_of_a_step(form, h, t, v):
    """Injected and brought: 2 h T I, and what the linear form has too much."""
    clean = 2.0 * h * t * np.eye(len(v))
    return clean if form == "exact" else clean + h**3 / (8.0 * t) * v @ v


def covariance(kernel, d):
    return stationary_law(kernel, np.zeros(d)).cov()


@pytest.mark.parametrize("t", [1.0, 0.25])
@pytest.mark.parametrize("form", ["linear", "exact"])
def test_gaussian_with_dense_noise(form, t):
    p, h = problem(3, "number"), 0.05
    v = p.modes.noise(p.s2)
    kernel = msgld(p.noisy(), h, temperature=t, form=form)
    expected = solve_discrete_lyapunov(np.eye(3) - h * p.precision, noise_of_a_step(form, h, t, v))
    theory.assert_covariance(covariance(kernel, 3), expected)


class Scaled(ex.GradientEstimator):
    """A fault: another estimator's covariance times a factor."""

    target: Any
    gradient: ex.GradientEstimator
    factor: float

    def init(self, key, position):
        return self.gradient.init(key, position)

    def estimate(self, key, state, position):
        estimate, state = self.gradient.estimate(key, state, position)
        assert estimate.covariance is not None
        scaled = estimate.covariance.scaled(self.factor)
        return ex.Estimate(estimate.gradient, estimate.potential, scaled), state


@pytest.mark.parametrize("factor", [0.0, 0.5, 0.25])
def test_a_wrong_factor_of_the_covariance_is_rejected(factor):
    """h / 8 in our steps, or T = 4 forgotten, for h / 4T."""
    p, h = problem(3, "number"), 0.05
    wrong = msgld(Scaled(p.target, p.noisy(), factor), h)
    v = p.modes.noise(p.s2)
    expected = solve_discrete_lyapunov(
        np.eye(3) - h * p.precision, noise_of_a_step("linear", h, 1.0, v)
    )
    with pytest.raises(AssertionError):
        theory.assert_covariance(covariance(wrong, 3), expected)


# --- On the double well, with noise that depends on the position -----------------------------

SECOND = 1.04179729648716  # E x^2 for U = (x^2 - 1)^2 / 4
GRID = [Axis(-3.4, 3.4, 161)]


def variance(x):
    return (1.0 - jnp.cos(1.0 + 5.0 * x)) ** 2


def moments(kernel):
    law = stationary_law(kernel, np.zeros(1), grid=GRID)
    return law.mean(lambda x: x[0] ** 2), law.mean(lambda x: x[0] ** 4)


def modified(h, form="linear"):
    return moments(msgld(ex.NoisyGradient(ex.targets.double_well(0.25), variance), h, form=form))


def clean(h):
    return moments(ex.sgld(ex.FullGradient(ex.targets.double_well(0.25)), h))


KNOWN = [
    (0.05, 1.030220718, 2.093373036),
    (0.025, 1.036216456, None),
    (0.0125, 1.039046879, None),
]


@pytest.mark.parametrize("h, second, fourth", KNOWN)
def test_known_numbers_on_the_double_well(h, second, fourth):
    found = modified(h)
    assert found[0] == pytest.approx(second, abs=2e-6)
    if fourth is not None:
        assert found[1] == pytest.approx(fourth, abs=2e-6)


def test_the_noise_is_removed_to_first_order_and_the_discretisation_is_not():
    """Beside SGLD without noise the linear form is off by h^2, beside the target by h."""
    h = 0.05
    from_clean = [modified(s)[0] - clean(s)[0] for s in (h, 0.5 * h)]
    assert np.log2(from_clean[0] / from_clean[1]) == pytest.approx(2.0, abs=0.1)
    from_target = [modified(s)[0] - SECOND for s in (h, 0.5 * h)]
    assert np.log2(from_target[0] / from_target[1]) == pytest.approx(1.0, abs=0.1)


def test_the_exact_form_has_the_law_without_noise():
    np.testing.assert_allclose(modified(0.025, "exact"), clean(0.025), atol=1e-6)


def test_uncorrected_noise_is_rejected():
    target = ex.targets.double_well(0.25)
    kernel = msgld(Scaled(target, ex.NoisyGradient(target, variance), 0.0), 0.05)
    assert abs(moments(kernel)[1] - KNOWN[0][2]) > 1e-2


@pytest.mark.parametrize("v", [20.0, 1e4])
def test_a_noise_too_large_makes_it_hot_and_never_nan(v):
    """h V > 2 T: the exact form says that it can't be done, the linear one heats."""
    gradient, h = ex.NoisyGradient(line(), v), 0.2
    hot = (2.0 * h + h**3 * v**2 / 8.0) / (1.0 - (1.0 - h) ** 2)
    assert covariance(msgld(gradient, h), 1)[0, 0] == pytest.approx(hot, rel=1e-10)
    plain = covariance(ex.sgld(gradient, h), 1)[0, 0]
    assert (hot > plain) == (h * v > 8.0)
