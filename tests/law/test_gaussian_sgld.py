"""SGLD on Gaussian targets against the exact discrete law; nothing is sampled."""

import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.verify import stationary_law

from . import faults, normals, theory
from .problems import KINDS, line, problem

pytestmark = pytest.mark.usefixtures("x64")

SETTINGS = [(1.0, 0.02), (0.25, 0.2), (4.0, 0.4)]  # temperature, h as a fraction of 2 / k_max


def kernel_of(p, t, h, noise=1.0, *, compensate=False):
    # With D the inverse of a mass, the modes of that mass are those of the chain.
    given = np.linalg.inv(p.mass) if np.ndim(p.mass) == 2 else 1.0 / np.asarray(p.mass)
    return ex.sgld(
        p.noisy(noise),
        h,
        preconditioner=jnp.asarray(given),
        temperature=t,
        compensate=compensate,
    )


def expected(p, t, h, noise):
    blocks = p.modes.covariances(*theory.sgld(p.mode(h, t=t, noise=noise)))
    return blocks["position", "position"]


@pytest.mark.parametrize("d, mass", KINDS)
def test_sgld_has_the_closed_form_law(d, mass):
    p = problem(d, mass)
    for t, fraction in SETTINGS:
        h = fraction * 2.0 / p.modes.k.max()
        for noise in (0.0, 1.0):
            law = stationary_law(kernel_of(p, t, h, noise), p.centre)
            theory.assert_covariance(law.cov(), expected(p, t, h, noise))
            np.testing.assert_allclose(law.mean, p.centre, atol=1e-9)


@pytest.mark.parametrize("d, mass", KINDS)
def test_compensated_sgld_has_the_law_of_the_exact_gradient(d, mass):
    p = problem(d, mass)
    for t, fraction in SETTINGS:
        h = fraction * 2.0 / p.modes.k.max()
        noise = 0.9 * 2.0 * t / (h * p.s2.max())  # nearly all that is injected
        law = stationary_law(kernel_of(p, t, h, noise, compensate=True), p.centre)
        theory.assert_covariance(law.cov(), expected(p, t, h, 0.0))


NUMBERS = [  # k, T, h, V, compensated, variance
    (1.0, 1.0, 0.2, 0.0, False, 1.1111111111),
    (1.0, 1.0, 0.2, 5.0, False, 1.6666666667),
    (1.0, 1.0, 0.2, 5.0, True, 1.1111111111),
    (2.0, 0.5, 0.2, 3.0, False, 0.5),
]


@pytest.mark.parametrize("k, t, h, v, compensate, variance", NUMBERS)
def test_known_numbers(k, t, h, v, compensate, variance):
    gradient = ex.NoisyGradient(line(1.0 / k), v)
    kernel = ex.sgld(gradient, h, temperature=t, compensate=compensate)
    law = stationary_law(kernel, np.zeros(1))
    np.testing.assert_allclose(law.cov(), variance, atol=2e-10)


def test_known_matrix():
    precision = np.array([[2.0, 0.5], [0.5, 1.0]])
    target = ex.targets.gaussian(np.zeros(2), np.linalg.inv(precision))
    law = stationary_law(ex.sgld(ex.FullGradient(target), 0.3), np.zeros(2))
    known = [[0.7877594304, -0.2666262687], [-0.2666262687, 1.3210119679]]
    np.testing.assert_allclose(law.cov(), known, atol=2e-10)


def irreversible(noise):
    """D and Q both dense: a recipe whose gradient enters through D + Q."""
    recipe = ex.Recipe(
        diffusion=lambda z: {"position": jnp.array([[1.0, 0.2], [0.2, 0.6]])},
        curl=lambda z: {("position", "position"): jnp.array([[0.0, -0.5], [0.5, 0.0]])},
    )
    target = ex.targets.gaussian(np.zeros(2), np.array([1.0, 0.25]))
    v = noise * jnp.array([[3.0, 1.0], [1.0, 2.0]])
    return ex.euler_maruyama(recipe, ex.NoisyGradient(target, v), 0.02)


def test_irreversible_langevin():
    clean = [[1.0137365781, -0.0001022687], [-0.0001022687, 0.2582972426]]
    noisy = [[1.0503524144, 0.0086546865], [0.0086546865, 0.2688179832]]
    for noise, known in ((0.0, clean), (1.0, noisy)):
        law = stationary_law(irreversible(noise), np.zeros(2))
        np.testing.assert_allclose(law.cov(), known, atol=2e-10)


FAULTS = {
    "h for sqrt(2h)": lambda h, t: normals.scaled_by(float(np.sqrt(h / 2.0))),
    "half the step": lambda h, t: normals.scaled_by(float(np.sqrt(0.5))),
    "T forgotten": lambda h, t: normals.scaled_by(float(t**-0.5)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_rejected(fault):
    p, t = problem(2, "matrix"), 4.0
    h = 0.2 / p.modes.k.max()
    kernel = faults.Planted(kernel_of(p, t, h, 0.0), FAULTS[fault](h, t))
    law = stationary_law(kernel, p.centre)
    with pytest.raises(AssertionError, match="Not equal"):
        theory.assert_covariance(law.cov(), expected(p, t, h, 0.0))


def test_noise_left_uncompensated_is_rejected():
    p, t = problem(2, "matrix"), 1.0
    h = 0.2 / p.modes.k.max()
    law = stationary_law(kernel_of(p, t, h, 1.0), p.centre)
    with pytest.raises(AssertionError, match="Not equal"):
        theory.assert_covariance(law.cov(), expected(p, t, h, 0.0))
