"""The string of letters: parsed once, each letter's shares sum to one."""

from collections import defaultdict

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.integrator import flows
from ergodax.integrator.splitting import parse


@pytest.mark.parametrize("scheme", ["BAOAB", "ABOBA", "OBABO", "BAOA", "BABO", "AOBOABA"])
def test_shares(scheme):
    shares = defaultdict(float)
    letters = parse(scheme, thermostat=False)
    for letter, fraction in letters:
        shares[letter] += fraction
    assert dict(shares) == pytest.approx({"A": 1.0, "B": 1.0, "O": 1.0})
    assert "".join(letter for letter, _ in letters) == scheme


@pytest.mark.parametrize(
    ("scheme", "thermostat", "message"),
    [
        ("BAXAB", False, "unknown letter 'X'.*A .drift.*B .kick.*O .friction"),
        ("BADODAB", False, "unknown letter 'D'"),
        ("baoab", False, "unknown letter 'b'"),
        ("BAB", False, "has no O.*'BAOAB'"),
        ("", False, "has no A"),
        ("BAOAB", True, "has no D.*thermostat"),
        ("UBUO", False, "has U beside A or O.*'UBU'"),
        ("AUBA", False, "has U beside A or O"),
        ("UU", False, "has no B; each of B .kick.*U .drift.*'UBU'"),
        ("DUB", True, "unknown letter 'U'"),
    ],
)
def test_refused(scheme, thermostat, message):
    with pytest.raises(ValueError, match=message):
        parse(scheme, thermostat=thermostat)


@pytest.mark.parametrize(
    ("scheme", "carries", "evaluations"),
    [
        ("BAOAB", True, 1),
        ("OBABO", True, 1),
        ("ABOBA", False, 1),
        ("BAOA", False, 1),
        ("BABAO", False, 2),
        ("BABAOB", True, 2),
        ("UBU", False, 1),
        ("BU", False, 1),
        ("BUB", True, 1),
    ],
)
def test_one_gradient_for_each_position(scheme, carries, evaluations, key):
    """Also where a step ends at the position that the next one begins with."""
    calls = []

    def potential(x):
        calls.append(1)
        return 0.5 * jnp.sum(x**2)

    kernel = ex.splitting(scheme, ex.FullGradient(ex.Target(potential)), 0.1)
    state = kernel.init(key, jnp.ones(2))
    calls.clear()
    state, info = kernel.step(key, state)
    assert len(calls) == evaluations == int(info.evaluations)
    assert (state.estimate is not None) == carries


def test_letters_against_their_formulas(x64):
    """Without friction and noise, BAOAB is the leapfrog of the textbook."""
    kernel = ex.splitting("BAOAB", ex.FullGradient(ex.Target(lambda x: jnp.sum(x**4))), 0.1, 0.0)
    state = kernel.init(jax.random.key(1), jnp.array([0.5, -1.0]))
    x, r = np.asarray(state.position), np.asarray(state.auxiliary["momentum"])
    state, _ = kernel.step(jax.random.key(2), state)
    r = r - 0.05 * 4 * x**3
    x = x + 0.1 * r
    r = r - 0.05 * 4 * x**3
    np.testing.assert_allclose(state.position, x, rtol=1e-12)
    np.testing.assert_allclose(state.auxiliary["momentum"], r, rtol=1e-12)


@pytest.mark.parametrize("zeta", [0.0, 1e-4, 9e-4, -9e-4, 1.1e-3, -0.5, 2.0])
def test_the_noise_of_a_thermostat_has_its_variance_at_any_friction(zeta, key, x64):
    """A T (1 - e^(-2 zeta t)) / zeta, which is 2 A T t where zeta is 0; t = 0.1."""
    momentum, t = jnp.zeros(3), 0.1
    kicked = flows.thermostatted_noise(
        key, momentum, jnp.asarray(zeta), ex.Scalar(2.0), 1.5, 0.5, t
    )
    variance = 1.5 * 0.5 * (-np.expm1(-2.0 * zeta * t) / zeta if zeta else 2.0 * t)
    noise = np.sqrt(2.0) * ex.normal_like(key, momentum)
    np.testing.assert_allclose(kicked, np.sqrt(variance) * noise, rtol=1e-8)
