"""A kernel as an optax.GradientTransformation draws what `ex.sample` draws."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ergodax as ex

TARGET = ex.targets.gaussian(jnp.array([1.0, -1.0]), jnp.array([[1.0, 0.3], [0.3, 0.5]]))
FULL = ex.FullGradient(TARGET)
START, STEPS = jnp.array([0.3, -0.2]), 12


def known():
    return ex.KnownCovariance(FULL, 0.1)


KERNELS = {  # and whether the parameters are the draws
    "sgld": (lambda: ex.sgld(FULL, 0.1), True),
    "sghmc": (lambda: ex.sghmc(FULL, 0.1, 1.0, resample_every=4), True),
    "BAOAB": (lambda: ex.langevin(FULL, 0.3), True),
    "ABOBA": (lambda: ex.langevin(FULL, 0.3, scheme="ABOBA"), False),
    "OABAO": (lambda: ex.splitting("OABAO", FULL, 0.3), False),
    "sgnht": (lambda: ex.sgnht(FULL, 0.1), True),
    "nogin": (lambda: ex.nogin(known(), 0.3), False),
    "ccadl": (lambda: ex.ccadl(known(), 0.1), False),
    "psgld": (lambda: ex.psgld(FULL, 0.1, correction=False), True),
    "cyclical": (lambda: ex.cyclical(ex.sghmc, FULL, 0.1, period=4, resample=True), True),
}


def walk(transformation, params, steps):
    """Parameters and draws after each update, by a compiled loop."""

    def one(carry, _):
        params, state = carry
        update, state = transformation.update(TARGET.gradient(params), state, params)
        params = optax.apply_updates(params, update)
        return (params, state), (params, state.position)

    start = (params, transformation.init(params))
    return jax.jit(lambda carry: jax.lax.scan(one, carry, None, length=steps)[1])(start)


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_the_draws_are_those_of_sample(name, key, x64):
    make, same = KERNELS[name]
    kernel = make()
    expected = ex.sample(kernel, START, STEPS, key=key, progress=False).position[0]
    params, draws = walk(ex.bridge.optax(kernel, key=key), START, STEPS + 1)
    late = int(not np.allclose(draws[0], expected[0], rtol=1e-5))  # the first update only begins
    np.testing.assert_allclose(draws[late : STEPS + late], expected, rtol=1e-4)
    if same:  # where the next gradient is needed; a step ahead where the first one only begins
        np.testing.assert_allclose(params[:STEPS], expected, rtol=1e-4)


@pytest.mark.slow
def test_trees_and_chains(key):
    kernel = ex.sghmc(ex.FullGradient(ex.Target(lambda p: jnp.sum(p["a"] ** 2) + p["b"] ** 2)), 0.1)
    transformation = optax.chain(optax.identity(), ex.bridge.optax(kernel, key=key))
    params = {"a": jnp.ones((2, 3)), "b": jnp.float32(1.0)}
    state = transformation.init(params)
    gradient = jax.grad(lambda p: jnp.sum(p["a"] ** 2) + p["b"] ** 2)(params)
    update, state = transformation.update(gradient, state, params)
    assert jax.tree.map(jnp.shape, update) == jax.tree.map(jnp.shape, params)
    after = optax.apply_updates(params, update)
    expected = ex.sample(kernel, params, 1, key=key, progress=False).position
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b[0, 0], rtol=1e-5), after, expected)


def of_replicas():
    return ex.replica_exchange(ex.sgld, FULL, 0.1, temperatures=(1.0, 2.0))


REFUSED = {
    "replicas": (of_replicas, "each of its replicas"),
    "several gradients": (lambda: ex.hmc(TARGET, 0.1), "asks for 0"),
    "a derivative": (lambda: ex.psgld(FULL, 0.1), "correction=False"),
    "no covariance": (lambda: ex.nogin(ex.NoisyGradient(TARGET, 0.1), 0.1), "knows its covariance"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name, key):
    make, message = REFUSED[name]
    with pytest.raises((TypeError, ValueError), match=message):
        ex.bridge.optax(make(), key=key).init(START)


def test_wrong_arguments(key):
    with pytest.raises(TypeError, match="kernel must have the methods"):
        ex.bridge.optax(3, key=key)
    with pytest.raises(TypeError, match="key must be one key"):
        ex.bridge.optax(ex.sgld(FULL, 0.1), key=3)
    transformation = ex.bridge.optax(ex.sgld(FULL, 0.1), key=key)
    with pytest.raises(ValueError, match="update needs the parameters"):
        transformation.update(START, transformation.init(START))
