"""The discrete law on U = (x^2 - 1)^2 / 4 against values known to eight digits.

The gradient noise, where there is one, has the standard deviation 1 - cos(1 + 5 x). The values
are the stationary moments of each discrete kernel, computed on finer grids by other code.
"""

import numpy as np
import pytest

import ergodax as ex
from ergodax.verify import Axis, stationary_law

from . import faults, normals
from .test_orders import exact, noisy

pytestmark = pytest.mark.usefixtures("x64")

AXES = {1: [Axis(-3.4, 3.4, 201)], 2: [Axis(-3.4, 3.4, 65), Axis(-6.5, 6.5, 65)]}

KNOWN = [  # scheme, kernel, E x^2, E x^4, E r^2
    ("SGLD .05", lambda: ex.sgld(exact(), 0.05), 1.030023183, 2.092448000, None),
    ("SGLD .05, noisy", lambda: ex.sgld(noisy(), 0.05), 1.040569098, 2.142616264, None),
    ("SGLD .025", lambda: ex.sgld(exact(), 0.025), 1.036166537, None, None),
    ("SGLD .025, noisy", lambda: ex.sgld(noisy(), 0.025), 1.041525808, None, None),
    (
        "SGLD, compensated",
        lambda: ex.sgld(noisy(), 0.05, compensate=True),
        1.030023183,
        2.092448000,
        None,
    ),
    ("BAOAB", lambda: ex.langevin(exact(), 0.25), 1.03855838, 2.03876148, 0.96665185),
    (
        "ABOBA",
        lambda: ex.langevin(exact(), 0.25, scheme="ABOBA"),
        1.02498677,
        1.97452214,
        1.03661699,
    ),
    (
        "OBABO",
        lambda: ex.langevin(exact(), 0.25, scheme="OBABO"),
        1.04118392,
        2.07780091,
        1.00076685,
    ),
    ("BAOAB fine", lambda: ex.langevin(exact(), 0.125), 1.041025923, 2.041035623, 0.991688714),
    ("SGHMC", lambda: ex.sghmc(exact(), 0.25), 1.0407028, 2.0832355, 1.191466),
    ("SGHMC, noisy", lambda: ex.sghmc(noisy(), 0.25), 1.09211, 2.32562, 1.4097),
    (
        "SGHMC, compensated",
        lambda: ex.sghmc(noisy(), 0.25, compensate=True),
        1.0407028,
        2.0832355,
        1.191466,
    ),
    ("SGHMC fine", lambda: ex.sghmc(exact(), 0.125), 1.04157112, 2.05064033, 1.07634049),
]


def assert_moments(kernel, known):
    dimension = 2 if normals.has_momentum(kernel) else 1
    law = stationary_law(kernel, np.zeros(1), grid=AXES[dimension], num_nodes=8)
    measured = [
        law.mean(lambda z: z[0] ** 2),
        law.mean(lambda z: z[0] ** 4),
        law.mean(lambda z: z[1] ** 2 if dimension == 2 else z[0]),
    ]
    for value, expected in zip(measured, known, strict=True):
        if expected is not None:
            np.testing.assert_allclose(value, expected, atol=3e-5)


@pytest.mark.parametrize(
    "kernel, known", [(row[1], row[2:]) for row in KNOWN], ids=[row[0] for row in KNOWN]
)
def test_known_moments(kernel, known):
    assert_moments(kernel(), known)


def test_the_well_with_the_higher_barrier():
    """U = x^4 - 2 x^2 under SGLD."""
    kernel = ex.sgld(ex.FullGradient(ex.targets.double_well(1.0)), 0.01)
    law = stationary_law(kernel, np.zeros(1), grid=Axis(-2.6, 2.6, 201))
    np.testing.assert_allclose(law.mean(lambda x: x[0] ** 2), 0.825814088, atol=1e-6)
    np.testing.assert_allclose(law.mean(lambda x: x[0] ** 4), 1.083827834, atol=1e-6)


FAULTS = {
    "h for sqrt(2h)": lambda h: normals.scaled_by(float(np.sqrt(h / 2.0))),
    "one part in ten thousand too hot": lambda h: normals.scaled_by(1.0001),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", ["SGLD .05", "BAOAB", "SGHMC"])
def test_a_planted_fault_is_rejected(name, fault):
    make, *known = next(row[1:] for row in KNOWN if row[0] == name)
    kernel = faults.Planted(make(), FAULTS[fault](0.05 if "SGLD" in name else 0.25))
    with pytest.raises(AssertionError, match="Not equal"):
        assert_moments(kernel, known)
