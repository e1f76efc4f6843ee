"""The wrong laws of the counterexamples, as exact numbers of the kernels themselves."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.sampler.counterexamples import naive_sghmc, naive_sgrhmc
from ergodax.verify import AffineStep, Axis, affine_step, stationary_law

from .problems import line

pytestmark = pytest.mark.usefixtures("x64")


# --- Naive SGHMC: Hamiltonian dynamics with a noisy gradient --------------------------------------


def naive(h, noise, **options):
    return naive_sghmc(ex.NoisyGradient(line(), noise or 1e-30), h, **options)


@pytest.mark.parametrize("mass", [1.0, 2.5])
def test_the_shadow_energy_grows_by_h_squared_v_over_2m(mass):
    """r^2 / 2m + x^2 / 2 - h x r / 2m is conserved by the map, and the noise alone moves it."""
    h, noise = 0.1, 4.0
    step = affine_step(naive(h, noise, mass=mass, resample_every=None), jnp.zeros(1))
    x, r = (int(step.rows[name][0]) for name in ("position", "momentum"))
    shadow = np.full((2, 2), -0.5 * h / mass)
    shadow[x, x], shadow[r, r] = 1.0, 1.0 / mass
    np.testing.assert_allclose(step.matrix.T @ shadow @ step.matrix, shadow, atol=1e-14)
    growth = 0.5 * np.trace(shadow @ step.covariance)
    np.testing.assert_allclose(growth, h**2 * noise / (2.0 * mass), rtol=1e-12)
    np.testing.assert_allclose(step.radius, 1.0, atol=1e-12)


class From(ex.Kernel):
    """A kernel begun at a step of one's choice."""

    kernel: ex.Kernel
    first: jax.Array

    def init(self, key, position):
        state = self.kernel.init(key, position)
        return eqx.tree_at(lambda s: s.step, state, self.first)

    def step(self, key, state):
        return self.kernel.step(key, state)


def resampled_variance(noise, period=10):
    """Var x where momenta are drawn afresh: the stationary law of a whole period."""
    kernel = naive(0.1, noise, resample_every=period)
    steps = [affine_step(From(kernel, jnp.int32(k)), jnp.zeros(1)) for k in range(period)]
    matrix, covariance = np.eye(2), np.zeros((2, 2))
    for step in steps:
        matrix = step.matrix @ matrix
        covariance = step.matrix @ covariance @ step.matrix.T + step.covariance
    x = steps[0].rows["position"]
    return stationary_law(AffineStep(matrix, covariance)).covariance[x, x].item()


@pytest.mark.parametrize(("noise", "expected"), [(4.0, 1.1089787693), (0.0, 0.9442245360)])
def test_with_fresh_momenta_the_variance_is_the_known_wrong_one(noise, expected):
    np.testing.assert_allclose(resampled_variance(noise), expected, atol=1e-10)


# --- Naive SGRHMC: without Gamma ------------------------------------------------------------------


def square(sampler, target, metric, axes, coarsest):
    """E x^2 extrapolated to h = 0 from h, h / 2 and h / 4: the orders h and h^2 removed."""
    gradient, measured = ex.FullGradient(target), []
    for h in (coarsest, coarsest / 2.0, coarsest / 4.0):
        law = stationary_law(
            sampler(gradient, h, metric), np.zeros(1), grid=axes, num_nodes=6, order=6
        )
        measured.append(law.mean(lambda z: z[0] ** 2))
    return np.array([1.0, -6.0, 8.0]) @ measured / 3.0


def predicted(potential, metric, power):
    """E x^2 under exp(-U) / (G^-1)^power: power 1/2 is the naive law, 0 the right one."""
    x = np.linspace(-8.0, 8.0, 40_001)
    weights = np.exp(-potential(x)) / metric(x) ** power
    return weights @ x**2 / weights.sum()


PHASE = [Axis(-5.5, 5.5, 65), Axis(-5.5, 5.5, 65)]


def test_on_a_normal_the_naive_law_is_exp_minus_u_over_s():
    """E x^2 = 0.843589969534 as h -> 0, and 1 with Gamma."""

    def metric(x):
        return 1.5 * (0.5 * x**2 + 0.5) ** 0.5

    known = predicted(lambda x: 0.5 * x**2, metric, 0.5)
    np.testing.assert_allclose(known, 0.843589969534, atol=1e-11)
    samplers = (naive_sgrhmc, ex.sgrhmc)
    measured = [square(s, line(), lambda x: metric(x[0]), PHASE, 0.1) for s in samplers]
    np.testing.assert_allclose(measured, [known, 1.0], atol=1e-3)


WELL = [Axis(-2.7, 2.7, 97), Axis(-5.5, 5.5, 65)]


@pytest.mark.parametrize(("shift", "known"), [(1.5, 0.838250471968), (2.0, 0.834694187229)])
def test_on_a_double_well_it_is_near_and_still_wrong(shift, known):
    """U = x^4 - 2 x^2, E x^2 = 0.832745487128."""

    def potential(x):
        return x**4 - 2.0 * x**2

    def metric(x):
        return 1.5 * (potential(x) + shift) ** 0.5

    np.testing.assert_allclose(predicted(potential, metric, 0.5), known, atol=1e-11)
    np.testing.assert_allclose(predicted(potential, metric, 0.0), 0.832745487128, atol=1e-11)
    target = ex.targets.double_well(1.0)
    measured = square(naive_sgrhmc, target, lambda x: metric(x[0]), WELL, 0.04)
    np.testing.assert_allclose(measured, known, atol=3e-4)
