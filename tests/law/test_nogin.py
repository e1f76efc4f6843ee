"""The noisy gradient integrator: exact on Gaussians whatever the noise, second order elsewhere.

The masses, covariances and temperatures do not commute or equal one: with M = I or T = 1 the
printed form of Algorithm 2 would pass, and with diagonal matrices so would the wrong order.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm

import ergodax as ex
from ergodax import tree
from ergodax.sampler.underdamped import nogin
from ergodax.verify import Axis, affine_step, stationary_law
from ergodax.verify.stationary_law import DealtStep

from . import normals, theory
from .problems import line

pytestmark = pytest.mark.usefixtures("x64")


def definite(rng, d):
    root = 0.5 * rng.normal(size=(d, d)) + np.eye(d)
    return root @ root.T


class Setting(NamedTuple):
    """A Gaussian target of covariance T `spread`, as T = 1 sees it, a mass and a noise."""

    spread: np.ndarray
    mass: np.ndarray
    noise: np.ndarray
    given: dict[str, Any]  # mass and noise as a user gives them

    @classmethod
    def of(cls, d: int, mass: str = "matrix", noise: str = "dense") -> "Setting":
        rng = np.random.default_rng(d)
        spread, factor = definite(rng, d), 3.0 * rng.normal(size=(2, d))
        vector, matrix = rng.uniform(0.5, 3.0, d), definite(rng, d)
        masses = {"number": 1.7, "vector": vector, "matrix": matrix}
        low_rank = ex.LowRank(jnp.asarray(factor), 0.6)
        noises = {"scalar": 7.0, "diagonal": 9.0 * vector[::-1], "dense": 5.0 * definite(rng, d)}
        given = {"mass": masses[mass], "noise": {**noises, "low rank": low_rank}[noise]}
        dense = 0.6 * np.eye(d) + factor.T @ factor
        if noise != "low rank":
            dense = given["noise"] if noise == "dense" else given["noise"] * np.eye(d)
        return cls(spread, matrix if mass == "matrix" else given["mass"] * np.eye(d), dense, given)

    @property
    def gradient(self):
        d = len(self.spread)
        target = ex.targets.gaussian(np.arange(1.0, d + 1.0), self.spread)
        return ex.NoisyGradient(target, self.given["noise"])

    def step(self, fraction: float) -> float:
        """This fraction of the largest stable step, h^2 lambda_max(M^-1 L) < 4."""
        stiffness = np.linalg.inv(self.mass) @ np.linalg.inv(self.spread)
        return fraction * 2.0 / np.sqrt(np.abs(np.linalg.eigvals(stiffness)).max())

    def kernel(self, h: float, t: float, gamma: float = 0.7):
        return nogin(self.gradient, h, gamma, mass=self.given["mass"], temperature=t)


def assert_exact(kernel, p: Setting, h: float, t: float):
    law = stationary_law(kernel, np.zeros(len(p.spread)))
    inverse = np.linalg.inv(p.mass)
    shadow = inverse - 0.25 * h**2 * inverse @ np.linalg.inv(p.spread) @ inverse
    theory.assert_covariance(law.cov(), t * p.spread)
    theory.assert_covariance(law.cov("momentum"), t * np.linalg.inv(shadow))
    np.testing.assert_allclose(law.cov("position", "momentum"), 0.0, atol=1e-10)
    centre = np.arange(1.0, len(p.spread) + 1.0)
    np.testing.assert_allclose(law.mean[law.rows["position"]], centre, atol=1e-10)


STRUCTURES = [
    *((3, mass, noise) for mass in ("number", "vector", "matrix")
      for noise in ("scalar", "diagonal", "dense", "low rank")),
    (1, "number", "scalar"), (5, "matrix", "dense"), (5, "vector", "low rank"),
]  # fmt: skip


@pytest.mark.parametrize("d, mass, noise", STRUCTURES)
def test_exact_on_a_gaussian(d, mass, noise):
    p = Setting.of(d, mass, noise)
    for t, fraction in ((1.0, 0.3), (1 / 2.7, 0.9)):
        h = p.step(fraction)
        assert_exact(p.kernel(h, t), p, h, t)


def test_known_numbers():
    """Computed apart from this library, from the matrices of Algorithm 2."""
    spread = np.array([[1.0, 0.3], [0.3, 0.5]])
    noise = np.array([[3.0, -1.0], [-1.0, 2.0]])
    gradient = ex.NoisyGradient(ex.targets.gaussian(np.zeros(2), spread), noise)
    kernel = nogin(gradient, 0.6, 0.7, mass=np.array([[2, 0.4], [0.4, 1]]), temperature=0.5)
    law = stationary_law(kernel, np.zeros(2))
    theory.assert_covariance(law.cov(), 0.5 * spread)
    momentum = [[1.0645473929, 0.1487109905], [0.1487109905, 0.6526458616]]
    np.testing.assert_allclose(law.cov("momentum"), momentum, atol=1e-10)


def test_stable_up_to_its_limit_and_no_further():
    p = Setting.of(3)
    for fraction, stable in ((0.999, True), (1.001, False)):
        step = affine_step(p.kernel(p.step(fraction), 1.0), np.zeros(3))
        assert (step.radius < 1.0) == stable


# --- Algorithm 2 line by line, and what can go wrong in it -----------------------------------


class Published(ex.Kernel):
    """Both kicks and the friction between them as the paper writes them, in dense matrices."""

    right: Any
    mass: jax.Array
    noise: jax.Array
    fault: str = eqx.field(static=True)

    def init(self, key, position):
        return self.right.init(key, position)

    def friction(self, h, t):
        """The K of (I - K) (I + K)^-1, without its part of gamma."""
        inverse = jnp.linalg.inv(self.mass)
        return (
            h**2
            / 4.0
            * {
                "as printed": t * self.mass @ self.noise,
                "in the other order": inverse @ self.noise / t,
                "no temperature": self.noise @ inverse,
                "no covariance": 0.0 * self.noise,
            }.get(self.fault, self.noise @ inverse / t)
        )

    def kick(self, key, x, h, t, damping):
        estimate, _ = self.right.gradient.estimate(key, None, x)
        noise = self.right.mass.sqrt_mv(tree.normal_like(key, x))
        return -0.5 * h * estimate.gradient, jnp.sqrt(damping * t) * noise

    def step(self, key, state):
        h, t = self.right.step_size(state.step), self.right.temperature(state.step)
        damping = jnp.tanh(0.5 * self.right.friction(state.step) * h)
        r, one = state.auxiliary["momentum"], jnp.eye(len(self.mass))
        x = state.position + 0.5 * h * self.right.mass.solve(r)
        force, noise = self.kick(key, x, h, t, damping)
        k = damping * one + self.friction(h, t)
        r = (one - k) @ jnp.linalg.solve(one + k, r + force + noise)
        if self.fault.startswith("redrawn"):
            again = self.kick(key, x, h, t, damping)
            force, noise = (again[0], noise) if "force" in self.fault else (force, again[1])
        r = r + force + noise
        x = x + 0.5 * h * self.right.mass.solve(r)
        return ex.State(x, {"momentum": r}, None, None, state.step + 1), None


def published(p: Setting, h: float, t: float, fault: str = "none"):
    return Published(p.kernel(h, t), jnp.asarray(p.mass), jnp.asarray(p.noise), fault)


def test_the_step_is_that_of_the_paper():
    p, t = Setting.of(3), 1 / 2.7
    h = p.step(0.7)
    ours = affine_step(p.kernel(h, t), np.zeros(3))
    theirs = affine_step(published(p, h, t), np.zeros(3))
    for a, b in zip(ours[:3], theirs[:3], strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12 * np.abs(b).max())


FAULTS = (
    "as printed", "in the other order", "no temperature", "no covariance",
    "redrawn force", "redrawn noise",
)  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_rejected(fault):
    p, t = Setting.of(3), 1 / 2.7
    h = p.step(0.3)
    with pytest.raises(AssertionError):
        assert_exact(published(p, h, t, fault), p, h, t)


# --- Noise that depends on the position ------------------------------------------------------


def variance(x):
    return (1.0 - jnp.cos(1.0 + 5.0 * x)) ** 2


MOMENTS = (lambda x, r: x**2, lambda x, r: x**4, lambda x, r: r**2)


MIXED = (*MOMENTS, lambda x, r: x * r, lambda x, r: x**2 * r**2, lambda x, r: x**3 * r)


def change_of_moments(kernel, h):
    """E f(after a step) - E f for the law that the theory says is invariant, by quadrature."""
    x, u = np.meshgrid(np.linspace(-8.0, 8.0, 121), np.linspace(-8.0, 8.0, 121))
    weights = np.exp(-0.5 * (x**2 + u**2)).ravel()
    points = np.stack([x.ravel(), u.ravel() / np.sqrt(1.0 - 0.25 * h**2)], axis=1)
    node, mass = np.polynomial.hermite_e.hermegauss(3)  # exact to degree 5 in a step's noise
    nodes = np.stack(np.meshgrid(node, node), axis=-1).reshape(-1, 2)
    joint = weights[:, None] * np.outer(mass, mass).ravel()[None]
    step = DealtStep(kernel, jnp.zeros(1), kept=False)
    each = jax.vmap(lambda z, xi: step(normals.key(), z, xi), (None, 0))
    after = np.asarray(jax.jit(jax.vmap(each, (0, None)))(points, nodes))
    mean = lambda f, z: np.sum(joint * f(z[..., 0], z[..., 1])) / joint.sum()  # noqa: E731
    return np.array([mean(f, after) - mean(f, points[:, None]) for f in MIXED])


@pytest.mark.parametrize("h", [0.5, 1.0])
def test_exact_on_a_gaussian_with_noise_that_depends_on_the_position(h):
    """A step leaves N(0, 1) for x, and N(0, 1 / (1 - h^2 / 4)) for r, as they are."""
    noisy = ex.NoisyGradient(line(), variance)
    np.testing.assert_allclose(change_of_moments(nogin(noisy, h), h), 0.0, atol=1e-10)
    constant = ex.KnownCovariance(noisy, 1.1)  # its mean, where the function belongs
    assert np.abs(change_of_moments(nogin(constant, h), h)).max() > 1e-2


WELL = {
    0.25: (1.02412633, 1.97354237, 1.03661269),
    0.125: (1.037576914, 2.025262933, 1.008483914),
}
FOURTH = 2.04179729648716  # E x^4 for U = (x^2 - 1)^2 / 4
PHASE = [Axis(-3.4, 3.4, 49), Axis(-6.5, 6.5, 45)]


def on_the_double_well(h):
    kernel = nogin(ex.NoisyGradient(ex.targets.double_well(0.25), variance), h)
    law = stationary_law(kernel, np.zeros(1), grid=PHASE, num_nodes=7)
    return [law.mean(lambda z, f=moment: f(*z)) for moment in MOMENTS]


@pytest.fixture(scope="module")
def laws():
    with jax.enable_x64(True):
        return {h: on_the_double_well(h) for h in WELL}


@pytest.mark.parametrize("h", WELL)
def test_known_numbers_on_the_double_well(laws, h):
    np.testing.assert_allclose(laws[h], WELL[h], atol=1e-5)


def test_second_order_on_the_double_well(laws):
    bias = [laws[h][1] - FOURTH for h in WELL]
    assert np.log2(bias[0] / bias[1]) == pytest.approx(2.0, abs=0.1)


# --- A covariance from the batch that gives the gradient -------------------------------------


class OneBatch(ex.GradientEstimator):
    """Skewed noise n of variance s^2, and `scale` n^2 for its covariance: as noisy as n itself."""

    target: Any
    scale: float

    def init(self, key, position):
        return None

    def estimate(self, key, state, position):
        potential, gradient = self.target.value_and_gradient(position)
        xi = tree.normal_like(key, position)
        noise = (xi**2 - 1.0 + 2.0 * xi) / jnp.sqrt(6.0)
        covariance = ex.Diagonal(self.scale * noise**2)
        return ex.Estimate(gradient + noise, potential, covariance), state


@pytest.mark.parametrize("scale, second", [(1.0, True), (1.5, False)])
def test_an_unbiased_covariance_from_the_same_batch_keeps_the_order(scale, second):
    """One that is half again too large does not: the control."""

    def bias(h):
        kernel = nogin(OneBatch(line(), scale), h)
        law = stationary_law(kernel, np.zeros(1), grid=2 * [Axis(-6.5, 6.5, 41)], num_nodes=8)
        return law.mean(lambda z: z[0] ** 2) - 1.0

    assert (np.log2(abs(bias(0.2) / bias(0.1))) > 1.9) == second


# --- The friction that the noise makes -------------------------------------------------------


def friction_of(p: Setting, h: float, t: float, gamma: float = 0.7):
    """What a step of a free particle multiplies its momentum with."""
    free = ex.NoisyGradient(ex.Target(lambda x: 0.0 * jnp.sum(x)), p.given["noise"])
    kernel = nogin(free, h, gamma, mass=p.given["mass"], temperature=t)
    step = affine_step(kernel, np.zeros(len(p.spread)))
    return step.matrix[np.ix_(step.rows["momentum"], step.rows["momentum"])]


def test_the_continuous_limit():
    """exp(-h mu), mu = gamma I + (h / 2T) V M^-1, up to h^4."""
    p, t, gamma = Setting.of(3), 1 / 2.7, 0.7

    def error(h, factor=1.0):
        mu = gamma * np.eye(3) + factor * h / (2.0 * t) * p.noise @ np.linalg.inv(p.mass)
        return np.abs(friction_of(p, h, t, gamma) - expm(-h * mu)).max()

    assert np.log2(error(0.01) / error(0.005)) == pytest.approx(4.0, abs=0.1)
    # With mu = gamma + h V / 4T it would be of order h^2.
    assert np.log2(error(0.01, 0.5) / error(0.005, 0.5)) == pytest.approx(2.0, abs=0.1)


@pytest.mark.parametrize("size", [1e3, 1e9])
def test_no_noise_makes_the_kick_unstable(size):
    p = Setting.of(3)
    loud = p._replace(given={**p.given, "noise": size * p.given["noise"]})
    values = np.linalg.eigvals(friction_of(loud, 0.5, 1 / 2.7))
    assert np.all(np.abs(np.imag(values)) < 1e-12) and np.all(np.abs(values) < 1.0)
    h = p.step(0.9)
    law = stationary_law(loud.kernel(h, 1 / 2.7), np.zeros(3))
    theory.assert_covariance(law.cov(), p.spread / 2.7, 1e-4)


AUTOCORRELATION = [(0.5, 6.0, 35.5783958), (0.25, 20.0, 399.842438), (1.0, 8.0, 63.9530906)]


@pytest.mark.parametrize("h, c, known", AUTOCORRELATION)
def test_autocorrelation_of_the_slow_mode(h, c, known):
    """(1 + e) / (1 - e) for the largest eigenvalue e, on N(0, 1) with V = c^2 and gamma = 0.

    About c^2 whatever h: the noise alone sets how far a step of x can lead.
    """
    kernel = nogin(ex.NoisyGradient(line(), c**2), h, 0.0)
    values = np.linalg.eigvals(affine_step(kernel, np.zeros(1)).matrix)
    largest = np.max(np.real(values))
    root = h * np.sqrt(h**2 * (c**4 + 4.0) - 16.0)
    closed = (8.0 + (c**2 - 2.0) * h**2 + root) / ((c**2 + 2.0) * h**2 - root)
    assert (1.0 + largest) / (1.0 - largest) == pytest.approx(closed, rel=1e-7)
    assert closed == pytest.approx(known, rel=1e-8)
