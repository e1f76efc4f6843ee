"""Chains drawn by `ex.sample` on a Gaussian in three dimensions, against the closed forms.

The exact tests see the step; these see the step, the keys and the driver together. Draws are
compared mode by mode, with variances that should be 1. Numbers compared: 57.
"""

import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex

from . import faults, normals, sampled, theory
from .problems import problem

pytestmark = pytest.mark.slow

P = problem(3, "matrix")
T, GAMMA, H = 2.0, 0.8, 0.25
STEPS = 6_000
START = np.zeros(3, np.float32)


def sgld(**options):
    inverse = np.linalg.inv(P.mass)
    return ex.sgld(P.noisy(), H, preconditioner=inverse, temperature=T, **options)


def sghmc(h=H, **options):
    return ex.sghmc(P.noisy(), h, GAMMA, mass=P.mass, temperature=T, **options)


def langevin(scheme):
    return ex.langevin(P.noisy(), H, GAMMA, mass=P.mass, temperature=T, scheme=scheme)


CASES = {  # kernel, closed form, whether the gradient's noise is left in
    "SGLD": (sgld, theory.sgld, 1.0),
    "SGLD compensated": (lambda: sgld(compensate=True), theory.sgld, 0.0),
    "SGHMC": (sghmc, theory.semi_implicit, 1.0),
    "SGHMC compensated": (lambda: sghmc(compensate=True), theory.semi_implicit, 0.0),
    "BAOAB": (lambda: langevin("BAOAB"), theory.baoab, 1.0),
    "ABOBA": (lambda: langevin("ABOBA"), theory.aboba, 1.0),
    "BAOA": (lambda: langevin("BAOA"), theory.baoa, 1.0),
}


def assert_law(kernel, closed, noise, key, h=H, resolution=0.06):
    x = sampled.run(kernel, START, STEPS, key)
    variance = closed(P.mode(h, gamma=GAMMA, t=T, noise=noise))[0]
    modes = (x - P.centre) @ np.linalg.inv(P.modes.shapes).T
    sampled.assert_mean(modes / np.sqrt(variance), 0.0, resolution)
    sampled.assert_mean(modes**2 / variance, 1.0, resolution)


@pytest.mark.parametrize("name", CASES)
def test_draws_have_the_closed_form_variances(name, key):
    kernel, closed, noise = CASES[name]
    assert_law(kernel(), closed, noise, key)


def test_euler_scheme_of_sghmc(key):
    """At a step of its own: h k must be less than the friction."""
    h = 0.4 * GAMMA / P.modes.k.max()
    assert_law(sghmc(h, scheme="euler"), theory.euler, 1.0, key, h, 0.1)


def test_a_nested_position_has_the_same_law(key):
    """The position as a dict, the target through its leaves."""
    target = P.target

    def potential(z):
        return target.potential(jnp.concatenate([z["a"][None], z["b"]]))

    kernel = ex.langevin(ex.FullGradient(ex.Target(potential)), H, GAMMA, temperature=T)
    start = {"a": np.zeros((), np.float32), "b": np.zeros(2, np.float32)}
    x = sampled.run(kernel, start, STEPS, key)
    flat = np.concatenate([x["a"][..., None], x["b"]], axis=-1) - P.centre
    covariance = T * np.linalg.inv(P.precision)
    sampled.assert_mean(flat[..., :, None] * flat[..., None, :], covariance, 0.2)


FAULTS = {
    "h for sqrt(2h)": float(np.sqrt(H / 2.0)),
    "T forgotten": float(np.sqrt(1.0 / T)),
    "ten percent too cold": float(np.sqrt(0.9)),
}


@pytest.mark.parametrize(
    "name, fault",
    [("SGLD", "h for sqrt(2h)"), ("SGHMC", "T forgotten"), ("BAOAB", "ten percent too cold")],
)
def test_a_planted_fault_is_rejected(name, fault, key):
    kernel, closed, noise = CASES[name]
    with pytest.raises(AssertionError, match="the law differs"):
        planted = faults.Planted(kernel(), normals.scaled_by(FAULTS[fault]))
        assert_law(planted, closed, noise, key)
