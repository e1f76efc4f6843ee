"""Networks that are functions of their parameters, and forward passes in fewer bits."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax import network, tree

Gaussian = network.likelihoods.Gaussian
RNG = np.random.default_rng(3)
X = RNG.normal(size=(40, 3)).astype(np.float32)
Y = X[:, 0] * X[:, 1]
MLP = eqx.nn.MLP(3, 1, 8, 1, key=jax.random.key(0))


def apply(parameters, rows):
    hidden = jax.nn.relu(rows @ parameters["first"]["w"] + parameters["first"]["b"][None])
    return hidden @ parameters["last"]["w"] + parameters["last"]["b"][None]


def function():
    """The perceptron MLP, written as Haiku keeps it."""
    parts = zip(("first", "last"), MLP.layers, strict=True)
    return network.Function(apply, {name: {"w": x.weight.T, "b": x.bias} for name, x in parts})


def test_a_function_has_the_densities_of_the_module_that_it_is():
    ours = network.posterior(function(), (X, Y), Gaussian(0.5))
    module = network.posterior(MLP, (X, Y), Gaussian(0.5))
    np.testing.assert_allclose(
        ours.potential(ours.start), module.potential(module.start), rtol=1e-6
    )
    inputs = dict(zip(ours.paths(), ours.program.network.inputs, strict=True))
    assert inputs == {"first.w": 3, "first.b": 1, "last.w": 8, "last.b": 1}
    outputs = ours.module(ours.start)(X)
    np.testing.assert_allclose(outputs, jax.vmap(MLP)(jnp.asarray(X)), rtol=1e-5, atol=1e-6)
    last = network.posterior(function(), (X, Y), Gaussian(0.5), trainable="last")
    assert last.paths() == ["last.b", "last.w"]
    again = last.position(last.module(jax.tree.map(lambda x: x + 1.0, last.start)))
    bias = np.asarray(MLP.layers[1].bias)
    np.testing.assert_array_equal(again["network"]["last"]["b"], bias + 1.0)


@pytest.mark.parametrize(
    ("parameters", "inputs"),
    [
        (jnp.ones((3, 1)), (3,)),
        ({"w": jnp.ones((3, 2, 4)), "bias": jnp.ones((2, 4))}, (1, 3)),  # heads of attention
        ({"embeddings": jnp.ones((7, 4)), "scale": jnp.ones((1, 4)), "n": jnp.ones(3)}, (1, 1, 1)),
        ({"w": jnp.ones((3, 3, 2, 5)), "count": jnp.arange(3)}, (18,)),  # a convolution
    ],
)
def test_inputs_by_name_and_shape(parameters, inputs):
    def one(parameters, rows):
        return rows[:, :1] * jax.tree.leaves(parameters)[-1].ravel()[0]

    posterior = network.posterior(network.Function(one, parameters), (X, Y), Gaussian())
    assert posterior.program.network.inputs == inputs


@pytest.mark.parametrize("module", [MLP, function()], ids=["Equinox", "function"])
@pytest.mark.parametrize(("dtype", "error"), [(jnp.bfloat16, 0.05), ("float16", 5e-3)])
def test_the_forward_pass_alone_is_rounded(module, dtype, error):
    """Gradients are those of the rounded outputs, and arrive as numbers of the position's dtype."""
    whole, low = (
        network.posterior(module, (X, Y), Gaussian(0.5), compute_dtype=d) for d in (None, dtype)
    )
    at = tree.freeze(low.start)
    rounded = jax.tree.map(lambda x: x.astype(dtype), (low.start["network"], X))
    by_hand = whole.program.network(*rounded)
    found = low.program.network(low.start["network"], X)
    assert by_hand.dtype == dtype and found.dtype == jnp.float32
    np.testing.assert_array_equal(found, by_hand.astype(jnp.float32))
    exact, gradient = (jax.grad(p.potential)(at) for p in (whole, low))
    assert {x.dtype for x in jax.tree.leaves((at, gradient))} == {jnp.dtype(jnp.float32)}
    exact, gradient = (np.asarray(tree.ravel(g)[0]) for g in (exact, gradient))
    assert 0 < np.linalg.norm(gradient - exact) < error * np.linalg.norm(exact)


def test_steps_below_the_rounding_of_a_weight_are_kept(key):
    """In a position of bfloat16, the control, they are lost."""
    low = network.posterior(MLP, (X, Y), Gaussian(0.5), compute_dtype=jnp.bfloat16)
    lost = jax.tree.map(lambda x: x.astype(jnp.bfloat16), low.start)
    moved = []
    for start in (low.start, lost):
        kernel = ex.sgld(ex.Minibatch(low, 8), 1e-12)
        state = kernel.init(key, low.freeze(start))
        state, _ = jax.jit(kernel.step)(key, state)
        pairs = zip(*map(jax.tree.leaves, (state.position, start)), strict=True)
        moved.append(np.mean([np.mean(np.asarray(a != b)) for a, b in pairs]))
    assert moved[0] > 0.9 and moved[1] < 0.1


def test_a_step_in_bfloat16_predicts_as_the_posterior_does(key):
    whole, low = (
        network.posterior(MLP, (X, Y), Gaussian(0.5), compute_dtype=d) for d in (None, jnp.bfloat16)
    )
    kernel = ex.sghmc(ex.Minibatch(low, 20), 2e-3, 20.0)
    more = {"burn_in": 1_000, "thin": 10, "num_chains": 4, "key": key, "progress": False}
    draws = ex.sample(kernel, low.start, 2_000, **more).position
    draws = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), draws)
    mean, mean_low = (np.asarray(network.predict(p, draws, X, Y).mean) for p in (whole, low))
    np.testing.assert_allclose(mean, mean_low, atol=0.02)
    assert np.corrcoef(mean.ravel(), Y)[0, 1] > 0.7


@pytest.mark.parametrize("dtype", ["int8", "nothing", 3])
def test_another_dtype_is_refused(dtype):
    with pytest.raises(TypeError, match="compute_dtype must be a floating-point dtype"):
        network.posterior(MLP, (X, Y), Gaussian(), compute_dtype=dtype)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
@pytest.mark.parametrize("trainable", [None, "layers.1"])
def test_weights_in_half_precision_are_held_in_single(dtype, trainable, key):
    """Rounded for the forward pass alone: small steps are kept, sums are in single precision."""
    low = jax.tree.map(lambda x: x.astype(dtype) if eqx.is_inexact_array(x) else x, MLP)
    data = X.astype(dtype), Y
    posterior = network.posterior(low, data, Gaussian(0.5), trainable=trainable)
    start = posterior.start
    assert {x.dtype for x in jax.tree.leaves(start)} == {jnp.dtype("float32")}
    outputs = np.asarray(jax.vmap(low)(jnp.asarray(data[0])), np.float64)[:, 0]
    expected = -0.5 * ((Y - outputs) / 0.5) ** 2 - np.log(0.5) - 0.5 * np.log(2 * np.pi)
    values = posterior.log_likelihoods(start, posterior.data)
    assert values.dtype == jnp.float32
    np.testing.assert_allclose(values, expected, rtol=1e-5)
    kinds = {x.dtype for x in jax.tree.leaves(posterior.module(start)) if eqx.is_array(x)}
    assert kinds == {jnp.dtype(dtype)}
    again = posterior.position(posterior.module(start))
    jax.tree.map(np.testing.assert_array_equal, again, start)
    kernel = ex.sgld(ex.Minibatch(posterior, 10), 1e-8)
    samples = ex.sample(kernel, start, 5, key=key, progress=False)
    weights = samples.position["network"].layers[1].weight
    assert weights.dtype == jnp.float32 and (np.diff(weights, axis=1) != 0).all()
    rounded = network.posterior(low, data, Gaussian(0.5), compute_dtype=jnp.float16)
    assert rounded.log_likelihoods(rounded.start, rounded.data).dtype == jnp.float32
