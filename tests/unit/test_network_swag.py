"""SWAG: the moments are those of SGD's iterates, and draws have the covariance in its docstring."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

import ergodax as ex
from ergodax import network, tree
from ergodax.network.epochs import epoch_keys

RNG = np.random.default_rng(6)
X = RNG.normal(size=(60, 2))
Y = X @ [1.0, -2.0] + 0.5 + 0.3 * RNG.normal(size=60)
BATCH, EPOCHS, RANK, NOISE = 16, 25, 4, 0.5  # the ring of deviations is used six times


def problem(members=2):
    new = [eqx.nn.Linear(2, 1, key=jax.random.key(k)) for k in range(members)]
    likelihood = network.likelihoods.Gaussian(NOISE)
    posterior = network.posterior(new[0], (jnp.asarray(X), jnp.asarray(Y)), likelihood)
    starts = [posterior.position(module) for module in new]
    return posterior, jax.tree.map(lambda *w: jnp.stack(w), *starts)


def fit(posterior, positions, **more):
    settings: Any = {"batch_size": BATCH, "epochs": EPOCHS, "rank": RANK, "progress": False}
    return network.swag(posterior, positions, **({"key": jax.random.key(1)} | settings | more))


def table(positions, lead=1):
    """Weights and bias beside each other, one row for each index of the leading axes."""
    parts = [np.asarray(x) for x in jax.tree.leaves(positions)]
    return np.concatenate([x.reshape(*x.shape[:lead], -1) for x in parts], axis=-1)


def iterates(start, rate, momentum):
    """Of SGD on ridge regression by NumPy, after each epoch: an AR(1) process."""
    rows, prior = np.column_stack([X, np.ones(60)]), np.array([2.0, 2.0, 1.0])
    weights, velocity, found = start.copy(), np.zeros(3), []
    for keys in epoch_keys(EPOCHS, jax.random.key(1), show=False):
        for key in keys:
            order = np.asarray(jax.random.permutation(key, 60))
            for batch in order[: 60 // BATCH * BATCH].reshape(-1, BATCH):
                residuals = rows[batch] @ weights - Y[batch]
                slope = rows[batch].T @ residuals / BATCH / NOISE**2 + prior * weights / 60
                velocity = momentum * velocity + slope
                weights = weights - rate * velocity
            found.append(weights)
    return np.array(found)


@pytest.mark.parametrize("plain", [False, True])
def test_moments_are_those_of_the_iterates(plain):
    with jax.enable_x64(True):
        posterior, starts = problem()
        law = fit(posterior, starts, **({"optimiser": optax.sgd(0.02)} if plain else {}))
        for member in range(2):
            at = iterates(table(starts)[member], *((0.02, 0.0) if plain else (0.01, 0.9)))
            np.testing.assert_allclose(table(law.mean)[member], at.mean(0), rtol=1e-10)
            np.testing.assert_allclose(table(law.diagonal)[member], at.var(0), rtol=1e-8)
            means = np.cumsum(at, axis=0) / np.arange(1, EPOCHS + 1)[:, None]
            last, found = (at - means)[-RANK:], table(law.deviations, 2)[member]
            np.testing.assert_allclose(found.T @ found, last.T @ last, rtol=1e-8)
            # controls: the variance of a sample, the first deviations, those from the last mean
            assert not np.allclose(table(law.diagonal)[member], at.var(0, ddof=1), rtol=1e-3)
            for wrong in ((at - means)[:RANK], (at - at.mean(0))[-RANK:]):
                assert not np.allclose(found.T @ found, wrong.T @ wrong, rtol=1e-3)


def test_one_start_is_one_member():
    posterior, starts = problem(1)
    one, several = fit(posterior, posterior.start), fit(posterior, starts)
    np.testing.assert_array_equal(table(one.deviations, 2), table(several.deviations, 2))
    assert jax.tree.leaves(one.mean)[0].shape == (1, 1, 2)


def test_variances_of_large_weights_keep_their_digits():
    """In single precision the mean of squares less the squared mean would be rounding alone."""

    def variance(rate):
        posterior, starts = problem(1)
        far = jax.tree.map(lambda x: x + 1000.0, starts)
        return table(fit(posterior, far, optimiser=optax.sgd(rate)).diagonal)

    with jax.enable_x64(True):
        exact = variance(1e-7)
    assert (exact < 1000.0**2 * np.finfo(np.float32).eps).all()
    np.testing.assert_allclose(variance(1e-7), exact, rtol=0.05)
    np.testing.assert_array_equal(variance(0.0), 0.0)


def law_of_numbers(members=2):
    """Any three trees of the right shapes."""
    _, starts = problem(members)

    def some(x, *lead):
        return jnp.asarray(RNG.normal(size=(*x.shape[:1], *lead, *x.shape[1:])))

    variance = jax.tree.map(lambda x: some(x) ** 2, starts)
    rank = jax.tree.map(lambda x: some(x, RANK), starts)
    return network.Swag(jax.tree.map(some, starts), variance, rank)


def test_draws_have_exactly_the_covariance():
    """A draw is linear in its normal numbers: its covariance is the Jacobian's J J^T."""
    with jax.enable_x64(True), jax.disable_jit():  # so that the numbers are seen
        law, members, many = law_of_numbers(), 2, 3
        with tree.recorded_normals() as drawn:
            sampled = law.sample(jax.random.key(0), many)
        numbers, unravel = ravel_pytree(drawn)
        assert len(np.unique(numbers)) == members * many * (3 + RANK)  # no number is used twice

        def draws(numbers):
            with tree.given_normals(unravel(numbers)):
                leaves = jax.tree.leaves(law.sample(jax.random.key(0), many))
            return jnp.concatenate([x.reshape(members * many, -1) for x in leaves], 1).ravel()

        centre, slope = draws(0.0 * numbers), np.asarray(jax.jacobian(draws)(numbers))
        np.testing.assert_allclose(centre, np.repeat(table(law.mean), many, 0).ravel(), rtol=1e-12)
        np.testing.assert_allclose(table(sampled).ravel(), centre + slope @ numbers, rtol=1e-10)

        def covariance(near=2.0, far=2.0 * (RANK - 1)):
            blocks = np.zeros((members, many, 3, members, many, 3))
            for m in range(members):
                deviations = table(law.deviations, 2)[m]
                block = np.diag(table(law.diagonal)[m]) / near + deviations.T @ deviations / far
                blocks[m, range(many), :, m, range(many), :] = block
            return blocks.reshape(slope.shape[0], -1)

        np.testing.assert_allclose(slope @ slope.T, covariance(), rtol=1e-10, atol=1e-12)
        for wrong in covariance(near=1.0), covariance(far=RANK - 1.0), covariance(far=2.0 * RANK):
            assert not np.allclose(slope @ slope.T, wrong, rtol=1e-3)


def test_draws_predict():
    posterior, starts = problem()
    draws = fit(posterior, starts).sample(jax.random.key(2), 5)
    found = network.predict(posterior, draws, jnp.asarray(X), jnp.asarray(Y))
    assert found.count == 10
    by_hand = np.column_stack([X, np.ones(60)]) @ table(draws).T
    np.testing.assert_allclose(found.mean, by_hand.mean(1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("wrong", "error", "says"),
    [
        ({"rank": 1}, ValueError, "rank must be at least 2"),
        ({"epochs": 3}, ValueError, "epochs must be at least 4, not 3. Each epoch gives one"),
        ({"batch_size": 0}, ValueError, "batch_size"),
        ({"rate": -0.1}, ValueError, "rate must be positive"),
        ({"rate": 0.1, "optimiser": optax.sgd(0.1)}, ValueError, "Give it to your optimiser"),
        ({"optimiser": 0.1}, TypeError, "one of optax"),
        ({"key": 3}, TypeError, "key"),
        ({"rate": 1e30}, FloatingPointError, "smaller rate"),
    ],
)
def test_what_is_refused(wrong, error, says):
    with pytest.raises(error, match=says):
        fit(*problem(), **wrong)


def test_other_positions_and_posteriors_are_refused():
    posterior, starts = problem()
    with pytest.raises(TypeError, match=r"network\.posterior"):
        fit(ex.Posterior(lambda w: 0.0, lambda w, x: 0.0, X), starts)
    uneven = {"network": eqx.tree_at(lambda m: m.bias, starts["network"], jnp.ones((3, 1)))}
    for wrong in starts["network"], jax.tree.map(lambda x: x[None], starts), uneven:
        with pytest.raises(ValueError, match="leading axis of members"):
            fit(posterior, wrong)
    with pytest.raises(ValueError, match="num_draws must be at least 1"):
        law_of_numbers().sample(jax.random.key(0), 0)
