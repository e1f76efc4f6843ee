"""Every sampler's thermometers, right and with noise that is 5 % too strong.

Target: a Gaussian in ten dimensions. `expected` is the exact value of the discrete scheme where
it has a closed form (`theory`), else T, at a step so small that its shift is far below the band.
The planted fault is a sampler at T = 1.05^2 that claims T = 1: each must be flagged. Bands hold
with probability 1 - 1e-6 for each sampler; 12 kernels, so a new key raises a false alarm once in
80,000 runs.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax import diagnostics

from . import theory

pytestmark = pytest.mark.slow

D, H, GAMMA, V = 10, 0.2, 1.0, 4.0
K = np.linspace(0.5, 2.0, D)  # curvatures
TARGET = ex.targets.gaussian(np.zeros(D), 1.0 / K)
FULL, NOISY = ex.FullGradient(TARGET), ex.NoisyGradient(TARGET, V)
LEVEL = 1.0 - 1e-6


def of_scheme(closed: Callable, h: float = H, s2: float = 0.0) -> dict[str, float]:
    """The two temperatures of a scheme, averaged over modes of mass 1."""
    x, _, r = closed(theory.Mode(K, 1.0, GAMMA, h, 1.0, s2 * np.ones(D)))
    found = {"configurational": float(np.mean(K * x))}
    if np.isfinite(r).all():
        found["kinetic"] = float(np.mean(r * np.ones(D)))
    return found


def metric(x):
    return 1.0 + 0.3 * jnp.tanh(x)


class Case(NamedTuple):
    """A sampler as a function of the temperature, what it should show, and steps to a draw."""

    kernel: Callable[[float], Any]
    expected: dict[str, float] | None
    thin: int = 2


NOGIN = {"kinetic": float(np.mean(1.0 / (1.0 - H**2 * K / 4.0)))}
THERMOSTAT = {"kinetic": float(np.mean(1.0 - 0.25 * H**2 * (K + V)))}

CASES = {
    "sgld": Case(lambda t: ex.sgld(FULL, H, temperature=t), of_scheme(theory.sgld), 8),
    "sgld, noise": Case(
        lambda t: ex.sgld(NOISY, H, temperature=t), of_scheme(theory.sgld, s2=V), 8
    ),
    "sghmc": Case(lambda t: ex.sghmc(FULL, H, temperature=t), of_scheme(theory.semi_implicit)),
    "sghmc, noise": Case(
        lambda t: ex.sghmc(NOISY, H, temperature=t), of_scheme(theory.semi_implicit, s2=V)
    ),
    **{
        name: Case(
            lambda t, name=name: ex.langevin(FULL, H, temperature=t, scheme=name),
            of_scheme(theory.SPLITTINGS[name]),
        )
        for name in ("BAOAB", "BAOA", "OBABO")
    },
    "sgnht": Case(lambda t: ex.sgnht(NOISY, H, temperature=t), THERMOSTAT),
    "nogin": Case(lambda t: ex.nogin(NOISY, H, temperature=t), NOGIN),
    "sgrld": Case(lambda t: ex.sgrld(FULL, 0.01, metric, temperature=t), None, 100),
    "sgrhmc": Case(lambda t: ex.sgrhmc(FULL, 0.01, metric, temperature=t), None, 40),
    "hmc": Case(lambda t: ex.hmc(FULL, 0.5, num_leapfrog_steps=4, temperature=t), None, 1),
}


def report(case: Case, t: float, key: Any) -> diagnostics.TemperatureReport:
    samples = ex.sample(
        case.kernel(t),
        np.zeros(D, np.float32),
        1000 * case.thin,
        key=key,
        num_chains=16,
        burn_in=100 * case.thin,
        thin=case.thin,
        progress=False,
    )
    return diagnostics.temperature(samples, TARGET, expected=case.expected, level=LEVEL)


@pytest.mark.parametrize("name", CASES)
def test_right_and_five_percent_too_noisy(name, key):
    keys = jax.random.split(key)
    right = report(CASES[name], 1.0, keys[0])
    assert right.ok, str(right)
    assert right.resolution < 0.06
    wrong = report(CASES[name], 1.05**2, keys[1])
    assert not wrong.ok, str(wrong)
