"""Covariance-controlled adaptive Langevin dynamics, published and by splitting.

With a heavy thermostat zeta stands still where the mean of what D adds to it is zero, and the
rest of the step is linear on a Gaussian: the law is exact, and so is its order in h.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import root_scalar

import ergodax as ex
from ergodax.sampler.thermostat import ccadl
from ergodax.verify import Axis, stationary_law

from . import normals, sampled, theory
from .problems import line

# --- The equation ----------------------------------------------------------------------------

D, T, A, MU, H = 3, 0.5, 0.8, 1.7, 0.3
MASS = np.array([[2.0, 0.4, 0.0], [0.4, 1.0, 0.2], [0.0, 0.2, 1.5]])


def potential(x):
    return jnp.sum(x**4) / 4.0 + 0.3 * x[0] * x[1] + 0.2 * x[2]


def covariance(x):
    """V of the gradient; it does not commute with the mass."""
    column = jnp.stack([jnp.sin(x[0]), x[1], 1.0 + x[2]])
    return column[:, None] * column[None, :] + jnp.diag(1.0 + x**2)


def energy(z):
    kinetic = 0.5 * z["r"] @ jnp.linalg.solve(jnp.asarray(MASS), z["r"])
    return potential(z["x"]) + kinetic + 0.5 * MU * (z["zeta"] - A) ** 2


def equation(share):
    """Drift and diffusion, with `share` h V M^-1 / T for the friction against the noise."""

    def drift(z):
        velocity = jnp.linalg.solve(jnp.asarray(MASS), z["r"])
        drag = share * H / T * covariance(z["x"]) @ velocity
        force = -eqx.filter_grad(potential)(z["x"])
        return {
            "x": velocity,
            "r": force - drag - z["zeta"] * z["r"],
            "zeta": (z["r"] @ velocity - D * T) / MU,
        }

    def diffusion(z):
        block = A * jnp.asarray(MASS) + 0.5 * H / T * covariance(z["x"])
        return jnp.zeros((2 * D + 1, 2 * D + 1)).at[:D, :D].set(block)

    return drift, diffusion


@pytest.mark.parametrize("share, right", [(0.5, True), (1.0, False)])
def test_the_equation_leaves_the_target_invariant(share, right):
    """Raveled, a state is (r, x, zeta)."""
    rng = np.random.default_rng(0)
    points = {
        "x": rng.normal(size=(9, D)),
        "r": rng.normal(size=(9, D)),
        "zeta": rng.normal(size=9),
    }
    report = ex.verify.sde(*equation(share), energy, points, temperature=T)
    assert report.ok == right, report


# --- One step against its definition ---------------------------------------------------------


@pytest.mark.parametrize("scheme", ["euler", "splitting"])
def test_a_step_is_what_it_says(scheme, x64):
    rng = np.random.default_rng(1)
    root = rng.normal(size=(D, D))
    v, precision = root @ root.T, np.diag([1.0, 2.0, 0.5])
    gradient = ex.NoisyGradient(ex.targets.gaussian(np.zeros(D), np.linalg.inv(precision)), v)
    kernel = ccadl(gradient, H, A, mass=MASS, temperature=T, thermal_mass=MU, scheme=scheme)
    x, r, zeta = rng.normal(size=D), rng.normal(size=D), 0.6
    xi, eta = rng.normal(size=(2, D))
    state = normals.start(kernel, x)
    auxiliary = {"momentum": jnp.asarray(r), "thermostat": jnp.asarray(zeta)}
    state = eqx.tree_at(lambda s: s.auxiliary, state, auxiliary)
    with normals.dealt(jnp.asarray(np.concatenate([xi, eta]))):
        new, info = kernel.step(normals.key(), state)

    inverse = np.linalg.inv(MASS)
    noise = np.asarray(gradient.covariance.sqrt_mv(jnp.asarray(xi)))
    fresh = np.asarray(kernel.mass.sqrt_mv(jnp.asarray(eta)))
    excess = lambda r: (r @ inverse @ r - D * T) / MU  # noqa: E731
    if scheme == "euler":
        x = x + H * inverse @ r
        drag = H**2 / (2.0 * T) * v @ inverse @ r
        spread = np.sqrt(2.0 * A * T * H) * fresh
        r = r - H * (precision @ x + noise) - drag - H * zeta * r + spread
        zeta = zeta + H * excess(r)
    else:
        k = H**2 / (4.0 * T) * v @ inverse
        half = -0.5 * H * (precision @ x + noise)
        r = (np.eye(D) - k) @ np.linalg.solve(np.eye(D) + k, r + half) + half
        x = x + 0.5 * H * inverse @ r
        zeta = zeta + 0.5 * H * excess(r)
        r = np.exp(-zeta * H) * r + np.sqrt(A * T * (1 - np.exp(-2 * zeta * H)) / zeta) * fresh
        zeta = zeta + 0.5 * H * excess(r)
        x = x + 0.5 * H * inverse @ r
    np.testing.assert_allclose(new.position, x, rtol=1e-12)
    np.testing.assert_allclose(new.auxiliary["momentum"], r, rtol=1e-12)
    np.testing.assert_allclose(new.auxiliary["thermostat"], zeta, rtol=1e-12)
    assert info.kinetic_temperature == pytest.approx(r @ inverse @ r / D, rel=1e-12)


# --- A heavy thermostat ----------------------------------------------------------------------


class Held(ex.Kernel):
    """A kernel whose thermostat stays at one value."""

    kernel: Any
    zeta: Any

    def init(self, key, position):
        return self.shown(self.kernel.init(key, position))

    def shown(self, state):
        auxiliary = {"momentum": state.auxiliary["momentum"]}
        return ex.State(state.position, auxiliary, state.gradient, state.estimate, state.step)

    def step(self, key, state):
        zeta = jnp.asarray(self.zeta, state.position.dtype)
        auxiliary = {**state.auxiliary, "thermostat": zeta}
        new, info = self.kernel.step(
            key, ex.State(state.position, auxiliary, state.gradient, state.estimate, state.step)
        )
        return self.shown(new), info


def held(make, gradient, h, zeta):
    return Held(make(gradient, h, thermal_mass=1e300), jnp.asarray(zeta, float))


def seen_by_the_thermostat(euler, r2, h, zeta):
    """The mean of r^2 where D looks, at T = A = m = 1, from E r^2 at the end of a step.

    The splittings look before O and after it; O leaves r^2 c^2 + q of r^2.
    """
    if euler:
        return r2
    c2 = np.exp(-2.0 * zeta * h)
    return 0.5 * (r2 + (r2 - (1.0 - c2) / zeta) / c2)


def heavy(second_moment, euler, h):
    """The zeta at which a heavy thermostat stands still.

    Args:
        second_moment: of r at the end of a step, as a function of zeta.
        euler: whether D looks there.
        h: the step size.
    """
    balance = lambda zeta: (  # noqa: E731
        seen_by_the_thermostat(euler, second_moment(zeta), h, zeta) - 1.0
    )
    return float(root_scalar(balance, bracket=(0.3, 6.0), xtol=1e-12).root)


MAKERS = {  # the last is BADODAB but for where a step begins
    "euler": lambda gradient, h, **options: ccadl(gradient, h, **options),
    "splitting": lambda gradient, h, **options: ccadl(gradient, h, scheme="splitting", **options),
    "sgnht": lambda gradient, h, **options: ex.sgnht(gradient, h, scheme="BADODA", **options),
}


def on_a_gaussian(name, h, s2):
    """The resting zeta and Var x on N(0, 1) with noise s2."""
    gradient = ex.NoisyGradient(line(), s2)
    law = lambda zeta: stationary_law(  # noqa: E731
        held(MAKERS[name], gradient, h, zeta), np.zeros(1)
    )
    zeta = heavy(lambda zeta: law(zeta).cov("momentum")[0, 0], name == "euler", h)
    return zeta, law(zeta).cov()[0, 0]


@pytest.mark.parametrize("s2", [1e-30, 10.0])
@pytest.mark.parametrize("h", [0.1, 0.2])
def test_the_published_scheme_has_the_closed_form(h, s2, x64):
    """4 - h^2 - sqrt((4 - h^2)^2 - 16 h (2 A + h s2)), over 4 h, is zeta + h s2 / 2."""
    b = 4.0 - h**2
    friction = (b - np.sqrt(b**2 - 16.0 * h * (2.0 + h * s2))) / (4.0 * h)
    zeta, variance = on_a_gaussian("euler", h, s2)
    assert zeta == pytest.approx(friction - 0.5 * h * s2, abs=1e-9)
    assert variance == pytest.approx(1.0 - 0.5 * h * friction, abs=1e-9)


def order(bias, h):
    return np.log2(abs(bias(h) / bias(0.5 * h)))


@pytest.mark.parametrize("s2", [1e-30, 10.0])
def test_the_published_scheme_is_first_order(s2, x64):
    bias = lambda h: on_a_gaussian("euler", h, s2)[1] - 1.0  # noqa: E731
    assert order(bias, 0.02) == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("h", [0.1, 0.4])
def test_the_splitting_on_a_gaussian(h, x64):
    """Exact without noise; with it, better than second order."""
    zeta, variance = on_a_gaussian("splitting", h, 1e-30)
    assert zeta == pytest.approx(1.0, abs=1e-9) and variance == pytest.approx(1.0, abs=1e-9)
    assert abs(on_a_gaussian("splitting", h, 10.0)[1] - 1.0) < h**4


@pytest.mark.parametrize("h", [0.1, 0.2])
def test_sgnht_absorbs_an_even_noise_on_a_gaussian(h, x64):
    """O is that of the temperature A T / zeta, and the kicks bring the rest; see `theory.baoab`."""
    s2 = 10.0
    zeta, variance = on_a_gaussian("sgnht", h, s2)
    assert zeta == pytest.approx(1.0 + 0.5 * h * s2, abs=10.0 * h**3)
    mode = theory.Mode(1.0, 1.0, zeta, h, 1.0 / zeta, s2)
    assert variance == pytest.approx(theory.baoab(mode)[0], abs=1e-9)
    assert variance == pytest.approx(1.0, abs=3.0 * h**3)


# --- The double well, with noise that depends on the position --------------------------------

FOURTH = 2.04179729648716  # E x^4 for U = (x^2 - 1)^2 / 4
PHASE = [Axis(-3.4, 3.4, 49), Axis(-6.5, 6.5, 45)]


def noisy(loudness=1.0):
    variance = lambda x: loudness * (1.0 - jnp.cos(1.0 + 5.0 * x)) ** 2  # noqa: E731
    return ex.NoisyGradient(ex.targets.double_well(0.25), variance)


def bias_on_the_double_well(name, gradient, h, high=1.1):
    """Of E x^4 where a heavy thermostat stands still: by interpolation of zeta in [1, high]."""

    def at(zeta):
        law = stationary_law(
            held(MAKERS[name], gradient, h, zeta), np.zeros(1), grid=PHASE, num_nodes=7
        )
        r2 = law.mean(lambda z: z[1] ** 2)
        seen = seen_by_the_thermostat(name == "euler", r2, h, zeta)
        return seen - 1.0, law.mean(lambda z: z[0] ** 4)

    (hot, a), (cold, b) = at(1.0), at(high)
    return a + hot / (hot - cold) * (b - a) - FOURTH


@pytest.mark.parametrize("scheme, h, expected", [("euler", 0.05, 1), ("splitting", 0.125, 2)])
def test_order_on_the_double_well(scheme, h, expected, x64):
    gradient = noisy()
    bias = lambda h: bias_on_the_double_well(scheme, gradient, h)  # noqa: E731
    assert order(bias, h) == pytest.approx(expected, abs=0.2)


def test_without_the_covariance_one_zeta_does_not_absorb_an_uneven_noise(x64):
    """What SGNHT leaves of it at a step where the discretisation itself is hardly seen."""
    gradient, h = noisy(4.0), 0.0625
    left = abs(bias_on_the_double_well("sgnht", gradient, h, 1.2))
    ours = abs(bias_on_the_double_well("splitting", gradient, h))
    assert left > 3.0 * ours and left > 1e-3


# --- Sampled, with a thermostat that moves ---------------------------------------------------


@pytest.mark.slow
def test_the_thermostat_rests_at_a_whatever_the_noise(key):
    """Uneven noise in three dimensions, which one zeta without the covariance can't absorb."""
    target = ex.targets.gaussian(np.zeros(3), np.array([1.0, 2.0, 0.5]))
    noise = np.array([1.0, 20.0, 5.0], np.float32)
    kernel = ccadl(
        ex.NoisyGradient(target, noise), 0.1, mass=1.5, temperature=2.0, scheme="splitting"
    )
    start = np.zeros(3, np.float32)
    x, auxiliary = sampled.run_watched(kernel, start, 30_000, key)
    sampled.assert_mean(x**2 / (2.0 * np.array([1.0, 2.0, 0.5])), 1.0, 0.06)
    sampled.assert_mean(auxiliary["thermostat"], 1.0, 0.03)


def test_the_first_momentum_has_the_first_temperature(x64):
    """A schedule that is at 4 at step 0 alone."""
    gradient = ex.NoisyGradient(line(), 1.0)
    kernels = [
        ccadl(gradient, 0.1, temperature=t)
        for t in (lambda step: jnp.where(step == 0, 4.0, 1.0), 4.0)
    ]
    momenta = [
        kernel.init(jax.random.key(0), jnp.zeros(1)).auxiliary["momentum"] for kernel in kernels
    ]
    np.testing.assert_allclose(momenta[0], momenta[1], rtol=1e-12)
