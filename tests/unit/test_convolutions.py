"""Convolutions as products: values, derivatives, what is left as it is, and that none is missed."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.network import convolutions
from ergodax.network.convolutions import CONVOLUTION, as_products

RNG = np.random.default_rng(0)
IMAGES = jnp.asarray(RNG.normal(size=(2, 3, 7, 8)), jnp.float32)  # batch, channels, rows, columns
KERNEL = jnp.asarray(RNG.normal(size=(4, 3, 3, 2)), jnp.float32)  # outputs, inputs, rows, columns


def uneven(x, w):
    return jax.lax.conv_general_dilated(x, w, (2, 1), [(1, 0), (2, 1)], rhs_dilation=(1, 2))


def channels_last(x, w):
    x, w = jnp.transpose(x, (0, 2, 3, 1)), jnp.transpose(w, (2, 3, 1, 0))
    names = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=names)


def in_calls(x, w):
    inner = jax.jit(lambda x, w: jax.lax.conv(x, w, (1, 1), "VALID"))
    return jax.nn.relu(inner(x, w)) + jnp.sum(w)


def one_axis(x, w):
    return jax.lax.conv_general_dilated(x[:, :, 0], w[:, :, 0], (2,), [(0, 3)])


def cropped(x, w):
    return jax.lax.conv_general_dilated(x, w, (1, 1), [(-1, 0), (0, -2)])


def graph_of(function, *args) -> str:
    return str(jax.make_jaxpr(function)(*args))


@pytest.mark.parametrize("function", [uneven, channels_last, in_calls, one_axis, cropped])
def test_values_and_derivatives(function):
    products = as_products(function)
    found, expected = products(IMAGES, KERNEL), function(IMAGES, KERNEL)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    both = [jax.jacrev(f, argnums=(0, 1))(IMAGES, KERNEL) for f in (products, function)]
    for ours, xla in zip(*both, strict=True):
        np.testing.assert_allclose(ours, xla, rtol=1e-3, atol=1e-4)
    assert CONVOLUTION in graph_of(function, IMAGES, KERNEL)
    assert CONVOLUTION not in graph_of(products, IMAGES, KERNEL)


def test_what_is_not_common_stays():
    def grouped(x, w):
        return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", feature_group_count=3)

    def transposed(x, w):
        return jax.lax.conv_general_dilated(x, w, (1, 1), [(1, 1), (1, 1)], lhs_dilation=(2, 2))

    for function, kernel in ((grouped, KERNEL[:3, :1]), (transposed, KERNEL)):
        products = as_products(function)
        np.testing.assert_array_equal(products(IMAGES, kernel), function(IMAGES, kernel))
        assert CONVOLUTION in graph_of(products, IMAGES, kernel)


def test_copies_that_are_too_large_are_not_made(monkeypatch):
    copies = 2 * 5 * 7 * 3 * 3 * 2  # of IMAGES: batch, places, then channels and places of KERNEL
    for largest, stays in ((copies, False), (copies - 1, True)):
        monkeypatch.setattr(convolutions, "LARGEST", largest)
        assert (CONVOLUTION in graph_of(as_products(in_calls), IMAGES, KERNEL)) == stays


class Convolutional(eqx.Module):
    first: eqx.nn.Conv2d
    last: eqx.nn.Linear

    def __call__(self, x):
        return self.last(jax.nn.relu(self.first(x)).reshape(-1))


def test_a_posterior_convolves_by_products():
    keys = jax.random.split(jax.random.key(0))
    module = Convolutional(eqx.nn.Conv2d(3, 2, 3, key=keys[0]), eqx.nn.Linear(60, 2, key=keys[1]))
    x, y = np.asarray(IMAGES), np.array([0, 1])
    posterior = ex.network.posterior(module, (x, y), ex.network.likelihoods.Categorical())
    position = ex.tree.freeze(posterior.start)
    assert CONVOLUTION not in graph_of(posterior.gradient, position)
    expected = jax.nn.log_softmax(jax.vmap(module)(IMAGES))[jnp.arange(2), y]
    np.testing.assert_allclose(
        posterior.log_likelihoods(position, posterior.data), expected, rtol=1e-5
    )
    mlp = eqx.nn.MLP(3, 1, 4, 1, key=keys[0])
    plain = ex.network.posterior(
        mlp, (np.ones((4, 3)), np.ones(4)), ex.network.likelihoods.Gaussian()
    )
    assert posterior.program.network.convolves and not plain.program.network.convolves
