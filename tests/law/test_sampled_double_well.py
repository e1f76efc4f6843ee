"""Chains drawn by `ex.sample` on U = (x^2 - 1)^2 / 4, against the exact discrete moments.

`test_double_well` finds the same moments without sampling, to five more digits.
Numbers compared: 16.
"""

import numpy as np
import pytest

import ergodax as ex

from . import faults, normals, sampled
from .test_orders import exact, noisy

pytestmark = pytest.mark.slow

START = np.ones(1, np.float32)
CASES = {  # kernel, E x^2, E x^4, E r^2
    "SGLD": (lambda: ex.sgld(exact(), 0.05), 1.030023183, 2.092448000, None),
    "SGLD noisy": (lambda: ex.sgld(noisy(), 0.05), 1.040569098, 2.142616264, None),
    "SGHMC noisy": (lambda: ex.sghmc(noisy(), 0.25), 1.09211, 2.32562, 1.4097),
    "BAOAB": (lambda: ex.langevin(exact(), 0.25), 1.03855838, 2.03876148, 0.96665185),
    "ABOBA": (
        lambda: ex.langevin(exact(), 0.25, scheme="ABOBA"),
        1.02498677,
        1.97452214,
        1.03661699,
    ),
    "OBABO": (
        lambda: ex.langevin(exact(), 0.25, scheme="OBABO"),
        1.04118392,
        2.07780091,
        1.00076685,
    ),
}


def assert_moments(kernel, known, key):
    x, auxiliary = sampled.run_watched(kernel, START, 20_000, key)
    second, fourth, kinetic = known
    sampled.assert_mean(x**2, second, 0.02)
    sampled.assert_mean(x**4, fourth, 0.08)
    if kinetic is not None:
        sampled.assert_mean(auxiliary["momentum"] ** 2, kinetic, 0.015)


@pytest.mark.parametrize("name", CASES)
def test_draws_have_the_discrete_moments(name, key):
    make, *known = CASES[name]
    assert_moments(make(), known, key)


@pytest.mark.parametrize("name, h", [("SGLD", 0.05), ("BAOAB", 0.25)])
def test_a_planted_fault_is_rejected(name, h, key):
    make, *known = CASES[name]
    planted = faults.Planted(make(), normals.scaled_by(float(np.sqrt(0.5 * h))))
    with pytest.raises(AssertionError, match="the law differs"):
        assert_moments(planted, known, key)
