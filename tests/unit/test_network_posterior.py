"""A network's posterior: what its parameters are, its densities by hand, what it refuses."""

import functools
import sys
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

import ergodax as ex
from ergodax import network, tree

Gaussian, Categorical = network.likelihoods.Gaussian, network.likelihoods.Categorical
Bernoulli = network.likelihoods.Bernoulli
RNG = np.random.default_rng(1)
X = RNG.normal(size=(12, 3))
X32, Y32 = X.astype(np.float32), X[:, 0].astype(np.float32)


def mlp(outputs: Any = 1, dtype: Any = jnp.float64) -> eqx.nn.MLP:
    return eqx.nn.MLP(3, outputs, 5, 1, dtype=dtype, key=jax.random.key(2))


def outputs_of(module):
    """The network by NumPy."""
    first, last = module.layers
    hidden = np.maximum(X @ np.asarray(first.weight).T + np.asarray(first.bias), 0)
    return hidden @ np.asarray(last.weight).T + np.asarray(last.bias)


def posterior_of(module, targets, likelihood, **more):
    x = X32 if np.asarray(targets).dtype == np.float32 else X
    return network.posterior(module, (x, targets), likelihood, **more)


@pytest.mark.slow
@pytest.mark.parametrize("learned", [False, True])
def test_regression_density(x64, learned):
    module, y = mlp(), RNG.normal(size=12)
    likelihood = Gaussian(median=0.5, spread=2.0) if learned else Gaussian(0.5)
    posterior = posterior_of(module, y, likelihood)
    position = dict(posterior.start)
    noise = 0.5
    if learned:
        noise, position["log_noise"] = 0.8, jnp.log(0.8)
    values = posterior.log_likelihoods(position, posterior.data)
    expected = stats.norm.logpdf(y, outputs_of(module)[:, 0], noise)
    np.testing.assert_allclose(values, expected, rtol=1e-6)
    plain = posterior_of(module, y, Gaussian(0.5))
    more = posterior.log_prior(position) - plain.log_prior(plain.start)
    exact = stats.norm.logpdf(np.log(0.8), np.log(0.5), 2.0) if learned else 0.0
    np.testing.assert_allclose(more, exact, atol=1e-5)


def test_vector_targets(x64):
    module, y = mlp(2), RNG.normal(size=(12, 2))
    posterior = posterior_of(module, y, Gaussian(0.5))
    values = posterior.log_likelihoods(posterior.start, posterior.data)
    expected = stats.norm.logpdf(y, outputs_of(module), 0.5).sum(axis=1)
    np.testing.assert_allclose(values, expected, rtol=1e-6)


def test_classification_density(x64):
    module, labels = mlp(4), RNG.integers(4, size=12)
    posterior = posterior_of(module, labels, Categorical())
    values = posterior.log_likelihoods(posterior.start, posterior.data)
    expected = special.log_softmax(outputs_of(module), axis=1)[np.arange(12), labels]
    np.testing.assert_allclose(values, expected, rtol=1e-6)


@pytest.mark.parametrize("scalar", [False, True])
def test_two_classes(x64, scalar):
    module, labels = mlp("scalar" if scalar else 1), RNG.integers(2, size=12)
    posterior = posterior_of(module, labels, Bernoulli())
    values = posterior.log_likelihoods(posterior.start, posterior.data)
    odds = np.squeeze(outputs_of(module))
    np.testing.assert_allclose(values, special.log_expit((2 * labels - 1) * odds), rtol=1e-6)


def test_the_gradient_of_batches_is_unbiased(x64):
    posterior = posterior_of(mlp(), RNG.normal(size=12), Gaussian())
    batches = [jax.tree.map(lambda a, k=k: a[k : k + 4], posterior.data) for k in (0, 4, 8)]
    gradients = [jax.grad(posterior.potential_on)(posterior.start, batch) for batch in batches]
    mean = jax.tree.map(lambda *g: sum(g) / 3, *gradients)
    full = posterior.gradient(posterior.start)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9), mean, full)


@pytest.mark.slow
def test_scores_sum_to_the_gradient(x64):
    posterior = posterior_of(mlp(4), RNG.integers(4, size=12), Categorical())
    scores = posterior.per_example_gradients(posterior.start, posterior.data)
    prior, full = posterior.prior_gradient(posterior.start), posterior.gradient(posterior.start)
    total = jax.tree.map(lambda p, s: -p - s.sum(axis=0), prior, scores)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-9), total, full)


class Looked(eqx.Module):
    """Integer arrays, functions and numbers beside the parameters."""

    table: jax.Array
    embedding: eqx.nn.Embedding
    norm: eqx.nn.LayerNorm
    linear: eqx.nn.Linear
    activation: Callable
    dropout: eqx.nn.Dropout

    def __init__(self, p=0.0):
        one, two = jax.random.split(jax.random.key(0))
        self.table = jnp.array([2, 0, 1])
        self.embedding = eqx.nn.Embedding(3, 4, key=one)
        self.norm = eqx.nn.LayerNorm(4)
        self.linear = eqx.nn.Linear(4, 1, key=two)
        self.activation, self.dropout = jnp.tanh, eqx.nn.Dropout(p)

    def __call__(self, k):
        return self.linear(self.activation(self.norm(self.embedding(self.table[k]))))


@pytest.mark.slow
def test_what_is_sampled_and_what_is_structure(key):
    rows = (np.array([0, 1, 2, 2]), np.ones(4))
    posterior = network.posterior(Looked(), rows, Gaussian(1.0))
    named = {
        "embedding.weight": 1, "norm.weight": 1, "norm.bias": 1, "linear.weight": 4,
        "linear.bias": 1,
    }  # fmt: skip
    assert dict(zip(posterior.paths(), posterior.program.network.inputs, strict=True)) == named
    kernel = ex.sgld(ex.FullGradient(posterior), 1e-3)
    samples = ex.sample(kernel, posterior.start, 4, num_chains=2, key=key, progress=False)
    draw = jax.tree.map(lambda x: x[1, 3], samples.position)
    module = posterior.module(draw)
    assert module.table.dtype == jnp.int32 and module.activation is jnp.tanh
    assert module(0).shape == (1,)
    again = posterior.position(module)
    assert jax.tree.structure(again) == jax.tree.structure(posterior.start)


def test_convolutions_count_all_their_inputs():
    key = jax.random.key(0)
    module = eqx.nn.Sequential(
        [eqx.nn.Conv2d(2, 3, 3, key=key), eqx.nn.Lambda(jnp.ravel), eqx.nn.Linear(3, 1, key=key)]
    )
    data = (np.ones((4, 2, 3, 3)), np.ones(4))
    posterior = network.posterior(module, data, Gaussian(1.0))
    assert posterior.program.network.inputs == (18, 1, 3, 1)


@pytest.mark.slow
def test_a_float32_network_stays_so(x64):
    data = (X.astype(np.float32), np.ones(12))
    posterior = network.posterior(mlp(dtype=jnp.float32), data, Gaussian(0.3))
    gradient = posterior.gradient(tree.freeze(posterior.start))
    assert {x.dtype for x in jax.tree.leaves(gradient)} == {jnp.dtype("float32")}


@pytest.mark.slow
def test_other_numbers_compile_no_new_program(key):
    count = 0

    class Counted(eqx.Module):
        weight: jax.Array

        def __call__(self, x):
            nonlocal count
            count += 1
            return self.weight @ x

    def run(scale, noise, step):
        module = Counted(jnp.ones((1, 3)))
        data = (X.astype(np.float32), np.ones(12, np.float32))
        prior = network.priors.Normal(scale)
        posterior = network.posterior(module, data, Gaussian(noise), prior)
        made = count
        kernel = ex.sgld(ex.Minibatch(posterior, 4), step)
        ex.sample(kernel, posterior.start, 3, key=key, progress=False)
        return count - made

    assert run(1.0, 0.5, 1e-4) > 0
    assert run(2.0, 0.7, 2e-4) == 0


BATCH_NORM = eqx.nn.Sequential([eqx.nn.BatchNorm(3, "batch", mode="batch")])


@pytest.mark.parametrize(
    ("module", "targets", "likelihood", "error", "message"),
    [
        (BATCH_NORM, np.ones(12), Gaussian(), ValueError, "keeps statistics of the batches"),
        (Looked(0.5), np.ones(12), Gaussian(), ValueError, "dropout drops units at random"),
        (jnp.tanh, np.ones(12), Gaussian(), TypeError, "must be an Equinox or Flax module"),
        (3, np.ones(12), Gaussian(), TypeError, "must be an Equinox or Flax module, not 3"),
        (eqx.nn.Lambda(jnp.tanh), np.ones(12), Gaussian(), ValueError, "nothing to sample"),
        (mlp(1, jnp.float32), np.ones(12), 0.1, TypeError, "likelihood must be one of"),
        (mlp(2, jnp.float32), np.ones(12), Gaussian(), ValueError, "one output for each number"),
        (mlp(1, jnp.float32), np.ones(12), Categorical(), ValueError, "at least 2 logits"),
        (mlp(2, jnp.float32), np.full(12, 2), Categorical(), ValueError, "integers from 0 to 1"),
        (mlp(2, jnp.float32), np.full(12, 0.5), Categorical(), ValueError, "integers from 0 to 1"),
        (mlp(2, jnp.float32), np.ones(12), Bernoulli(), ValueError, "needs one output for a row"),
        (mlp(1, jnp.float32), np.full(12, -1), Bernoulli(), ValueError, "integers from 0 to 1"),
    ],
)
def test_refusals(module, targets, likelihood, error, message):
    with pytest.raises(error, match=message):
        network.posterior(module, (X.astype(np.float32), targets), likelihood)


def test_more_refusals():
    module, y = mlp(dtype=jnp.float32), np.ones(12)
    with pytest.raises(ValueError, match="can't be called with one row of inputs of shape"):
        network.posterior(module, (np.ones((12, 2)), y), Gaussian())
    with pytest.raises(TypeError, match="pair"):
        network.posterior(module, X, Gaussian())
    with pytest.raises(TypeError, match="a prior must be one of"):
        network.posterior(module, (X, y), Gaussian(), 1.0)
    with pytest.raises(ValueError, match="structure and shapes"):
        posterior = network.posterior(module, (X, y), Gaussian())
        posterior.position(eqx.nn.MLP(3, 1, 7, 1, key=jax.random.key(0)))


@pytest.mark.parametrize(
    ("outputs", "targets", "likelihood", "message"),
    [
        (2, np.repeat([1, 2], 6), Categorical(), "integers from 0 to 1, not"),
        (2, np.repeat([-1, 1], 6), Categorical(), "integers from 0 to 1, not"),
        (1, np.repeat([1, 2], 6), Bernoulli(), "integers from 0 to 1, not"),
        (1, np.repeat([0, 255], 6).astype(np.uint8), Bernoulli(), "integers from 0 to 1, not"),
        (3, Y32, network.likelihoods.HeteroscedasticGaussian(), "two outputs for a row"),
    ],
)
def test_the_first_rows_of_a_source_are_checked(tmp_path, outputs, targets, likelihood, message):
    files = tmp_path / "x.npy", tmp_path / "y.npy"
    for file, values in zip(files, (X32, targets), strict=True):
        np.save(file, values)
    module = mlp(outputs, jnp.float32)
    with pytest.raises(ValueError, match=message):
        network.posterior(module, ex.data.npy(files), likelihood)
    with pytest.raises(TypeError, match="a source of such pairs"):
        network.posterior(module, ex.data.npy(files[0]), likelihood)


@pytest.mark.parametrize("wrong", [-1, 2, 255, 0.5])
@pytest.mark.parametrize(("outputs", "likelihood"), [(2, Categorical()), (1, Bernoulli())])
def test_a_later_row_without_a_label_is_never_silent(wrong, outputs, likelihood):
    """Its density is NaN, and so is the gradient; those of other rows are as they were."""
    posterior = posterior_of(mlp(outputs, jnp.float32), np.arange(12) % 2, likelihood)
    labels = jnp.asarray(np.where(np.arange(12) == 7, wrong, np.arange(12) % 2))
    values = posterior.log_likelihoods(posterior.start, (X32, labels))
    right = posterior.log_likelihoods(posterior.start, posterior.data)
    np.testing.assert_array_equal(values, np.where(np.arange(12) == 7, np.nan, right))
    slope = jax.grad(posterior.potential_on)(posterior.start, (X32, labels))
    assert all(np.isnan(x).any() for x in jax.tree.leaves(slope))


def test_dropout_that_is_off_is_accepted():
    module = eqx.nn.inference_mode(Looked(0.5))
    posterior = network.posterior(module, (np.array([0, 1]), np.ones(2)), Gaussian())
    assert len(posterior.paths()) == 5


def test_the_last_layer_alone_is_a_linear_regression(x64):
    """Its posterior is normal, of the precision Phi^T Phi / s^2 + prior, and the rest stays."""
    module, y = mlp(), RNG.normal(size=12)
    posterior = posterior_of(module, y, Gaussian(0.5), trainable="layers.1")
    assert posterior.paths() == ["layers.1.weight", "layers.1.bias"]
    first = module.layers[0]
    hidden = np.maximum(X @ np.asarray(first.weight).T + np.asarray(first.bias), 0)
    phi = np.column_stack([hidden, np.ones(12)])
    precision = phi.T @ phi / 0.25 + np.diag([5.0] * 5 + [1.0])  # variances 1 / inputs, and 1
    flat, unravel = tree.ravel(posterior.freeze(posterior.start))
    found = jax.jit(jax.hessian(lambda x: posterior.potential(unravel(x))))(flat)
    np.testing.assert_allclose(found, precision, rtol=1e-9)
    moved = jax.tree.map(lambda x: x + 1.0, posterior.start)
    again = posterior.module(moved)
    np.testing.assert_array_equal(again.layers[0].weight, first.weight)
    np.testing.assert_array_equal(again.layers[1].bias, np.asarray(module.layers[1].bias) + 1.0)
    other = posterior.position(again)
    np.testing.assert_array_equal(*(jax.tree.leaves(p)[0] for p in (other, moved)))


@pytest.mark.parametrize(
    ("chosen", "paths"),
    [
        ("*.bias", ["layers.0.bias", "layers.1.bias"]),
        (["layers.0", "layers.1.bias"], ["layers.0.weight", "layers.0.bias", "layers.1.bias"]),
        (lambda name: name.endswith("1.weight"), ["layers.1.weight"]),
    ],
)
def test_parameters_are_chosen_by_name(chosen, paths, key):
    posterior = posterior_of(mlp(dtype=jnp.float32), Y32, Gaussian(0.5), trainable=chosen)
    assert posterior.paths() == paths
    kernel = ex.sgld(ex.Minibatch(posterior, 4), 1e-3)
    samples = ex.sample(kernel, posterior.start, 5, key=key, progress=False)
    assert len(jax.tree.leaves(samples.position)) == len(paths)
    prediction = network.predict(posterior, jax.tree.map(lambda x: x[0], samples.position), X32)
    assert prediction.mean.shape == (12,)


@pytest.mark.parametrize(
    ("chosen", "error", "words"),
    [
        ("layers.7", ValueError, "layers.0.weight, layers.0.bias"),
        (3, TypeError, "not 3"),
        (lambda name: False, ValueError, "chooses no leaf"),
    ],
)
def test_a_choice_of_nothing_is_refused(chosen, error, words):
    with pytest.raises(error, match=words):
        posterior_of(mlp(dtype=jnp.float32), Y32, Gaussian(0.5), trainable=chosen)


@pytest.mark.parametrize("rows, dtype", [(5, float), (12, float), (7, float), (5, np.float32)])
def test_the_gradient_by_blocks_of_rows_is_that_of_all(x64, monkeypatch, rows, dtype):
    """Blocks that share rows count each once; data may have another precision than weights."""
    module, accuracy = mlp(dtype=dtype), 1e-12 if dtype is float else 1e-5
    with jax.numpy_dtype_promotion("standard"):
        posterior = posterior_of(module, RNG.normal(size=12), Gaussian(0.5))
        potential, gradient = jax.value_and_grad(posterior.potential)(posterior.start)
        monkeypatch.setattr(sys.modules["ergodax.network.posterior"], "BLOCK", rows)
        found, slope = posterior.value_and_gradient(posterior.start)
        np.testing.assert_allclose(found, potential, rtol=accuracy)
        near = functools.partial(np.testing.assert_allclose, rtol=100.0 * accuracy)
        jax.tree.map(near, slope, gradient)
        assert "scan" in str(jax.make_jaxpr(posterior.gradient)(posterior.start)) or rows == 12
