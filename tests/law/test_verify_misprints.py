"""The printed equations that are wrong are refuted, and what should stand there is proved.

Each case is a drift, a diffusion and a potential as one would type them from the page, in three
dimensions with matrices that do not commute, at points in general position.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex

D = 3
RNG = np.random.default_rng(7)
POINTS = RNG.standard_normal((12, D))
MOMENTA = RNG.standard_normal((12, D))
PAIRS = {"x": POINTS, "r": MOMENTA}
TRIPLES = {**PAIRS, "zeta": 0.7 + RNG.standard_normal(12)}
A, H = 0.7, 0.3  # injected friction, step size


def spd(seed):
    a = np.random.default_rng(seed).standard_normal((D, D))
    return jnp.asarray(a @ a.T / D + 0.3 * np.eye(D), "f8")


with jax.enable_x64(True):
    MASS, NOISE = spd(1), spd(2)
    INVERSE = jnp.linalg.inv(MASS)
EYE = np.eye(D)


def potential(x):
    """A quartic without symmetry."""
    return jnp.sum(x**4) / 4 + 0.3 * x[0] * x[1] - 0.4 * x[1] * x[2] + 0.2 * x[0]


force = jax.grad(potential)


def direction(x):
    return jnp.sin(x + 2.0 * jnp.roll(x, 1))


def root(x):
    """S = G^-1/2: symmetric, and all its entries depend on all coordinates."""
    s = direction(x)
    return jnp.eye(D) + 0.5 * s[:, None] * s[None]


def inverse_metric(x):
    return root(x) @ root(x)


def log_volume(x):
    """log |G|, by the determinant of I + s s^T / 2."""
    s = direction(x)
    return -2.0 * jnp.log(1.0 + 0.5 * s @ s)


def divergence(matrix, x):
    return jnp.einsum("ijj->i", jax.jacfwd(matrix)(x))


def noise(x):
    """The covariance of the gradient's noise: it depends on the position."""
    return NOISE + jnp.diag(x**2)


def kinetic(z, inverse=EYE):
    return potential(z["x"]) + 0.5 * z["r"] @ jnp.asarray(inverse) @ z["r"]


def on_momentum(z, block):
    """D = blockdiag(0, block), and 0 for a thermostat."""
    size = 2 * D + ("zeta" in z)
    # The order of the raveled tree: r, x, zeta.
    return jnp.zeros((size, size)).at[:D, :D].set(block)


class Case(NamedTuple):
    """Printed (wrong) or corrected (right): an equation and where to look at it."""

    drift: Any
    diffusion: Any
    energy: Any
    points: Any
    right: bool
    temperature: float = 1.0


# --- Ma, Chen and Fox ----------------------------------------------------------------------


def bracket(sign):
    """Eq. (6): -[(D + Q) grad H - Gamma]; printed with + Gamma inside the bracket."""
    gamma = lambda x: divergence(inverse_metric, x)  # noqa: E731
    return Case(
        lambda x: -(inverse_metric(x) @ force(x) + sign * gamma(x)),
        inverse_metric,
        potential,
        POINTS,
        sign < 0,
    )


def momentum_of_sgrhmc(div, friction):
    """Eq. (17): dr = -S grad U + div S - G^-1 r; printed with both signs turned."""

    def drift(z):
        x, r = z["x"], z["r"]
        dr = -root(x) @ force(x) + div * divergence(root, x) + friction * inverse_metric(x) @ r
        return {"x": root(x) @ r, "r": dr}

    right = (div, friction) == (1.0, -1.0)
    return Case(drift, lambda z: on_momentum(z, inverse_metric(z["x"])), kinetic, PAIRS, right)


def sghmc_on_its_own_noise(friction, spread):
    """The noise N(0, h^2 V) alone: D = h V / 2, and the friction that belongs to it."""

    def drift(z):
        dr = -force(z["x"]) - friction * H * noise(z["x"]) @ INVERSE @ z["r"]
        return {"x": INVERSE @ z["r"], "r": dr}

    return Case(
        drift,
        lambda z: on_momentum(z, spread * H * noise(z["x"])),
        lambda z: kinetic(z, INVERSE),
        PAIRS,
        friction == spread,
    )


def thermostat(weight=D / 2.0, rate=lambda z: 1.0, block=A, t=1.0):
    """The Nose-Hoover thermostat: H has (d / 2) (zeta - A)^2, d zeta = (r.r / d - T) dt."""

    def drift(z):
        x, r, zeta = z["x"], z["r"], z["zeta"]
        change = (r @ r / D - t) * rate(z)
        return {"x": r, "r": -force(x) - zeta * r, "zeta": change}

    return Case(
        drift,
        lambda z: on_momentum(z, block * jnp.eye(D)),
        lambda z: kinetic(z) + weight * (z["zeta"] - A) ** 2,
        TRIPLES,
        weight == D / 2.0 and block == A,
        t,
    )


def block_as_printed():
    """D = [[0, -I, 0], [0, A I, 0], [0, 0, 0]]: not even symmetric."""
    place = np.zeros((2 * D + 1, 2 * D + 1))
    place[:D, :D], place[D : 2 * D, :D] = A * EYE, -EYE
    return thermostat()._replace(diffusion=lambda z: jnp.asarray(place), right=False)


def determinant(factor, measure):
    """The corrections |G|^-1/2 sum over j of d_j (G^-1_ij |G|^1/2), once or twice.

    Twice, the remark on SGRLD says, is for another measure; in truth once is, and leaves
    exp(-U) |G|^1/2 invariant.
    """

    def drift(x):
        slope = inverse_metric(x) @ jax.grad(log_volume)(x)
        once = divergence(inverse_metric, x) + 0.5 * slope
        return -inverse_metric(x) @ force(x) + factor * once

    return Case(
        drift,
        inverse_metric,
        lambda x: potential(x) - measure * log_volume(x),
        POINTS,
        (factor, measure) == (1.0, 0.5),
    )


def gamma_of_q_alone(both):
    """Gamma = div(D + Q), not of the Hamiltonian part alone."""

    def q(x):
        s = 0.5 * jnp.sin(x)
        return jnp.outer(jnp.ones(D), s) - jnp.outer(s, jnp.ones(D))

    def total(x):
        return inverse_metric(x) + q(x)

    def drift(x):
        return divergence(total if both else q, x) - total(x) @ force(x)

    return Case(drift, inverse_metric, potential, POINTS, both)


# --- Matthews and Weare; Shang et al. ------------------------------------------------------


def nogin(beta, mass_in_position, friction):
    """dx = M^-1 r, mu = gamma I + (beta h / 2) V M^-1, noise sqrt(2 mu M / beta)."""

    def drift(z):
        x, r = z["x"], z["r"]
        mu = A * jnp.eye(D) + friction * noise(x) @ (INVERSE if mass_in_position else EYE)
        return {"x": (INVERSE if mass_in_position else EYE) @ r, "r": -force(x) - mu @ r}

    def diffusion(z):
        # As the noise acts whatever is printed: A M / beta injected, h V / 2 by the gradient.
        return on_momentum(z, A * MASS + 0.5 * beta * H * noise(z["x"]))

    right = mass_in_position and friction == 0.5 * beta * H
    energy = lambda z: kinetic(z, INVERSE)  # noqa: E731
    return Case(drift, diffusion, energy, PAIRS, right, 1.0 / beta)


def covariance_controlled(t, friction=0.5):
    """CC-ADL: dr = -grad U - (h / 2T) V M^-1 r - zeta r, injected 2 A T M and h V beside it."""
    mu = 1.3

    def drift(z):
        x, r, zeta = z["x"], z["r"], z["zeta"]
        v = INVERSE @ r
        dr = -force(x) - friction * H / t * noise(x) @ v - zeta * r
        return {"x": v, "r": dr, "zeta": (r @ v - D * t) / mu}

    return Case(
        drift,
        lambda z: on_momentum(z, A * MASS + 0.5 * H / t * noise(z["x"])),
        lambda z: kinetic(z, INVERSE) + 0.5 * mu * (z["zeta"] - A) ** 2,
        TRIPLES,
        friction == 0.5,
        t,
    )


# --- Claims about Riemannian samplers ------------------------------------------------------


def riemannian(volume, t=1.0):
    """H = U + r.G^-1 r / 2 + (T / 2) log|G|, which makes the marginal exp(-U / T)."""

    def hamiltonian(x, r, volume):
        return potential(x) + 0.5 * r @ inverse_metric(x) @ r + 0.5 * volume * log_volume(x)

    def drift(z):
        to_x, to_r = jax.grad(hamiltonian, (0, 1))(z["x"], z["r"], volume)
        return {"x": to_r, "r": -to_x - A * to_r}

    energy = lambda z: hamiltonian(z["x"], z["r"], t)  # noqa: E731
    friction = lambda z: on_momentum(z, A * jnp.eye(D))  # noqa: E731
    return Case(drift, friction, energy, PAIRS, volume == t, t)


def metric_in_q(gamma):
    """Q with blocks G^-1 and H with a unit mass: a sampler only with its Gamma."""

    def drift(z):
        x, r = z["x"], z["r"]
        return {
            "x": inverse_metric(x) @ r,
            "r": -inverse_metric(x) @ force(x) + gamma * divergence(inverse_metric, x) - A * r,
        }

    return Case(drift, lambda z: on_momentum(z, A * jnp.eye(D)), kinetic, PAIRS, gamma == 1.0)


CASES = {
    "sign of Gamma in the bracket, printed": bracket(1.0),
    "sign of Gamma in the bracket": bracket(-1.0),
    "Eq. 17, printed": momentum_of_sgrhmc(-1.0, 1.0),
    "Eq. 17": momentum_of_sgrhmc(1.0, -1.0),
    "D = h V, printed": sghmc_on_its_own_noise(1.0, 0.5),
    "D = h V / 2": sghmc_on_its_own_noise(0.5, 0.5),
    "(2/d)(zeta - A)^2, printed": thermostat(2.0 / D),
    "(d/2)(zeta - A)^2 at T = 1/2": thermostat(t=0.5),
    "D of the thermostat, printed": block_as_printed(),
    "d zeta with a factor r, printed": thermostat(rate=lambda z: z["r"][0])._replace(right=False),
    "determinant twice, other measure": determinant(2.0, 0.5),
    "determinant once, other measure": determinant(1.0, 0.5),
    "Gamma of Q alone, printed": gamma_of_q_alone(False),
    "Gamma of D + Q": gamma_of_q_alone(True),
    "NOGIN, printed": nogin(2.0, False, 0.5 * H),
    "NOGIN, printed, M in the position": nogin(2.0, True, 0.5 * H),
    "NOGIN": nogin(2.0, True, H),
    "CC-ADL, friction h V": covariance_controlled(0.5, 1.0),
    "CC-ADL": covariance_controlled(0.5),
    "RMHMC without the determinant": riemannian(0.0, 0.5),
    "RMHMC": riemannian(0.5, 0.5),
    "G^-1 in Q, printed": metric_in_q(0.0),
    "G^-1 in Q with Gamma": metric_in_q(1.0),
}


def both_signs_wrong(x, r):
    """R = 2 r.div S + 2 tr G^-1 - 2 r.G^-1 r."""
    g = inverse_metric(x)
    return 2 * (r @ divergence(root, x) + jnp.trace(g) - r @ g @ r)


def sign_wrong(x, r):
    """R = -2 (sum over i, j of d_i d_j D_ij - Gamma . grad U)."""
    gamma = lambda x: divergence(inverse_metric, x)  # noqa: E731
    return -2 * (jnp.trace(jax.jacfwd(gamma)(x)) - gamma(x) @ force(x))


RESIDUALS = {
    "Eq. 17, printed": both_signs_wrong,
    "sign of Gamma in the bracket, printed": sign_wrong,
}


FIRST = "Eq. 17", "Gamma of", "NOGIN", "D = h V"  # the others run with the slow tests
NAMES = [n if n.startswith(FIRST) else pytest.param(n, marks=pytest.mark.slow) for n in CASES]


@pytest.mark.parametrize("name", NAMES)
def test_printed_is_refuted_and_corrected_is_proved(name, x64):
    case = CASES[name]
    report = ex.verify.sde(
        case.drift, case.diffusion, case.energy, case.points, temperature=case.temperature
    )
    assert report.ok == case.right, report
    assert report.relative.max() < 1e-13 if case.right else report.relative.max() > 1e-3
    if name in RESIDUALS:
        expected = jax.vmap(RESIDUALS[name])(jnp.asarray(POINTS), jnp.asarray(MOMENTA))
        np.testing.assert_allclose(report.residual, expected, atol=1e-11)
    if name == "sign of Gamma in the bracket, printed":
        assert report.corrected_by is not None
        assert report.corrected_by.name == "the sign of div D turned"
    if name == "sign of Gamma in the bracket":
        assert report.reversible and report.corrected, "Q = 0, though D depends on the state"


def test_two_dimensions_are_blind_to_the_weight_of_the_thermostat():
    """2 / d = d / 2 at d = 2: why the cases above have three."""
    z = {k: v[:, :2] if v.ndim == 2 else v for k, v in TRIPLES.items()}

    def drift(z):
        rate = z["r"] @ z["r"] / 2 - 1
        return {"x": z["r"], "r": -z["x"] - z["zeta"] * z["r"], "zeta": rate}

    def energy(z):
        return 0.5 * (z["x"] @ z["x"] + z["r"] @ z["r"]) + (2 / 2) * (z["zeta"] - A) ** 2

    diffusion = {"x": np.zeros(2), "r": np.full(2, A), "zeta": np.zeros(())}
    assert ex.verify.sde(drift, lambda z: diffusion, energy, z).ok
