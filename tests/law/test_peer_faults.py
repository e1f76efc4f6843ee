"""Every fault that was measured in another library, one test each, named after it.

Where that can be done in a few lines the fault is planted here as well, so that the check is
known to see it; where the peer's own step is known, it also gives the number measured there.
On N(0, 1) at temperature T the variance is T. Exact discrete laws throughout, except the
thermostat, which is not linear.
"""

import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax import tree
from ergodax.integrator import flows
from ergodax.verify import Axis, stationary_law

from . import faults, normals, sampled, theory
from .problems import line

# `ergodax.integrator.euler_maruyama` is the function; its module has the same name.
EULER = sys.modules[ex.euler_maruyama.__module__]
EXCHANGE = sys.modules[ex.replica_exchange.__module__]


def variances(kernel):
    """The exact stationary Var x and Var r."""
    with jax.enable_x64(True):
        law = stationary_law(kernel, np.zeros(1))
        names = [name for name in ("position", "momentum") if name in law.rows]
        return [law.cov(name)[0, 0] for name in names]


def damping(spread):
    """The fault that the letter O adds `spread(c, T)` sqrt(M) xi, c = e^(-gamma t)."""

    def wrong(key, momentum, mass, friction, temperature, t):
        c = jnp.exp(-friction * t)
        noise = mass.sqrt_mv(tree.normal_like(key, momentum))
        return tree.add_scaled(tree.scale(c, momentum), spread(c, temperature), noise)

    return faults.replacing(flows, "ornstein_uhlenbeck", wrong)


def baoab(t, friction=1.0):
    return ex.langevin(ex.FullGradient(line()), 0.1, friction, temperature=t)


BAOAB_SCALE = damping(lambda c, t: t * jnp.sqrt(1.0 - c**2))
PARTIAL_REFRESH = damping(lambda c, t: jnp.sqrt(t) * (1.0 - c**2))
MOMENTUM_DECAY = damping(lambda c, t: jnp.sqrt(2.0 * t * (1.0 - c)))


@pytest.mark.parametrize("t, measured", [(4.0, 15.97), (0.25, 0.062)])
def test_baoab_noise_scale_at_temperature(t, measured, x64):
    """SGMCMCJax `baoab`: noise tau c2 where sqrt(tau) c2 is right."""
    assert variances(baoab(t))[0] == pytest.approx(t, rel=1e-10)
    wrong = variances(faults.Planted(baoab(t), BAOAB_SCALE))[0]
    assert wrong == pytest.approx(measured, rel=0.01)


@pytest.mark.slow
def test_thermostat_uses_the_square_of_the_norm(key):
    """SGMCMCJax `badodab`: the thermostat follows |r| and not |r|^2; d = 10 gave 10.4."""
    target = ex.targets.gaussian(np.zeros(10), np.ones(10))
    kernel = ex.sgnht(ex.FullGradient(target), 0.1)
    start = np.zeros(10, np.float32)
    x = sampled.run(kernel, start, 4_000, key)
    sampled.assert_mean((x**2).mean(axis=-1), 1.0, 0.05)

    def wrong(thermostat, momentum, mass, thermal_mass, temperature, t, **options):
        excess = tree.norm(momentum) - tree.size(momentum) * temperature
        return thermostat + t / thermal_mass * excess

    planted = faults.Planted(kernel, faults.replacing(flows, "thermostat_drift", wrong))
    x = sampled.run(planted, start, 4_000, key)
    with pytest.raises(AssertionError, match="the law differs"):
        sampled.assert_mean((x**2).mean(axis=-1), 1.0, 1.0)


@pytest.mark.parametrize("scheme", ["semi-implicit", "euler"])
@pytest.mark.parametrize("t", [0.1, 1.0, 4.0])
def test_sghmc_obeys_the_temperature(t, scheme, x64):
    """BlackJAX `sghmc`: momenta always N(0, 1); T = 0.1 gave 1.13 and T = 4 gave 1.15."""
    kernel = ex.sghmc(ex.FullGradient(line()), 0.1, temperature=t, scheme=scheme)
    closed = {"semi-implicit": theory.semi_implicit, "euler": theory.euler}[scheme]
    expected = closed(theory.Mode(1.0, 1.0, 1.0, 0.1, t, 0.0))
    np.testing.assert_allclose(variances(kernel), [expected[0], expected[2]], rtol=1e-10)
    wrong = variances(faults.Planted(kernel, normals.scaled_by(t**-0.5)))[0]
    assert wrong == pytest.approx(expected[0] / t, rel=1e-10)


@pytest.mark.parametrize("c, measured", [(4.0, 4.06), (0.25, 0.27)])
def test_friction_noise_is_the_root_of_the_friction(c, measured, x64):
    """jax-sgmc friction leapfrog: noise C sqrt(2 h) where sqrt(2 C h) is right."""
    kernel = ex.sghmc(ex.FullGradient(line()), 0.02, c)
    expected = theory.semi_implicit(theory.Mode(1.0, 1.0, c, 0.02, 1.0, 0.0))[0]
    assert variances(kernel)[0] == pytest.approx(expected, rel=1e-10)
    assert variances(baoab(1.0, c))[0] == pytest.approx(1.0, rel=1e-10)
    wrong = variances(faults.Planted(kernel, normals.scaled_by(c**0.5)))[0]
    assert wrong == pytest.approx(measured, rel=0.1)


def test_chains_have_keys_of_their_own(key):
    """jax-sgmc aliases: every chain used the same key, so the chains were identical."""
    x = sampled.run(baoab(1.0), np.zeros(1, np.float32), 50, key, num_chains=6, burn_in=0)
    first = x[:, :, 0]
    for a in range(6):
        for b in range(a):
            assert np.all(first[a] != first[b])


@pytest.mark.parametrize("t", [0.25, 4.0])
def test_momenta_start_from_their_law(t, x64):
    """fortuna SGHMC: the momentum 'resampling' sets zeros; a variance of 0.50."""
    mass = np.array([[2.0, 0.4], [0.4, 1.0]])
    target = ex.FullGradient(ex.targets.gaussian(np.zeros(2), np.ones(2)))
    for kernel in (
        ex.langevin(target, 0.1, mass=mass, temperature=t, scheme="ABOBA"),
        ex.sghmc(target, 0.1, mass=mass, temperature=t),
        ex.sgnht(target, 0.1, mass=mass, temperature=t, scheme="ADOBODA"),
    ):

        def drawn(numbers, kernel=kernel):
            with normals.dealt(numbers):
                return kernel.init(normals.key(), jnp.zeros(2)).auxiliary["momentum"]

        root = np.asarray(jax.jacfwd(drawn)(jnp.zeros(2)))
        np.testing.assert_allclose(root @ root.T, t * mass, rtol=1e-10)


@pytest.mark.parametrize("t", [0.25, 1.0, 4.0])
def test_partial_refresh_keeps_the_variance(t, x64):
    """R sgmcmc: a refresh adds 0.5 xi where sqrt(0.5) xi is right; 0.44 at T = 1."""
    half = float(np.log(2.0) / 0.2)  # c^2 = 1/2 in a step of 0.1
    assert variances(baoab(t, half))[0] == pytest.approx(t, rel=1e-10)
    wrong = variances(faults.Planted(baoab(t, half), PARTIAL_REFRESH))[0]
    assert wrong == pytest.approx(0.5 * t, rel=0.01)


@pytest.mark.parametrize("t", [0.25, 1.0, 4.0])
def test_compensation_does_not_scale_with_temperature(t, x64):
    """posteriors `beta`: subtracts T^2 beta, right only at T = 1; T = 0.25 gave 0.348."""
    kernel = ex.sghmc(ex.NoisyGradient(line(), 2.0), 0.1, temperature=t, compensate=True)
    clean = ex.sghmc(ex.FullGradient(line()), 0.1, temperature=t)
    np.testing.assert_allclose(variances(kernel), variances(clean), rtol=1e-10)
    right = EULER.compensated_noise

    def wrong(diffusion, column, covariance, h, temperature, normal):
        return right(diffusion, column, covariance.scaled(t**2), h, temperature, normal)

    fault = faults.replacing(EULER, "compensated_noise", wrong)
    if t < 1.0:  # above, the fault asks for more than there is
        bad = variances(faults.Planted(kernel, fault))[0]
        assert bad == pytest.approx(0.348, rel=0.05)


def test_too_large_a_compensation_stops_with_its_reason(key):
    """posteriors: parameters turn complex; BlackJAX: NaN. Here the run stops and says why."""
    gradient = ex.NoisyGradient(line(), 50.0)
    start = np.zeros(1, np.float32)
    kernel = ex.sghmc(gradient, 0.1, compensate=True)  # 2 C = 2 < h V = 5
    with pytest.raises(ex.DivergenceError, match="negative variance") as caught:
        ex.sample(kernel, start, 100, key=key, num_chains=3, progress=False)
    assert bool(tree.all_finite(eqx.filter(caught.value.state, eqx.is_inexact_array)))
    clipped = ex.sghmc(gradient, 0.1, compensate=True, clip=True)
    x = sampled.run(clipped, start, 200, key, num_chains=3)
    assert np.isfinite(x).all() and np.isrealobj(x)


def preconditioner(x):
    return 1.0 / (0.5 + jnp.abs(x) ** 2 / (1.0 + jnp.abs(x)))


def test_preconditioner_that_follows_the_gradient_has_gamma(x64):
    """pSGLD without Gamma (SGMCMCJax, jax-sgmc): 1.18 to 1.48 where 1 is right.

    The memoryless limit of the RMSprop preconditioner: D falls as the gradient grows, and
    without Gamma the law is exp(-U) / D.
    """
    recipe = ex.Recipe(diffusion=lambda z: {"position": ex.Diagonal(preconditioner(z["position"]))})
    gradient = ex.FullGradient(line())
    axes = [Axis(-5.5, 5.5, 301)]

    def variance(fault=None):
        def at(h):
            kernel = ex.euler_maruyama(recipe, gradient, h)
            kernel = kernel if fault is None else faults.Planted(kernel, fault)
            return stationary_law(kernel, np.zeros(1), grid=axes).mean(lambda x: x[0] ** 2)

        return 2.0 * at(0.01) - at(0.02)

    assert variance() == pytest.approx(1.0, abs=0.005)
    assert variance(faults.GAMMA_DROPPED) > 1.15


@pytest.mark.parametrize("c", [0.9, 0.5])
def test_momentum_decay_keeps_the_kinetic_variance(c, x64):
    """fortuna, bnn_priors: noise sqrt(2 (1 - beta)) gives 2 / (1 + beta); measured 1.054."""
    friction = float(-np.log(c) / 0.1)
    kernel = ex.langevin(ex.FullGradient(line()), 0.1, friction, scheme="BAOA")
    assert variances(kernel)[1] == pytest.approx(1.0, rel=1e-10)
    planted = faults.Planted(kernel, MOMENTUM_DECAY)
    assert variances(planted)[1] == pytest.approx(2.0 / (1.0 + c), rel=1e-3)


@pytest.mark.slow
def test_tempering_swaps_towards_the_cold(key):
    """jax-sgmc parallel tempering: the branches of the swap inverted; with T = 4 it gave 3.6."""
    gradient = ex.FullGradient(line())
    kernel = ex.replica_exchange(ex.sgld, gradient, 0.05, temperatures=(1.0, 4.0), swap_every=1)
    start = np.zeros(1, np.float32)
    x = sampled.run(kernel, start, 4_000, key)
    sampled.assert_mean(x**2, 1.0, 0.1)
    right = EXCHANGE.swap_probability

    def wrong(difference, variance, gap):
        return 1.0 - right(difference, variance, gap)

    planted = faults.Planted(kernel, faults.replacing(EXCHANGE, "swap_probability", wrong))
    x = sampled.run(planted, start, 4_000, key)
    with pytest.raises(AssertionError, match="the law differs"):
        sampled.assert_mean(x**2, 1.0, 1.0)
    assert (x**2).mean() == pytest.approx(3.6, rel=0.1)
