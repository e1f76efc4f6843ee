"""The order in h of each scheme's stationary bias, measured on the exact discrete law.

BAOAB and ABOBA have no bias of the position on a Gaussian, so the splittings are measured on
a double well, whose discrete law `stationary_law` finds on a grid.
"""

import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.verify import Axis, stationary_law

from . import faults, normals
from .problems import line

pytestmark = pytest.mark.usefixtures("x64")

AXES = {1: [Axis(-3.4, 3.4, 161)], 2: [Axis(-3.4, 3.4, 49), Axis(-6.5, 6.5, 49)]}
FOURTH = 2.04179729648716  # E x^4 for U = (x^2 - 1)^2 / 4


def variance(x):
    return (1.0 - jnp.cos(1.0 + 5.0 * x)) ** 2


def exact():
    return ex.FullGradient(ex.targets.double_well(0.25))


def noisy():
    return ex.NoisyGradient(ex.targets.double_well(0.25), variance)


ON_THE_DOUBLE_WELL = [  # scheme, kernel of h, numbers in a state, coarse step, order
    ("SGLD", lambda h: ex.sgld(exact(), h), 1, 0.04, 1),
    ("SGLD, noisy", lambda h: ex.sgld(noisy(), h), 1, 0.04, 1),
    ("SGLD, compensated", lambda h: ex.sgld(noisy(), h, compensate=True), 1, 0.04, 1),
    ("SGHMC Euler", lambda h: ex.sghmc(exact(), h, scheme="euler"), 2, 0.04, 1),
    ("SGHMC", lambda h: ex.sghmc(exact(), h), 2, 0.125, 2),
    ("SGHMC, noisy", lambda h: ex.sghmc(noisy(), h), 2, 0.1, 1),
    ("SGHMC, compensated", lambda h: ex.sghmc(noisy(), h, compensate=True), 2, 0.125, 2),
    ("BAOAB", lambda h: ex.langevin(exact(), h), 2, 0.25, 2),
    ("ABOBA", lambda h: ex.langevin(exact(), h, scheme="ABOBA"), 2, 0.25, 2),
    ("OBABO", lambda h: ex.langevin(exact(), h, scheme="OBABO"), 2, 0.25, 2),
    ("BAOA", lambda h: ex.langevin(exact(), h, scheme="BAOA"), 2, 0.25, 2),
]

ON_A_GAUSSIAN = [
    ("SGLD", lambda h: ex.sgld(ex.FullGradient(line()), h), 0.01, 1),
    ("SGHMC Euler", lambda h: ex.sghmc(ex.FullGradient(line()), h, scheme="euler"), 0.01, 1),
    ("SGHMC", lambda h: ex.sghmc(ex.FullGradient(line()), h), 0.01, 2),
    ("SGHMC, noisy", lambda h: ex.sghmc(ex.NoisyGradient(line(), 1.0), h), 0.001, 1),
    ("OBABO", lambda h: ex.langevin(ex.FullGradient(line()), h, scheme="OBABO"), 0.1, 2),
]


def slope(bias, h):
    """log2 of the ratio of the biases at h and h / 2."""
    return float(np.log2(abs(bias(h) / bias(0.5 * h))))


def bias_on_the_double_well(kernel, dimension):
    def bias(h):
        law = stationary_law(kernel(h), np.zeros(1), grid=AXES[dimension], num_nodes=6, order=6)
        return law.mean(lambda z: z[0] ** 4) - FOURTH

    return bias


def bias_on_a_gaussian(kernel):
    return lambda h: stationary_law(kernel(h), np.zeros(1)).cov()[0, 0] - 1.0


@pytest.mark.parametrize(
    "kernel, dimension, h, order", [row[1:] for row in ON_THE_DOUBLE_WELL],
    ids=[row[0] for row in ON_THE_DOUBLE_WELL],
)  # fmt: skip
def test_order_on_the_double_well(kernel, dimension, h, order):
    measured = slope(bias_on_the_double_well(kernel, dimension), h)
    assert measured == pytest.approx(order, abs=0.2)


@pytest.mark.parametrize(
    "kernel, h, order", [row[1:] for row in ON_A_GAUSSIAN], ids=[row[0] for row in ON_A_GAUSSIAN]
)
def test_order_on_a_gaussian(kernel, h, order):
    assert slope(bias_on_a_gaussian(kernel), h) == pytest.approx(order, abs=0.05)


@pytest.mark.parametrize("scheme", ["BAOAB", "ABOBA", "BAOA"])
def test_no_bias_of_the_position_on_a_gaussian(scheme):
    kernel = ex.langevin(ex.FullGradient(line()), 1.0, scheme=scheme)
    assert stationary_law(kernel, np.zeros(1)).cov()[0, 0] == pytest.approx(1.0, abs=1e-12)


def test_a_wrong_noise_scale_has_order_zero():
    """A bias that does not vanish with h: noise of variance 2 h T (1 + 1/10)."""
    fault = normals.scaled_by(float(np.sqrt(1.1)))

    def kernel(h):
        return faults.Planted(ex.langevin(exact(), h), fault)

    measured = slope(bias_on_the_double_well(kernel, 2), 0.25)
    assert abs(measured) < 0.5 and abs(measured - 2.0) > 0.2
