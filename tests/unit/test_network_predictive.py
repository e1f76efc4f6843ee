"""Predictions averaged while a chain runs are those of the stored draws."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

import ergodax as ex
from ergodax import network

RNG = np.random.default_rng(3)
X, X_TEST = (RNG.normal(size=(n, 2)).astype(np.float32) for n in (20, 7))
Y, Y_TEST = (x[:, 0].astype(np.float32) for x in (X, X_TEST))
LABELS, LABELS_TEST = (RNG.integers(3, size=n) for n in (20, 7))


def regression():
    module = eqx.nn.MLP(2, 1, 4, 1, key=jax.random.key(0))
    return network.posterior(module, (X, Y), network.likelihoods.Gaussian()), Y_TEST


def classification():
    module = eqx.nn.MLP(2, 3, 4, 1, key=jax.random.key(0))
    return network.posterior(module, (X, LABELS), network.likelihoods.Categorical()), LABELS_TEST


def outputs_of(posterior, position):
    """Outputs of every draw for the test rows, shape (draws, n, outputs), by the module itself."""
    draws = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), position)
    count = len(jax.tree.leaves(draws)[0])
    modules = [posterior.module(jax.tree.map(lambda x, k=k: x[k], draws)) for k in range(count)]
    return np.stack([jax.vmap(m)(X_TEST) for m in modules]).astype(float), draws


def compare(prediction, posterior, position):
    outputs, draws = outputs_of(posterior, position)
    assert prediction.count == len(outputs)
    close: dict[str, Any] = {"rtol": 2e-4, "atol": 2e-5}
    if outputs.shape[-1] == 3:
        each = special.softmax(outputs, axis=-1)
        density = np.log(each[:, np.arange(7), LABELS_TEST])
        entropy = special.entr(each).sum(axis=-1).mean(axis=0)
        np.testing.assert_allclose(prediction.draw_entropy, entropy, **close)
        assert prediction.noise is None and prediction.below is None
    else:
        each, noise = outputs[..., 0], np.exp(np.asarray(draws["log_noise"], float))[:, None]
        density = stats.norm.logpdf(Y_TEST[None], each, noise)
        below = stats.norm.cdf(Y_TEST[None], each, noise).mean(axis=0)
        np.testing.assert_allclose(prediction.below, below, **close)
        np.testing.assert_allclose(prediction.noise, (noise**2).mean(), **close)
    np.testing.assert_allclose(prediction.mean, each.mean(axis=0), **close)
    np.testing.assert_allclose(prediction.spread, each.var(axis=0, ddof=1), rtol=2e-3, atol=1e-6)
    averaged = special.logsumexp(density, axis=0) - np.log(len(density))
    np.testing.assert_allclose(prediction.log_density, averaged, **close)
    np.testing.assert_allclose(prediction.draw_log_density, density.mean(axis=0), **close)
    assert (prediction.log_density >= prediction.draw_log_density - 1e-6).all()


def run(kernel, posterior, steps, key, **more):
    common = {"num_chains": 2, "key": key, "progress": False}
    return ex.sample(kernel, posterior.start, steps, **common, **more)


@pytest.mark.slow
@pytest.mark.parametrize("problem", [regression, classification])
def test_streamed_and_stored_agree(problem, key):
    posterior, targets = problem()
    inside = ex.sgld(ex.Minibatch(posterior, 5), 5e-3)
    kernel = network.predictive(inside, posterior, X_TEST, targets, after=10, every=3)
    samples = run(kernel, posterior, 40, key)
    # Steps 11, 14, ... count: `every` begins after burn-in.
    counted = jax.tree.map(lambda x: x[:, 12::3], samples.position)
    compare(kernel.results(samples), posterior, counted)
    stored = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), counted)
    compare(network.predict(posterior, stored, X_TEST, targets), posterior, counted)


@pytest.mark.slow
def test_only_the_sampling_stage_counts(key):
    posterior, targets = regression()
    gradient = ex.Minibatch(posterior, 5)
    inside = ex.cyclical(ex.sgld, gradient, 5e-3, period=10, exploration=0.7)
    kernel = network.predictive(inside, posterior, X_TEST, targets)
    samples = run(kernel, posterior, 30, key)
    prediction = kernel.results(samples)
    assert prediction.count == 2 * 3 * 3
    compare(prediction, posterior, samples.sampling_stage().position)


@pytest.mark.slow
def test_without_targets_there_is_no_density(key):
    posterior, _ = classification()
    kernel = network.predictive(ex.sgld(ex.Minibatch(posterior, 5), 5e-3), posterior, X_TEST)
    prediction = kernel.results(run(kernel, posterior, 4, key))
    assert prediction.log_density is None and prediction.mean.shape == (7, 3)
    np.testing.assert_allclose(prediction.mean.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(prediction.variance, prediction.mean * (1 - prediction.mean))


@pytest.mark.slow
def test_nothing_grows_with_the_run(key):
    posterior, targets = classification()
    inside = ex.sgld(ex.Minibatch(posterior, 5), 5e-3)
    kernel = network.predictive(inside, posterior, X_TEST, targets)
    samples = run(kernel, posterior, 60, key, thin=60, collect=lambda position: jnp.zeros(()))
    assert np.shape(samples.position) == (2, 1) and kernel.results(samples).count == 120


@pytest.mark.slow
def test_a_part_of_the_rows(key):
    posterior, targets = regression()
    positions = jax.tree.map(lambda x: jnp.stack([x, x]), ex.tree.freeze(posterior.start))
    whole = network.predict(posterior, positions, X_TEST, targets)
    part = whole[:3]
    np.testing.assert_array_equal(part.mean, whole.mean[:3])
    assert part.noise is not None and part.below is not None
    assert part.noise == whole.noise and len(part.below) == 3
    np.testing.assert_allclose(part.variance, part.spread + part.noise)


@pytest.mark.slow
def test_the_density_of_many_unlikely_draws_does_not_underflow():
    """A target two hundred standard deviations off has density exp(-20000)."""
    posterior, _ = regression()
    positions = jax.tree.map(lambda x: jnp.stack([x] * 3), ex.tree.freeze(posterior.start))
    far = np.full(7, 60.0, np.float32)
    prediction = network.predict(posterior, positions, X_TEST, far)
    assert prediction.log_density is not None and prediction.draw_log_density is not None
    assert (prediction.log_density < -1e4).all() and np.isfinite(prediction.log_density).all()
    np.testing.assert_allclose(prediction.log_density, prediction.draw_log_density, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("problem", [regression, classification])
def test_outputs_at_hand_predict_as_their_positions(problem):
    """In chunks of any size, for a likelihood whose noise is a number."""
    posterior, targets = problem()
    likelihood = posterior.program.likelihood
    if isinstance(likelihood, network.likelihoods.Gaussian):
        likelihood = network.likelihoods.Gaussian(0.3)
        module = eqx.nn.MLP(2, 1, 4, 1, key=jax.random.key(0))
        posterior = network.posterior(module, (X, Y), likelihood)
    start = ex.tree.freeze(posterior.start)
    positions = jax.tree.map(lambda x: jnp.stack([x, 0.5 * x, -x]), start)
    outputs, _ = outputs_of(posterior, jax.tree.map(lambda x: x[None], positions))
    expected = network.predict(posterior, positions, X_TEST, targets)
    for chunks in ([outputs], [outputs[:2], outputs[2:]]):
        found = network.predict_from_outputs(chunks, likelihood, targets)
        assert found.count == expected.count == 3
        for name in ("mean", "spread", "log_density", "draw_log_density"):
            np.testing.assert_allclose(
                getattr(found, name), getattr(expected, name), rtol=1e-4, atol=1e-6
            )


@pytest.mark.slow
def test_outputs_that_do_not_fit():
    categorical, gaussian = network.likelihoods.Categorical(), network.likelihoods.Gaussian
    outputs = np.zeros((5, 7, 3))
    for chunks, likelihood, targets, message in [
        ([], categorical, None, "there are no outputs"),
        ([np.zeros(3)], categorical, None, "outputs must have shape"),
        ([outputs[..., 0]], categorical, None, "vector of at least 2 logits"),
        ([outputs], categorical, LABELS_TEST[:3], "7 rows, but 3 targets"),
        ([outputs], gaussian(0.1), Y_TEST, "one output for each number"),
        ([outputs], gaussian(), None, r"learns \['log_noise'\]"),
    ]:
        with pytest.raises(ValueError, match=message):
            network.predict_from_outputs(chunks, likelihood, targets)
    with pytest.raises(TypeError, match="likelihood must be"):
        network.predict_from_outputs([outputs], "softmax")


@pytest.mark.slow
def test_refusals():
    posterior, targets = regression()
    inside = ex.sgld(ex.Minibatch(posterior, 5), 5e-3)
    with pytest.raises(ValueError, match="after must be at least 0"):
        network.predictive(inside, posterior, X_TEST, targets, after=-1)
    with pytest.raises(ValueError, match="every must be at least 1"):
        network.predictive(inside, posterior, X_TEST, targets, every=0)
    with pytest.raises(ValueError, match="7 rows, but 3 targets"):
        network.predictive(inside, posterior, X_TEST, targets[:3])
    with pytest.raises(TypeError, match="must come from network.posterior"):
        network.predictive(inside, 3, X_TEST, targets)
    kernel = network.predictive(inside, posterior, X_TEST, after=100)
    samples = ex.sample(kernel, posterior.start, 4, key=jax.random.key(0), progress=False)
    with pytest.raises(ValueError, match="no draw was counted"):
        kernel.results(samples)


def linear_function():
    """A network that would broadcast over further axes of its parameters."""
    parameters = {"w": jnp.array([[1.0], [-2.0]]), "b": jnp.ones((1, 1))}
    module = network.Function(lambda p, rows: rows @ p["w"] + p["b"], parameters)
    return network.posterior(module, (X, Y), network.likelihoods.Gaussian(0.5))


def stacked(position, *lead):
    factor = np.linspace(0.5, 1.5, int(np.prod(lead)), dtype=np.float32).reshape(lead)
    return jax.tree.map(lambda x: jnp.multiply.outer(factor, x), position)


def test_positions_of_chains_and_draws_are_those_of_all_draws():
    for posterior in (linear_function(), regression()[0]):
        start = ex.tree.freeze(posterior.start)
        found = network.predict(posterior, stacked(start, 4, 10), X_TEST, Y_TEST)
        expected = network.predict(posterior, stacked(start, 40), X_TEST, Y_TEST)
        assert found.count == 40 and found.mean.shape == (7,)
        np.testing.assert_array_equal(found.mean, expected.mean)
        np.testing.assert_array_equal(found.log_density, expected.log_density)


def test_other_positions_are_refused():
    posterior = linear_function()
    start, weights = posterior.start, posterior.start["network"]
    uneven = {"network": {"w": weights["w"][None], "b": jnp.stack([weights["b"]] * 2)}}
    others = {"network": {"w": weights["w"][None]}}
    for wrong in (start, uneven, others, jax.tree.map(lambda x: x[None, :1], start)):
        with pytest.raises(ValueError, match="its shapes after leading axes, such as chains"):
            network.predict(posterior, wrong, X_TEST)
    with pytest.raises(ValueError, match="there are no positions"):
        network.predict(posterior, stacked(start, 0), X_TEST)
    with pytest.raises(TypeError, match="a dict with the keys 'network'"):
        network.predict(posterior, weights, X_TEST)


def test_rows_of_other_columns_and_lists():
    posterior, _ = regression()
    positions = stacked(ex.tree.freeze(posterior.start), 2)
    inside = ex.sgld(ex.Minibatch(posterior, 5), 5e-3)
    for wrong in (X_TEST[:, :1], X_TEST[:, 0]):
        with pytest.raises(ValueError, match="can't be called with one row of inputs of shape"):
            network.predict(posterior, positions, wrong)
        with pytest.raises(ValueError, match="can't be called with one row of inputs of shape"):
            network.predictive(inside, posterior, wrong)
    found = network.predict(posterior, positions, X_TEST.tolist(), Y_TEST.tolist())
    expected = network.predict(posterior, positions, X_TEST, Y_TEST)
    np.testing.assert_array_equal(found.log_density, expected.log_density)
    with pytest.raises(TypeError, match="targets.* has dtype <U1"):
        network.predict(posterior, positions, X_TEST, ["a"] * 7)
    module = eqx.nn.MLP(2, 1, 4, 1, key=jax.random.key(0))
    data = X.tolist(), Y.tolist()
    listed = network.posterior(module, data, network.likelihoods.Gaussian())
    np.testing.assert_array_equal(listed.data[1], Y)


@pytest.mark.parametrize("after", [0, 12])
def test_burn_in_is_not_counted(after, key):
    """Neither from a start, nor where a run goes on from another's state; nor by what is inside."""
    posterior = linear_function()
    inside = ex.online.accumulate(ex.sgld(ex.Minibatch(posterior, 5), 1e-3), m=ex.online.Moments())
    kernel = network.predictive(inside, posterior, X_TEST, after=after)
    far = jax.tree.map(lambda x: x + 50.0, posterior.start)
    first = ex.sample(kernel, far, 20, burn_in=10, num_chains=2, key=key, progress=False)
    common = {"key": key, "progress": False}
    more = ex.sample(kernel, state=first.final_state, num_steps=10, burn_in=5, **common)
    late, steps = max(after - 10, 0), first.position
    both = jax.tree.map(lambda a, b: np.concatenate([a[:, late:], b], axis=1), steps, more.position)
    expected = network.predict(posterior, both, X_TEST)
    found = kernel.results(more)
    assert found.count == expected.count == 2 * (30 - late)
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-4)
    moments = inside.results(more.final_state.inner)["m"]["mean"]
    whole = jax.tree.map(lambda a, b: np.concatenate([a, b], axis=1), steps, more.position)
    jax.tree.map(
        lambda mean, x: np.testing.assert_allclose(mean, x.mean((0, 1)), rtol=1e-4), moments, whole
    )
