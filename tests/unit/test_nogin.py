"""Samplers that need the gradient's covariance: what they ask for, trees, precision, extremes."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax import tree
from ergodax.sampler.overdamped import msgld
from ergodax.sampler.thermostat import ccadl
from ergodax.sampler.underdamped import nogin
from law import normals

D = 4
VARIANCES = np.array([1.0, 2.0, 0.5, 1.5])
NOISE = np.array([3.0, 1.0, 2.0, 0.5])


def target():
    def potential(x):
        flat = tree.ravel(x)[0]
        return 0.5 * jnp.sum(flat**2 / jnp.asarray(VARIANCES, flat.dtype))

    return ex.Target(potential)


KERNELS = {
    "nogin": nogin,
    "msgld": msgld,
    "ccadl": ccadl,
    "ccadl, splitting": lambda *args, **options: ccadl(*args, scheme="splitting", **options),
}


@pytest.mark.parametrize("name", KERNELS)
def test_a_gradient_without_covariance_is_refused_with_what_to_do(name, key):
    kernel = KERNELS[name](ex.FullGradient(target()), 0.1)
    state = kernel.init(key, jnp.ones(D))
    with pytest.raises(ValueError, match=r"FullGradient does not.*ScoreCovariance.*KnownCov"):
        kernel.step(key, state)


BAD = {
    "no temperature": (lambda g: nogin(g, 0.1, temperature=0.0), ValueError, "temperature"),
    "negative friction": (lambda g: nogin(g, 0.1, -1.0), ValueError, "friction"),
    "massless": (lambda g: nogin(g, 0.1, mass=0.0), ValueError, "mass must be positive"),
    "unknown form": (lambda g: msgld(g, 0.1, form="square"), ValueError, "form.*'square'"),
    "unknown scheme": (lambda g: ccadl(g, 0.1, scheme="BAOAB"), ValueError, "scheme.*'BAOAB'"),
    "weightless": (lambda g: ccadl(g, 0.1, thermal_mass=0.0), ValueError, "thermal_mass"),
    "no noise": (lambda g: ccadl(g, 0.1, 0.0), ValueError, "friction"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    call, error, message = BAD[case]
    with pytest.raises(error, match=message):
        call(ex.NoisyGradient(target(), 1.0))


def split(x):
    return {"a": x[..., :3], "b": (x[..., 3],)}


@pytest.mark.parametrize("noise", ["vector", "low rank"])
@pytest.mark.parametrize("name", KERNELS)
def test_a_tree_moves_as_its_vector(name, noise, key):
    factor = np.array([[1.0, -1.0, 0.5, 0.0], [0.3, 0.2, 0.0, 2.0]], np.float32)
    moved = []
    for shape in (lambda x: x, split):
        given = NOISE if noise == "vector" else ex.LowRank(shape(jnp.asarray(factor)), 0.5)
        kernel = KERNELS[name](ex.NoisyGradient(target(), given), 0.1)
        state = kernel.init(key, shape(jnp.ones(D)))
        moved.append(tree.ravel(kernel.step(key, state)[0].position)[0])
    np.testing.assert_allclose(*moved, rtol=1e-5)


@pytest.mark.parametrize("mass", [2.0, NOISE, np.eye(D) + 0.1])
def test_a_double_precision_covariance_promotes_nothing(mass, x64, key):
    covariance = np.eye(D) + 0.1
    kernel = nogin(ex.NoisyGradient(target(), covariance), 0.1, mass=mass, temperature=0.5)
    state = kernel.init(key, jnp.ones(D, "float32"))
    state, info = kernel.step(key, state)
    assert {x.dtype.name for x in (state.position, state.auxiliary["momentum"])} == {"float32"}
    assert info.evaluations == 1 and info.feasible is None


def test_one_gradient_and_one_normal_vector_a_step(key):
    """The estimator's noise here is the other of the two vectors."""
    kernel = nogin(ex.NoisyGradient(target(), NOISE), 0.1)
    state = kernel.init(key, jnp.ones(D))
    assert normals.count(kernel, state) == 2 * D


@pytest.mark.parametrize("covariance", [1e20, np.full(D, 1e20), 1e20 * np.eye(D)])
def test_an_enormous_noise_overflows_nothing(covariance, key):
    """In single precision; the momentum is turned round, and the position hardly moves."""
    known = ex.KnownCovariance(ex.FullGradient(target()), covariance)
    kernel = nogin(known, 0.5)
    state = kernel.init(key, jnp.ones(D))
    new, info = eqx.filter_jit(kernel.step)(key, state)
    np.testing.assert_allclose(new.position, state.position, atol=1e-6)
    np.testing.assert_allclose(new.auxiliary["momentum"], -state.auxiliary["momentum"], rtol=1e-5)
    assert bool(info.finite)


def test_without_noise_and_friction_it_is_leapfrog(key):
    """Half drift, kick, half drift."""
    kernel = nogin(ex.KnownCovariance(ex.FullGradient(target()), 0.0), 0.3, 0.0, mass=2.0)
    state = kernel.init(key, jnp.ones(D))
    r = state.auxiliary["momentum"]
    middle = state.position + 0.15 * r / 2.0
    kicked = r - 0.3 * middle / jnp.asarray(VARIANCES, "float32")
    new, _ = kernel.step(key, state)
    np.testing.assert_allclose(new.auxiliary["momentum"], kicked, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(new.position, middle + 0.15 * kicked / 2.0, rtol=1e-5)
