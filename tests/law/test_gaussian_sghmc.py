"""Both schemes of SGHMC on Gaussian targets against the exact discrete law; nothing is sampled."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.recipe import dynamics
from ergodax.verify import AffineStep, affine_step, stationary_law

from . import faults, normals, theory
from .problems import KINDS, line, problem

pytestmark = pytest.mark.usefixtures("x64")

SCHEMES = {"semi-implicit": theory.semi_implicit, "euler": theory.euler}
SETTINGS = [(1.0, 1.0, 0.05), (0.25, 0.4, 0.5), (4.0, 2.5, 0.3)]  # T, gamma, share of the limit


def step_of(p, scheme, gamma, share):
    """A stable step: gamma > h k and 2 gamma h < 4 for Euler, else 2 gamma h + h^2 k < 4."""
    k = p.modes.k.max()
    semi = (np.sqrt(gamma**2 + 4.0 * k) - gamma) / k
    limit = min(gamma / k, 2.0 / gamma) if scheme == "euler" else semi
    return share * limit


def kernel_of(p, scheme, t, gamma, h, noise=1.0, *, compensate=False):
    return ex.sghmc(
        p.noisy(noise),
        h,
        gamma,
        mass=p.mass,
        temperature=t,
        scheme=scheme,
        compensate=compensate,
    )


def assert_law(kernel, p, mode, scheme):
    law = stationary_law(kernel, p.centre)
    blocks = p.modes.covariances(*SCHEMES[scheme](mode))
    assert len(blocks) == 3
    for pair, known in blocks.items():
        theory.assert_covariance(law.cov(*pair), known)


@pytest.mark.parametrize("d, mass", KINDS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_sghmc_has_the_closed_form_law(scheme, d, mass):
    p = problem(d, mass)
    for t, gamma, share in SETTINGS:
        h = step_of(p, scheme, gamma, share)
        for noise in (0.0, 1.0):
            kernel = kernel_of(p, scheme, t, gamma, h, noise)
            assert_law(kernel, p, p.mode(h, gamma=gamma, t=t, noise=noise), scheme)


@pytest.mark.parametrize("d, mass", KINDS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_compensated_sghmc_has_the_law_of_the_exact_gradient(scheme, d, mass):
    p = problem(d, mass)
    for t, gamma, share in SETTINGS:
        h = step_of(p, scheme, gamma, share)
        noise = 0.9 * 2.0 * t * gamma / (h * p.s2.max())  # nearly all that is injected
        kernel = kernel_of(p, scheme, t, gamma, h, noise, compensate=True)
        assert_law(kernel, p, p.mode(h, gamma=gamma, t=t, noise=0.0), scheme)


NUMBERS = [  # scheme, k, m, C, h, s2, (Var x, Cov(x, r), Var r) as far as known
    ("euler", 2.0, 1.5, 0.9, 0.1, 3.0, (0.7525684932, -0.0770547945, 2.3116438356)),
    ("semi-implicit", 2.0, 1.5, 0.9, 0.1, 3.0, (0.5853448276, 0.0603448276, 1.8103448276)),
    ("semi-implicit", 1.0, 1.0, 1.0, 0.1, 0.0, (1.0026385224, None, 1.0554089710)),
    ("euler", 1.0, 1.0, 1.0, 0.1, 0.0, (1.1140274132, None, None)),
    ("euler", 1.0, 1.0, 1.0, 0.1, 10.0, (1.6710411199, None, None)),
]


@pytest.mark.parametrize("scheme, k, m, c, h, s2, known", NUMBERS)
def test_known_numbers(scheme, k, m, c, h, s2, known):
    gradient = ex.NoisyGradient(line(1.0 / k), s2)
    law = stationary_law(ex.sghmc(gradient, h, c / m, mass=m, scheme=scheme), np.zeros(1))
    pairs = [("position", "position"), ("position", "momentum"), ("momentum", "momentum")]
    for pair, value in zip(pairs, known, strict=True):
        if value is not None:
            np.testing.assert_allclose(law.cov(*pair), value, atol=2e-10)


def test_euler_is_unstable_where_the_theory_says_so():
    """C > h k is needed; at k = 10, m = 1, C = 0.9, h = 0.1 the radius is 1.00499."""
    stiff = ex.FullGradient(line(0.1))
    euler = ex.sghmc(stiff, 0.1, 0.9, scheme="euler")
    assert affine_step(euler, np.zeros(1)).radius == pytest.approx(1.00499, abs=1e-5)
    free = ex.sghmc(ex.FullGradient(line()), 0.1, 0.0, scheme="euler")
    radius = affine_step(free, np.zeros(1)).radius
    assert radius == pytest.approx(1.0049875621, abs=1e-9)
    semi = ex.sghmc(stiff, 0.1, 0.9)
    assert affine_step(semi, np.zeros(1)).radius < 1.0


@pytest.mark.parametrize("v, variance", [(4.0, 1.1089787693), (0.0, 0.9442245360)])
def test_naive_stochastic_hmc_is_heated_as_known(v, variance):
    """No friction, a new momentum every ten steps: the wrong sampler that SGHMC repairs."""
    step = affine_step(ex.sghmc(ex.NoisyGradient(line(), v), 0.1, 0.0), np.zeros(1))
    r = step.rows["momentum"][0]
    matrix, noise = np.eye(2), np.zeros((2, 2))
    matrix[r, r], noise[r, r] = 0.0, 1.0  # the new momentum
    for _ in range(10):
        matrix = step.matrix @ matrix
        noise = step.matrix @ noise @ step.matrix.T + step.covariance
    law = stationary_law(AffineStep(matrix, noise)).covariance
    x = step.rows["position"][0]
    np.testing.assert_allclose(law[x, x], variance, atol=2e-10)


def test_naive_stochastic_hmc_gains_energy_without_end():
    """The shadow energy of the frictionless map grows by h^2 V / (2 m) a step."""
    h, v = 0.1, 4.0
    step = affine_step(ex.sghmc(ex.NoisyGradient(line(), v), h, 0.0), np.zeros(1))
    x, r = step.rows["position"][0], step.rows["momentum"][0]
    shadow = np.zeros((2, 2))
    shadow[x, x] = shadow[r, r] = 0.5
    shadow[x, r] = shadow[r, x] = -0.25 * h
    np.testing.assert_allclose(step.matrix.T @ shadow @ step.matrix, shadow, atol=1e-12)
    gain = np.trace(shadow @ step.covariance)
    np.testing.assert_allclose(gain, h**2 * v / 2.0, atol=1e-12)


def test_underdamped_recipe_is_sghmc():
    p = problem(2, "matrix")
    recipe = dynamics.underdamped(0.7, p.mass)
    kernel = ex.euler_maruyama(recipe, p.noisy(), 0.05, temperature=2.0)
    assert_law(kernel, p, p.mode(0.05, gamma=0.7, t=2.0), "euler")


FAULTS = {
    "h for sqrt(2h)": lambda h, t: normals.scaled_by(float(np.sqrt(h / 2.0))),
    "T forgotten": lambda h, t: normals.scaled_by(float(t**-0.5)),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_planted_fault_is_rejected(scheme, fault):
    p, t, gamma = problem(2, "matrix"), 4.0, 1.0
    h = step_of(p, scheme, gamma, 0.2)
    kernel = faults.Planted(kernel_of(p, scheme, t, gamma, h, 0.0), FAULTS[fault](h, t))
    with pytest.raises(AssertionError, match="Not equal"):
        assert_law(kernel, p, p.mode(h, gamma=gamma, t=t, noise=0.0), scheme)


def test_the_other_scheme_and_a_forgotten_mass_are_rejected():
    p = problem(2, "matrix")
    mode = p.mode(0.05)
    with pytest.raises(AssertionError, match="Not equal"):
        assert_law(kernel_of(p, "euler", 1.0, 1.0, 0.05), p, mode, "semi-implicit")
    massless = ex.sghmc(p.noisy(), 0.05, 1.0)
    with pytest.raises(AssertionError, match="Not equal"):
        assert_law(massless, p, mode, "semi-implicit")


def test_momenta_are_drawn_anew_every_other_step(x64):
    """At steps 0, 2, ... the position after a step does not depend on the momentum before."""
    target = ex.targets.gaussian(np.zeros(1), np.ones(1))
    kernel = ex.sghmc(ex.FullGradient(target), 0.1, resample_every=2)
    start = kernel.init(jax.random.key(0), jnp.ones(1))
    ends = []
    for number in (0, 1, 2):
        moved = []
        for r in (-1.0, 2.0):
            momentum = {"momentum": jnp.full(1, r)}
            state = dataclasses.replace(start, auxiliary=momentum, step=jnp.int32(number))
            moved.append(float(kernel.step(jax.random.key(1), state)[0].position[0]))
        ends.append(moved[0] == moved[1])
    assert ends == [True, False, True]


def test_the_first_momentum_has_the_first_temperature(x64):
    """A schedule that begins at 4 and is at 1 from the first step on."""
    gradient = ex.FullGradient(ex.targets.gaussian(np.zeros(2), np.ones(2)))
    falling = ex.sghmc(gradient, 0.1, temperature=lambda step: jnp.where(step == 0, 4.0, 1.0))
    momenta = [
        kernel.init(jax.random.key(0), jnp.zeros(2)).auxiliary["momentum"]
        for kernel in (falling, ex.sghmc(gradient, 0.1), ex.sghmc(gradient, 0.1, temperature=4.0))
    ]
    np.testing.assert_allclose(momenta[0], 2.0 * momenta[1], rtol=1e-12)
    np.testing.assert_allclose(momenta[0], momenta[2], rtol=1e-12)
