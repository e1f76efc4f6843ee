"""Batch gradients by enumeration of every batch: unbiased, and of the covariance promised."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import ergodax as ex
from ergodax.gradient.batches import corrected

# Four scores with a covariance known by hand: f_i . position has gradient f_i everywhere.
SCORES = np.array([[1.0, 0.0], [2.0, 1.0], [4.0, -1.0], [7.0, 2.0]])
N, SIZE = 4, 2
POINT = np.array([0.5, -1.5])


def log_prior(position):
    return -0.5 * jnp.sum(position**2)


def log_likelihood(position, score):
    return score @ position


def posterior(**options):
    return ex.Posterior(log_prior, log_likelihood, SCORES, **options)


def gradient_on(rows) -> np.ndarray:
    target = posterior()
    batch = jnp.asarray(SCORES)[jnp.asarray(rows)]
    return np.asarray(jax.grad(target.potential_on)(jnp.asarray(POINT), batch))


BATCHES = {
    True: list(itertools.product(range(N), repeat=SIZE)),
    False: list(itertools.combinations(range(N), SIZE)),
}
COVARIANCE = {
    True: np.array([[42.0, 10.0], [10.0, 10.0]]),
    False: np.array([[28.0, 20.0 / 3.0], [20.0 / 3.0, 20.0 / 3.0]]),
}


@pytest.mark.parametrize("replace", [True, False])
def test_mean_and_covariance_over_all_batches(replace, x64):
    gradients = np.stack([gradient_on(rows) for rows in BATCHES[replace]])
    whole = posterior().gradient(jnp.asarray(POINT))
    np.testing.assert_allclose(whole, POINT - SCORES.sum(0), rtol=1e-12)
    np.testing.assert_allclose(gradients.mean(0), whole, rtol=1e-12)
    np.testing.assert_allclose(np.cov(gradients.T, ddof=0), COVARIANCE[replace], rtol=1e-12)
    # E.1: N^2/n S0 with replacement, N(N-n)/n S1 without.
    s0, s1 = np.cov(SCORES.T, ddof=0), np.cov(SCORES.T, ddof=1)
    formula = N**2 / SIZE * s0 if replace else N * (N - SIZE) / SIZE * s1
    np.testing.assert_allclose(formula, COVARIANCE[replace], rtol=1e-12)


@pytest.mark.parametrize("replace", [True, False])
def test_every_batch_is_drawn_and_as_often(replace, key):
    """Which batch an estimate used is read off its gradient; false alarm 1e-5 each."""
    estimator = ex.Minibatch(posterior(), SIZE, replace)
    point, repeats = jnp.asarray(POINT, "float32"), 20_000

    def one(key):
        estimate, _ = estimator.estimate(key, None, point)
        return estimate.gradient, estimate.potential

    gradients, _ = jax.jit(jax.vmap(one))(jax.random.split(key, repeats))
    unordered = sorted({tuple(sorted(rows)) for rows in BATCHES[replace]})
    expected = np.stack([gradient_on(rows) for rows in unordered])
    distance = np.abs(np.asarray(gradients)[:, None] - expected).sum(axis=2)
    assert distance.min(axis=1).max() < 1e-4, "an estimate that no batch gives"
    counts = np.bincount(distance.argmin(axis=1), minlength=len(unordered))
    ways = [sum(tuple(sorted(b)) == u for b in BATCHES[replace]) for u in unordered]
    frequencies = repeats * np.array(ways) / sum(ways)
    assert stats.chisquare(counts, frequencies).pvalue > 1e-5


@pytest.mark.parametrize("replace", [True, False])
def test_scores_belong_to_the_estimate(replace, key):
    """With s their mean, the gradient is -grad log_prior - N s."""
    estimator = ex.Minibatch(posterior(), SIZE, replace)
    point = jnp.asarray(POINT, "float32")
    for k in jax.random.split(key, 5):
        estimate, _ = estimator.estimate(k, None, point)
        scores = estimator.per_example_gradients(k, None, point)
        assert scores.shape == (SIZE, 2)
        rebuilt = -posterior().prior_gradient(point) - N * scores.mean(axis=0)
        np.testing.assert_allclose(estimate.gradient, rebuilt, rtol=1e-5)
        assert int(estimate.evaluations) == SIZE and estimate.covariance is None


def test_full_gradient_and_its_scores(key):
    target, point = posterior(), jnp.asarray(POINT, "float32")
    estimator = ex.FullGradient(target)
    estimate, _ = estimator.estimate(key, estimator.init(key, point), point)
    np.testing.assert_allclose(estimate.gradient, POINT - SCORES.sum(0), rtol=1e-6)
    np.testing.assert_allclose(
        estimate.potential, 0.5 * POINT @ POINT - (SCORES @ POINT).sum(), rtol=1e-6
    )
    scores = target.per_example_gradients(point, target.data)
    np.testing.assert_allclose(scores, SCORES, rtol=1e-6)
    assert int(estimate.evaluations) == N


def test_a_batched_likelihood_gives_the_same(x64):
    point = jnp.asarray(POINT)
    one = posterior()
    many = ex.Posterior(log_prior, lambda w, batch: batch @ w, SCORES, batched=True)
    batch = jnp.asarray(SCORES[:3])
    np.testing.assert_allclose(many.potential(point), one.potential(point), rtol=1e-12)
    np.testing.assert_allclose(
        many.per_example_gradients(point, batch), one.per_example_gradients(point, batch)
    )


def test_shuffled_epochs_sum_to_the_whole_gradient(key):
    """The batches of a pass are a partition, so their mean gradient is exact."""
    estimator = ex.Minibatch(posterior(), SIZE, batching=ex.data.ShuffledEpochs())
    point = jnp.asarray(POINT, "float32")
    keys = jax.random.split(key, 3)
    state = estimator.init(keys[0], point)
    gradients = []
    for k in keys[1:]:
        estimate, state = estimator.estimate(k, state, point)
        gradients.append(estimate.gradient)
    np.testing.assert_allclose(np.mean(gradients, axis=0), POINT - SCORES.sum(0), rtol=1e-5)


def test_batch_sizes_of_numpy_are_integers():
    assert type(ex.Minibatch(posterior(), np.int64(2)).batch_size) is int


def test_what_is_known_and_the_rest_make_the_posterior(x64):
    """U = -prior - known - N / n rest, and so its gradient: with the prior's slope of its sign."""
    posterior = ex.Posterior(
        lambda w: -0.7 * w**2, lambda w, x: -0.5 * (w - x) ** 2, np.arange(6.0)
    )
    at = jnp.asarray(0.3)
    known, rest = (jnp.asarray(2.0), jnp.asarray(-1.0)), (jnp.asarray(0.25), jnp.asarray(4.0))
    potential, gradient = corrected(posterior, at, known, rest, 2)
    assert potential == pytest.approx(0.7 * 0.09 - 2.0 - 3.0 * 0.25)
    assert gradient == pytest.approx(1.4 * 0.3 + 1.0 - 3.0 * 4.0)
