"""Flax Linen modules as networks; skipped where Flax is not installed."""

# pyright: reportMissingImports=false
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax import network

linen = pytest.importorskip("flax.linen", reason="Flax is not installed")

RNG = np.random.default_rng(1)
X, Y = RNG.normal(size=(12, 3)).astype(np.float32), RNG.normal(size=12).astype(np.float32)
Gaussian = network.likelihoods.Gaussian


class OfLinen(linen.Module):
    """Dense layers, attention and a normalisation."""

    norm: type = linen.LayerNorm
    dropping: bool = False

    @linen.compact
    def __call__(self, x):
        options = {"use_running_average": True} if self.norm is linen.BatchNorm else {}
        x = self.norm(**options)(linen.relu(linen.Dense(8)(x)))
        x = linen.Dropout(0.5, deterministic=not self.dropping)(x)
        x = linen.MultiHeadDotProductAttention(2)(x[:, None], x[:, None])[:, 0]
        return linen.Dense(1)(x)


def bound(module, seed=0):
    keys = {"params": jax.random.key(seed), "dropout": jax.random.key(1)}
    return module.bind(module.init(keys, X))


def test_a_linen_module_is_bound_to_its_parameters():
    module = bound(OfLinen())
    posterior = network.posterior(module, (X, Y), Gaussian(0.5), trainable=["Dense_0", "*query*"])
    inputs = dict(zip(posterior.paths(), posterior.program.network.inputs, strict=True))
    attention = "MultiHeadDotProductAttention_0.query"
    biases = {"Dense_0.bias": 1, f"{attention}.bias": 1}
    assert inputs == biases | {"Dense_0.kernel": 3, f"{attention}.kernel": 8}
    values = posterior.log_likelihoods(posterior.start, posterior.data)
    apart = Y - np.asarray(module(X))[:, 0]
    expected = -0.5 * (apart / 0.5) ** 2 - np.log(0.5) - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(values, expected, rtol=1e-5)
    other = bound(OfLinen(), 1)
    position = posterior.position(other)
    kernel = position["network"]["Dense_0"]["kernel"]
    np.testing.assert_array_equal(kernel, other.variables["params"]["Dense_0"]["kernel"])
    assert posterior.module(position)(X).shape == (12, 1)
    with jax.numpy_dtype_promotion("standard"):  # of Linen's own normalisation
        low = network.posterior(module, (X, Y), Gaussian(0.5), compute_dtype=jnp.bfloat16)
        difference = low.potential(low.start) / posterior.potential(posterior.start)
    assert low.module(low.start)(X).dtype == jnp.float32 and difference != 1.0


def test_linen_chains_run(key):
    posterior = network.posterior(bound(OfLinen()), (X, Y), Gaussian())
    kernel = ex.sghmc(ex.Minibatch(posterior, 4), 1e-3, 5.0)
    samples = ex.sample(kernel, posterior.start, 5, num_chains=2, key=key, progress=False)
    assert samples.named()["network.Dense_0.kernel"].shape == (2, 5, 3, 8)


@pytest.mark.parametrize(
    ("module", "error", "message"),
    [
        (lambda: OfLinen(), TypeError, r"Try network.posterior\(module.bind\(variables\)"),
        (lambda: bound(OfLinen(linen.BatchNorm)), ValueError, "keeps statistics of the batches"),
        (lambda: bound(OfLinen(dropping=True)), ValueError, "drops units at random"),
    ],
)
def test_refusals_of_linen_modules(module, error, message):
    with pytest.raises(error, match=message):
        network.posterior(module(), (X, Y), Gaussian())


@pytest.mark.parametrize("bias", [True, False])
def test_kernels_count_their_inputs_without_a_bias(bias):
    class Layers(linen.Module):
        @linen.compact
        def __call__(self, x):
            x = linen.MultiHeadDotProductAttention(num_heads=4, use_bias=bias)(x, x)
            x = linen.ConvTranspose(5, (3,), use_bias=bias, transpose_kernel=True)(x)
            x = linen.ConvTranspose(6, (2,), use_bias=bias)(x)
            return linen.DenseGeneral((1, 2), axis=(-2, -1), use_bias=bias)(x)[:, 0]

    x, y = np.ones((6, 4, 8), np.float32), np.ones((6, 2), np.float32)
    module = Layers().bind(Layers().init(jax.random.key(0), x))
    posterior = network.posterior(module, (x, y), Gaussian(0.5), trainable="*kernel")
    inputs = dict(zip(posterior.paths(), posterior.program.network.inputs, strict=True))
    attention = dict.fromkeys(["query", "key", "value", "out"], 8)
    assert inputs == {
        **{f"MultiHeadDotProductAttention_0.{name}.kernel": n for name, n in attention.items()},
        "ConvTranspose_0.kernel": 3 * 8,
        "ConvTranspose_1.kernel": 2 * 5,
        "DenseGeneral_0.kernel": 4 * 6,
    }
