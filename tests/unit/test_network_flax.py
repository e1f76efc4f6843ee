"""Flax NNX modules as networks; skipped where Flax is not installed."""

# pyright: reportMissingImports=false
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax import network

nnx = pytest.importorskip("flax.nnx", reason="Flax is not installed")

RNG = np.random.default_rng(1)
X, Y = RNG.normal(size=(12, 3)).astype(np.float32), RNG.normal(size=12).astype(np.float32)
Gaussian = network.likelihoods.Gaussian


class Network(nnx.Module):
    def __init__(self, seed=0, *, batch_norm=False, rate=0.0):
        rngs = nnx.Rngs(seed)
        self.layers = nnx.List([nnx.Linear(3, 5, rngs=rngs), nnx.Linear(5, 1, rngs=rngs)])
        self.norm = nnx.BatchNorm(5, rngs=rngs) if batch_norm else nnx.LayerNorm(5, rngs=rngs)
        self.dropout = nnx.Dropout(rate, rngs=rngs)

    def __call__(self, x):
        hidden = nnx.relu(self.norm(self.layers[0](x)))
        return self.layers[1](self.dropout(hidden))


@pytest.mark.parametrize("batched", [None, False])
def test_densities_are_the_modules_own(batched):
    module = Network()
    posterior = network.posterior(module, (X, Y), Gaussian(0.5), batched=batched)
    values = posterior.log_likelihoods(posterior.start, posterior.data)
    apart = Y - np.asarray(module(X))[:, 0]
    expected = -0.5 * (apart / 0.5) ** 2 - np.log(0.5) - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(values, expected, rtol=1e-5)
    inputs = dict(zip(posterior.paths(), posterior.program.network.inputs, strict=True))
    kernels = {"layers.0.kernel": 3, "layers.1.kernel": 5}
    ones = dict.fromkeys(["layers.0.bias", "layers.1.bias", "norm.bias", "norm.scale"], 1)
    assert inputs == kernels | ones


def test_a_run_and_its_predictions(key):
    posterior = network.posterior(Network(), (X, Y), Gaussian())
    inside = ex.sghmc(ex.Minibatch(posterior, 4), 1e-3, 5.0)
    kernel = network.predictive(inside, posterior, X, Y, after=5)
    run = {"num_chains": 2, "key": key, "progress": False}
    samples = ex.sample(kernel, posterior.start, 20, **run)
    assert kernel.results(samples).count == 30
    assert samples.named()["network.layers.0.kernel"].shape == (2, 20, 3, 5)
    draws = jax.tree.map(lambda x: x[0, -1], samples.position)
    assert posterior.module(draws)(X).shape == (12, 1)
    scores = posterior.per_example_gradients(posterior.start, posterior.data)
    assert jax.tree.leaves(scores)[0].shape[0] == 12


def test_some_parameters_alone():
    module = Network()
    posterior = network.posterior(module, (X, Y), Gaussian(0.5), trainable=["layers.1", "norm"])
    assert posterior.paths() == ["layers.1.bias", "layers.1.kernel", "norm.bias", "norm.scale"]
    again = posterior.module(jax.tree.map(lambda x: x + 1.0, posterior.start))
    np.testing.assert_array_equal(again.layers[0].kernel[...], module.layers[0].kernel[...])
    np.testing.assert_array_equal(again.norm.scale[...], module.norm.scale[...] + 1.0)
    assert jax.tree.structure(posterior.position(Network(1))) == jax.tree.structure(posterior.start)


def test_a_member_of_another_seed():
    posterior = network.posterior(Network(0), (X, Y), Gaussian())
    other = Network(1)
    np.testing.assert_allclose(posterior.module(posterior.position(other))(X), other(X), rtol=1e-6)


def test_attention_and_embeddings_count_their_inputs():
    class Words(nnx.Module):
        def __init__(self):
            rngs = nnx.Rngs(0)
            self.embed = nnx.Embed(7, 4, rngs=rngs)
            self.attention = nnx.MultiHeadAttention(2, 4, decode=False, rngs=rngs)
            self.out = nnx.Linear(4, 1, rngs=rngs)

        def __call__(self, words):
            return self.out(self.attention(self.embed(words)).mean(axis=-2))

    words = RNG.integers(7, size=(6, 5))
    posterior = network.posterior(Words(), (words, np.ones(6, np.float32)), Gaussian())
    inputs = dict(zip(posterior.paths(), posterior.program.network.inputs, strict=True))
    assert inputs["embed.embedding"] == 1 and inputs["attention.query.kernel"] == 4
    assert inputs["attention.out.kernel"] == 4 and inputs["attention.query.bias"] == 1
    assert jnp.isfinite(posterior.potential(posterior.start))


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (lambda: Network(batch_norm=True), "norm.* keeps statistics of the batches"),
        (lambda: Network(rate=0.5), "dropout drops units at random"),
    ],
)
def test_refusals(module, message):
    with pytest.raises(ValueError, match=message):
        network.posterior(module(), (X, Y), Gaussian())


def test_dropout_that_is_off_is_accepted():
    module = Network(rate=0.5)
    module.eval()
    assert network.posterior(module, (X, Y), Gaussian()).num_data == 12


def test_learning_coefficient_of_a_module():
    """Regular: its weights are a state of nnx.split, and a name chooses some of them."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 3)).astype(np.float32)
    y = (x @ np.array([1.0, -2.0, 0.5]) + rng.normal(size=300)).astype(np.float32)
    least = np.linalg.lstsq(np.c_[x, np.ones(300)], y)[0].astype(np.float32)
    module = nnx.Linear(3, 1, rngs=nnx.Rngs(0))
    module.kernel[...], module.bias[...] = jnp.asarray(least[:3, None]), jnp.asarray(least[3:])
    graph, weights = nnx.split(module)

    def loss(w, row):
        return 0.5 * (row[1] - nnx.merge(graph, w)(row[0])[0]) ** 2

    t, data = 300 / np.log(300), (jnp.asarray(x), jnp.asarray(y))
    for trainable, columns in ((None, np.c_[x, np.ones(300)]), ("*kernel*", x)):
        found = ex.local.learning_coefficient(
            loss, weights, data, key=jax.random.key(0), trainable=trainable
        )
        k = np.linalg.eigvalsh(columns.T @ columns / 300)
        assert found.ok and found.num_parameters == columns.shape[1]
        assert abs(found.estimate - 0.5 * np.sum(t * k / (t * k + 1.0))) < 2.0 * found.error


def test_modules_that_draw_in_their_forward_pass(key):
    """Recurrent cells draw their first state, zeros, by the module's own random numbers."""

    class Recurrent(nnx.Module):
        def __init__(self, rngs):
            self.cell = nnx.RNN(nnx.LSTMCell(8, 3, rngs=rngs))
            self.out = nnx.Linear(3, 1, rngs=rngs)

        def __call__(self, x):
            return self.out(self.cell(x)[:, -1])

    module = Recurrent(nnx.Rngs(0))
    x = RNG.normal(size=(12, 4, 8)).astype(np.float32)
    posterior = network.posterior(module, (x, Y), Gaussian(0.5))
    kernel = ex.sgld(ex.Minibatch(posterior, 4), 1e-3)
    samples = ex.sample(kernel, posterior.start, 5, key=key, progress=False)
    found = network.predict(posterior, samples.position, x)
    assert found.count == 5 and np.isfinite(found.mean).all()
    outputs = posterior.module(posterior.start)(x)
    np.testing.assert_allclose(outputs, module(x), rtol=1e-5)
    values = posterior.log_likelihoods(posterior.start, posterior.data)
    apart = Y - np.asarray(outputs)[:, 0]
    expected = -0.5 * (apart / 0.5) ** 2 - np.log(0.5) - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(values, expected, rtol=1e-4)


@pytest.mark.parametrize(("transposed", "inputs"), [(True, 3 * 8), (False, 3 * 8)])
def test_transposed_convolutions_count_their_inputs(transposed, inputs):
    rngs = nnx.Rngs(0)
    layer = nnx.ConvTranspose(8, 5, (3,), use_bias=False, transpose_kernel=transposed, rngs=rngs)
    x, y = np.ones((6, 4, 8), np.float32), np.ones((6, 4, 5), np.float32)
    posterior = network.posterior(layer, (x, y), Gaussian(0.5))
    assert posterior.program.network.inputs == (inputs,)
