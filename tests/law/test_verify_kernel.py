"""`verify.kernel`: right samplers pass, planted faults are rejected, and orders are told apart.

A report has a false-alarm budget of 1e-6; there are about 80. The checks of numbers are gated
at 5 standard errors.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax import tree
from ergodax.integrator import flows
from ergodax.kernel import Kernel
from ergodax.verify import kernel_report
from ergodax.verify.kernel import kernel as verify

from . import faults, normals
from .problems import line
from .test_peer_faults import BAOAB_SCALE, EULER, MOMENTUM_DECAY, PARTIAL_REFRESH, preconditioner

pytestmark = pytest.mark.slow

COVARIANCE = [[2.0, 0.7, 0.2], [0.7, 1.0, -0.3], [0.2, -0.3, 0.8]]
TARGETS = {
    "gaussian": ex.targets.gaussian([1.0, -1.0, 0.5], COVARIANCE),
    "double well": ex.targets.double_well(),
}
SAMPLERS = {
    "sgld": lambda g, h, t: ex.sgld(g, h, temperature=t),
    "sghmc": lambda g, h, t: ex.sghmc(g, h, temperature=t),
    "sghmc, euler": lambda g, h, t: ex.sghmc(g, h, temperature=t, scheme="euler"),
    "BAOAB": lambda g, h, t: ex.langevin(g, h, temperature=t),
    "ABOBA": lambda g, h, t: ex.langevin(g, h, temperature=t, scheme="ABOBA"),
    "OBABO": lambda g, h, t: ex.langevin(g, h, temperature=t, scheme="OBABO"),
    "BAOA": lambda g, h, t: ex.langevin(g, h, temperature=t, scheme="BAOA"),
    "sgnht": lambda g, h, t: ex.sgnht(g, h, temperature=t),
    "hmc": lambda g, h, t: ex.hmc(g, h, temperature=t, num_leapfrog_steps=2),
}


def check(make_kernel, target, key, *, num_draws=2**14, tolerance=0.3, **options):
    return verify(make_kernel, target, key=key, num_draws=num_draws, tolerance=tolerance, **options)


class ThermostatAt(eqx.Module):
    """zeta ~ N(A, T / mu), mu = d, where `init` leaves it at A."""

    temperature: Any = eqx.field(converter=jnp.asarray)

    def __call__(self, key, state):
        zeta = state.auxiliary["thermostat"]
        spread = jnp.sqrt(self.temperature / tree.size(state.position))
        fresh = zeta + spread * jax.random.normal(key, (), zeta.dtype)
        return eqx.tree_at(lambda s: s.auxiliary["thermostat"], state, fresh)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SAMPLERS)
def test_every_sampler_has_the_right_limit(name, target, key):
    target, sampler = TARGETS[target], SAMPLERS[name]
    gradient = ex.FullGradient(target)
    for t in (1.0, 0.25, 4.0):
        prepare = ThermostatAt(t) if name == "sgnht" else None
        report = check(
            lambda h, t=t: sampler(gradient, h, t), target, key, temperature=t, prepare=prepare
        )
        assert report.ok, report


def test_a_thermostat_out_of_its_law_is_seen(key):
    """Without `prepare`, zeta begins at A, and the law moves away before it comes back."""
    report = check(lambda h: ex.sgnht(EXACT, h), LINE, key, num_draws=2**16)
    assert report.right_limit is False, report


class Resting(Kernel):
    """A kernel whose momenta start at zero."""

    kernel: Kernel

    def init(self, key, position):
        state = self.kernel.init(key, position)
        zero = tree.zeros_like(state.auxiliary["momentum"])
        return eqx.tree_at(lambda s: s.auxiliary["momentum"], state, zero)

    def step(self, key, state):
        return self.kernel.step(key, state)


def norm_without_its_square(thermostat, momentum, mass, thermal_mass, temperature, t, **_):
    excess = tree.norm(momentum) - tree.size(momentum) * temperature
    return thermostat + t / thermal_mass * excess


def compensation_by_the_temperature_squared(diffusion, column, covariance, h, t, normal):
    return RIGHT_COMPENSATION(diffusion, column, covariance.scaled(t**2), h, t, normal)


RIGHT_COMPENSATION = EULER.compensated_noise
T_SQUARED = faults.replacing(EULER, "compensated_noise", compensation_by_the_temperature_squared)
NORM = faults.replacing(flows, "thermostat_drift", norm_without_its_square)
LINE, TEN = line(), ex.targets.gaussian(np.zeros(10), np.ones(10))
EXACT = ex.FullGradient(LINE)
HALF, TWICE = normals.scaled_by(0.5), normals.scaled_by(2.0)


def noisy(h):
    """Noise of variance 0.2 / h: what is left uncompensated stays in the limit."""
    gradient = ex.NoisyGradient(LINE, 0.2 / h)
    return ex.sghmc(gradient, h, temperature=0.25, compensate=True)


def thermostatted(h):
    return ex.sgnht(ex.FullGradient(TEN), h)


def preconditioned(h):
    recipe = ex.Recipe(diffusion=preconditioned_diffusion)
    return ex.euler_maruyama(recipe, EXACT, h)


def preconditioned_diffusion(z):
    return {"position": ex.Diagonal(preconditioner(z["position"]))}


X = np.array([1.0, 2.0, -1.0, 0.5, 1.5], np.float32)
Y = np.array([1.2, 1.7, -0.8, 0.1, 2.0], np.float32)
REGRESSION = ex.targets.gaussian(X @ Y / (0.25 + X @ X), 1.0 / (0.25 + X @ X))


def regression(h, share=1.0):
    """SGLD on batches of 2 of 5; with share = 2/5 the factor N/n is forgotten."""
    posterior = ex.Posterior(
        lambda w: -(w[0] ** 2) / 8.0,
        lambda w, e: -0.5 * share * (e[1] - w[0] * e[0]) ** 2,
        (X, Y),
    )
    return ex.sgld(ex.Minibatch(posterior, 2), h)


def planted(make_kernel, fault):
    return lambda h: faults.Planted(make_kernel(h), fault)


# Each is a right kernel and the wrong one: kernel, fault or kernel, target, temperature, prepare.
RIGHT = {
    "thermostat, d = 10": (thermostatted, TEN, 1.0, ThermostatAt(1.0)),
    "compensation at T": (noisy, LINE, 0.25, None),
    "preconditioner": (preconditioned, LINE, 1.0, None),
    "N/n": (regression, REGRESSION, 1.0, None),
}
WRONG = {
    "baoab noise tau c2, hot": (
        planted(lambda h: ex.langevin(EXACT, h, temperature=4.0), BAOAB_SCALE), LINE, 4.0, None),
    "baoab noise tau c2, cold": (
        planted(lambda h: ex.langevin(EXACT, h, temperature=0.25), BAOAB_SCALE), LINE, 0.25, None),
    "norm for its square": (planted(thermostatted, NORM), TEN, 1.0, ThermostatAt(1.0)),
    "sghmc without T, hot": (
        planted(lambda h: ex.sghmc(EXACT, h, temperature=4.0), HALF), LINE, 4.0, None),
    "sghmc without T, cold": (
        planted(lambda h: ex.sghmc(EXACT, h, temperature=0.25), TWICE), LINE, 0.25, None),
    "friction noise C sqrt(2 h), C = 4": (
        planted(lambda h: ex.sghmc(EXACT, h, 4.0), TWICE), LINE, 1.0, None),
    "friction noise C sqrt(2 h), C = 1/4": (
        planted(lambda h: ex.sghmc(EXACT, h, 0.25), HALF), LINE, 1.0, None),
    "momenta start at zero": (lambda h: Resting(ex.sghmc(EXACT, h)), LINE, 1.0, None),
    "refresh 0.5 for sqrt(0.5)": (
        planted(lambda h: ex.langevin(EXACT, h, np.log(2.0) / (2.0 * h)), PARTIAL_REFRESH),
        LINE, 1.0, None),
    "compensation by T^2": (planted(noisy, T_SQUARED), LINE, 0.25, None),
    "Gamma dropped": (planted(preconditioned, faults.GAMMA_DROPPED), LINE, 1.0, None),
    "momentum decay sqrt(2 (1 - beta))": (
        planted(lambda h: ex.langevin(EXACT, h, np.log(2.0) / h, scheme="BAOA"), MOMENTUM_DECAY),
        LINE, 1.0, None),
    "h for sqrt(2 h)": (
        lambda h: faults.Planted(ex.sgld(EXACT, h), normals.scaled_by(np.sqrt(h / 2.0))),
        LINE, 1.0, None),
    "N/n forgotten": (lambda h: regression(h, 2.0 / 5.0), REGRESSION, 1.0, None),
    "another target": (lambda h: ex.sgld(ex.FullGradient(line(1.3)), h), LINE, 1.0, None),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_the_controls_of_the_faults_pass(name, key):
    make_kernel, target, t, prepare = RIGHT[name]
    report = check(make_kernel, target, key, temperature=t, prepare=prepare)
    assert report.ok, report


@pytest.mark.parametrize("name", WRONG)
def test_every_planted_fault_is_rejected(name, key):
    make_kernel, target, t, prepare = WRONG[name]
    report = check(make_kernel, target, key, temperature=t, prepare=prepare, num_draws=2**15)
    assert report.right_limit is False and not report.ok, report
    assert str(report).startswith("Wrong limit: as h -> 0 the mean of ")


WELL = ex.FullGradient(TARGETS["double well"])
ORDERS = {  # kernel, order, numbers of steps in the duration, duration, draws
    "sgld": (lambda h: ex.sgld(WELL, h), 1, (4, 8, 16, 32), 0.28, 2**17),
    "sghmc": (lambda h: ex.sghmc(WELL, h), 1, (2, 4, 8, 16), 0.24, 2**18),
    "BAOAB": (lambda h: ex.langevin(WELL, h), 2, (3, 4, 6, 12), 0.66, 2**20),
    "OBABO": (lambda h: ex.langevin(WELL, h, scheme="OBABO"), 2, (3, 4, 6, 12), 0.66, 2**20),
}


@pytest.mark.parametrize("name", ORDERS)
def test_weak_orders_at_a_fixed_time(name, key):
    """Of semi-implicit SGHMC the stationary x is second order, but not the way there.

    The slopes vary by less than 0.1 from key to key; the rest of their error is what the next
    power of h might do.
    """
    make_kernel, order, counts, duration, draws = ORDERS[name]
    steps = [duration / n for n in counts]
    well = TARGETS["double well"]
    report = check(make_kernel, well, key, num_draws=draws, step_sizes=steps, duration=duration)
    assert report.ok and report.order is not None, report
    assert abs(report.order - order) < 0.5, report
    assert f"Weak order {report.order:.2f}" in str(report)


def test_the_bias_is_that_of_the_exact_law(key):
    """SGLD on N(0, 1): Var x+ = (1 - h)^2 Var x + 2 h, from Var x = 1; the sd of x^2 is sqrt(2)."""
    report = check(lambda h: ex.sgld(EXACT, h), LINE, key, num_draws=2**16)
    for row in report.table:
        if row.function == "z0^2":
            variance = 1.0
            for _ in range(round(report.duration / row.step_size)):
                variance = (1.0 - row.step_size) ** 2 * variance + 2.0 * row.step_size
            exact = (variance - 1.0) / np.sqrt(2.0)
            assert abs(row.bias - exact) < 5.0 * row.error + 0.02 * abs(exact)


class Quiet(Kernel):
    """A kernel that tells nothing of its momenta."""

    kernel: Kernel

    def init(self, key, position):
        return self.kernel.init(key, position)

    def step(self, key, state):
        return self.kernel.step(key, state)[0], None


BANANA = ex.targets.banana()
DRIFTING = {  # SGRHMC with its divergence and without: the law is wrong, and becomes so slowly
    True: ex.dynamics.riemannian_underdamped,
    False: ex.dynamics.naive_riemannian_underdamped,
}


@pytest.mark.parametrize("right", DRIFTING)
def test_an_error_that_builds_up_slowly(right, key):
    """The shortest time of the banana is 1 / 40 of its longest."""
    recipe = DRIFTING[right](lambda x: 1.5 + jnp.sin(x))
    report = check(
        lambda h: Quiet(ex.euler_maruyama(recipe, ex.FullGradient(BANANA), h)),
        BANANA,
        key,
        num_draws=2**15,
    )
    assert report.right_limit is right, report
    assert report.duration > 0.5 and report.memory.max() < 0.6


def test_a_small_error_is_suspicious_and_then_found(key):
    """Noise that adds a twentieth to the temperature: z^2 is off by 0.05 / sqrt(2) of its sd."""
    wrong = verify(lambda h: ex.sghmc(ex.NoisyGradient(LINE, 0.2 / h), h, 2.0), LINE, key=key)
    assert wrong.right_limit is False and 2**18 <= wrong.num_draws <= 2**22, wrong


def test_steps_are_halved_where_the_limit_is_not_resolved(key):
    """A coefficient that varies faster than the target: steps of the target's time are too long."""
    recipe = ex.Recipe(lambda z: {"position": ex.Diagonal(1.5 + jnp.sin(2.0 * z["position"]))})

    def kernel(h):
        return ex.euler_maruyama(recipe, EXACT, h)

    report = verify(kernel, LINE, key=key, tolerance=0.05)
    assert report.right_limit is not False and report.step_sizes.max() < 0.25, report
    given = (0.05, 0.1, 0.2, 0.4)
    report = verify(kernel, LINE, key=key, step_sizes=given, tolerance=0.01)
    assert report.right_limit is None and report.step_sizes.tolist() == list(given)


def test_a_duration_too_short_for_the_law_is_told(key):
    """After 0.02 of the time in which SGLD forgets, hardly any error of its law has built up."""
    steps = (0.0025, 0.005, 0.01)
    report = check(
        lambda h: ex.sgld(EXACT, h), LINE, key, num_draws=2**11, step_sizes=steps, duration=0.02
    )
    assert report.right_limit and report.stationary_resolution > 5 * report.resolution, report
    assert "the start is hardly forgotten" in str(report)


def test_the_share_of_an_error_that_has_built_up(key):
    """An AR(1) process of variance 1 + e has E x^2 - 1 = e (1 - r(x^2)) after the duration."""
    report = check(lambda h: Walker(float(np.exp(-h))), LINE, key, num_draws=2**15)
    exact = np.exp(-np.array([1.0, 2.0]) * report.duration)
    np.testing.assert_allclose(report.memory[:2], exact, atol=0.05)
    assert report.resolution < report.stationary_resolution < 2.5 * report.resolution


H = np.array([0.05, 0.1, 0.2, 0.4])


def biases(columns, error):
    value = np.stack(columns, axis=1)
    return kernel_report.Bias(value, np.full(value.shape, error))


def test_limits_and_orders_of_exact_powers():
    right, wrong = 0.3 * H + 0.2 * H**2, 0.5 + 0.3 * H - 0.1 * H**3
    value, error = kernel_report.limit(H, biases([right, wrong], 1e-4))
    np.testing.assert_allclose(value, [0.0, 0.5], atol=2e-3)
    assert abs(value[0]) < 5.0 * error[0] and value[1] > 20.0 * error[1]
    value, error = kernel_report.order(H, biases([0.7 * H, -0.7 * H**2, 0.0 * H], 1e-4))
    np.testing.assert_allclose(value[:2], [1.0, 2.0], atol=1e-6)
    assert np.isnan(value[2]) and np.isnan(error[2])


def test_a_curve_far_from_its_limit_is_no_finding():
    """e^(20 h) - 1 vanishes at 0, though a cubic through it does not."""
    value, error = kernel_report.limit(H, biases([np.expm1(20.0 * H)], 1e-4))
    assert abs(value[0]) > 1.0 and abs(value[0]) < 5.0 * error[0]


def test_the_standard_errors_of_limits_cover(x64):
    """1,000 noisy curves with the limit 0: the scores are standard normal or smaller."""
    noise = 0.01 * np.random.default_rng(0).normal(size=(4, 1000))
    for curve in (0.0 * H, 0.1 * H, 0.3 * H - 0.5 * H**2):
        value, error = kernel_report.limit(H, biases(list((curve[:, None] + noise).T), 0.01))
        assert np.std(value / error) < 1.15 and abs(np.mean(value / error)) < 0.8


def test_too_few_draws_decide_nothing(key):
    report = check(lambda h: ex.sgld(EXACT, h), LINE, key, num_draws=200, tolerance=0.1)
    assert report.right_limit is None and not report.ok and report.resolution > 0.1
    assert str(report).startswith("Undecided")


class Walker:
    """A kernel of another make: exact, no Info; every `step` is exact for N(0, 1)."""

    def __init__(self, decay):
        self.decay = decay

    def init(self, key, position):
        return ex.State(position, {}, None, None, jnp.int32(0))

    def step(self, key, state):
        noise = jax.random.normal(key, state.position.shape)
        x = self.decay * state.position + np.sqrt(1.0 - self.decay**2) * noise
        return ex.State(x, {}, None, None, state.step + 1), None


def test_a_kernel_of_another_make_and_functions_of_the_user(key):
    functions = {"sign": lambda x: jnp.sign(x[0]), "fourth": lambda x: x[0] ** 4}
    report = check(lambda h: Walker(float(np.exp(-h))), LINE, key, functions=functions)
    assert report.ok and report.functions == ("sign", "fourth") and report.order is None
    assert [row.function for row in report.table] == 4 * ["sign"] + 4 * ["fourth"]
    assert "Too little bias is seen for an order." in str(report)


def test_steps_that_diverge_are_left_out(key):
    kernel, steps = lambda h: ex.sgld(WELL, h), (0.01, 0.02, 0.04, 4.0)
    well = TARGETS["double well"]
    report = check(kernel, well, key, step_sizes=steps, duration=40.0, num_draws=128, tolerance=9.0)
    assert report.diverged == 4.0 and report.step_sizes.tolist() == [0.01, 0.02, 0.04]
    assert "The kernel diverged at step size 4; it and larger" in str(report)
    with pytest.raises(ValueError, match="not finite at step size 4.*Try smaller"):
        check(kernel, well, key, step_sizes=(4.0, 8.0, 16.0), duration=80.0, num_draws=128)


class Fleeing(Walker):
    """From the second step on a number is infinite, not NaN."""

    def step(self, key, state):
        return ex.State(1e30 * state.position, {}, None, None, state.step + 1), None


def test_infinite_numbers_have_no_part_in_arithmetic(key):
    def kernel(h):
        return Fleeing(1.0) if h > 1.0 else Walker(float(np.exp(-h)))

    square, steps = {"square": lambda x: x[0] ** 2}, (0.1, 0.2, 0.4, 2.0)
    report = check(kernel, LINE, key, step_sizes=steps, duration=4.0, functions=square)
    assert report.ok and report.diverged == 2.0
    assert "diverged at step size 2;" in report.verdict


BAD = [
    ({"step_sizes": (0.1, 0.2)}, ValueError, "step_sizes must be three or more"),
    ({"step_sizes": (0.1, 0.2, 0.3), "duration": 0.5}, ValueError, "whole number of steps"),
    ({"functions": {}}, ValueError, "functions is empty"),
    ({"functions": {"x": lambda x: jnp.stack([x, x])}}, ValueError, "must return one number"),
    ({"functions": {"one": lambda x: 1.0}}, ValueError, "does not move|must vary"),
    ({"functions": [abs]}, TypeError, "functions must map names"),
    ({"num_draws": 10}, ValueError, "num_draws must be at least"),
    ({"num_draws": 1e4}, TypeError, "num_draws must be an integer"),
    ({"budget": 0.0}, ValueError, "budget must be positive and below 1"),
    ({"tolerance": 0.0}, ValueError, "tolerance must be positive"),
    ({"temperature": -1.0}, ValueError, "temperature must be positive"),
]


@pytest.mark.parametrize("options, error, words", BAD)
def test_bad_arguments(options, error, words, key):
    with pytest.raises(error, match=words):
        check(lambda h: ex.sgld(EXACT, h), LINE, key, **{"num_draws": 128, **options})


def test_bad_kernels_and_targets(key):
    with pytest.raises(TypeError, match="make_kernel must be a function"):
        verify(ex.sgld(EXACT, 0.1), LINE, key=key)
    with pytest.raises(TypeError, match="target must be one of ergodax.targets"):
        verify(lambda h: ex.sgld(EXACT, h), lambda x: x, key=key)
    with pytest.raises(TypeError, match="kernel must have the methods"):
        verify(lambda h: None, LINE, key=key)
    with pytest.raises(ValueError, match="the kernel does not move"):
        check(lambda h: Walker(1.0), LINE, key, num_draws=128)
