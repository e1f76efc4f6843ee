"""Deep ensembles: members are independent, stop in time and are kept at their best."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

import ergodax as ex
from ergodax import network, tree

RNG = np.random.default_rng(5)
X = RNG.normal(size=(60, 2)).astype(np.float32)
Y = (X @ [1.0, -2.0] + 0.5).astype(np.float32)


def linear(key):
    return eqx.nn.Linear(2, 1, key=jax.random.key(key))


def problem(members=3):
    posterior = network.posterior(linear(0), (X, Y), network.likelihoods.Gaussian(0.1))
    starts = [posterior.position(linear(k)) for k in range(members)]
    return posterior, jax.tree.map(lambda *w: jnp.stack(w), *starts)


def search(posterior, starts, **more):
    settings = {"key": jax.random.key(1), "progress": False, "batch_size": 16, "epochs": 200}
    return network.deep_ensemble(posterior, starts, **(settings | more))


def test_every_member_finds_the_mode_and_none_knows_of_the_others():
    posterior, starts = problem()
    found = search(posterior, starts)
    # the mode: ridge regression, the prior's precision being 2 for weights and 1 for the bias
    rows = np.column_stack([X, np.ones(60)])
    mode = np.linalg.solve(rows.T @ rows / 0.01 + np.diag([2.0, 2.0, 1.0]), rows.T @ Y / 0.01)
    weight, bias = jax.tree.leaves(found.positions)
    np.testing.assert_allclose(weight[:, 0], np.tile(mode[:2], (3, 1)), atol=0.01)
    np.testing.assert_allclose(bias[:, 0], mode[2], atol=0.01)
    second = search(posterior, jax.tree.map(lambda x: x[1:2], starts), epochs=20)
    np.testing.assert_allclose(
        second.losses[:, 0], search(posterior, starts, epochs=20).losses[:, 1], rtol=1e-4
    )


def test_a_member_is_kept_as_it_was_at_its_best():
    posterior, starts = problem()
    # a rate that is too large: the loss goes up and down
    found = search(posterior, starts, optimiser=optax.sgd(0.02), held_out=0.5, epochs=30)
    order = jax.random.permutation(jax.random.split(jax.random.key(1))[0], 60)[:30]
    density = stats.norm.logpdf
    weight, bias = (np.asarray(x, float) for x in jax.tree.leaves(found.positions))
    for member in range(3):
        mean = X[order] @ weight[member, 0] + bias[member, 0]
        loss = -density(Y[order], mean, 0.1).mean()
        np.testing.assert_allclose(loss, found.losses[:, member].min(), rtol=1e-3)
    assert (found.losses[-1] > found.losses.min(axis=0)).any()


def test_it_stops_where_nobody_becomes_better():
    posterior, starts = problem()
    still = search(posterior, starts, optimiser=optax.sgd(0.0), patience=10)
    assert len(still.losses) == 20  # the first epoch is the best, and every tenth is looked at
    assert len(search(posterior, starts, epochs=7).losses) == 7


def test_what_is_refused():
    posterior, starts = problem()
    with pytest.raises(TypeError, match="network.posterior"):
        search(ex.Posterior(lambda w: 0.0, lambda w, x: 0.0, X), starts)
    with pytest.raises(ValueError, match="leaves none"):
        search(posterior, starts, held_out=0.001)
    with pytest.raises(ValueError, match="leading axis of members"):
        search(posterior, starts["network"])
    with pytest.raises(TypeError, match="one of optax"):
        search(posterior, starts, optimiser=0.1)
    with pytest.raises(FloatingPointError, match="learning rate"):
        search(posterior, starts, optimiser=optax.sgd(1e30))


def test_a_member_that_never_had_a_finite_loss_is_named():
    posterior, starts = problem()
    bad = jax.tree.map(lambda x: x.at[jnp.array([0, 2])].set(3e30), starts)
    with pytest.raises(FloatingPointError, match=r"loss of members \[0 2\] was NaN.*rate"):
        search(posterior, bad, epochs=5)


def test_members_are_kept_where_the_last_epochs_are_lost():
    """Four epochs of three steps each are at a small rate, those after them at one without end."""
    posterior, starts = problem()
    optimiser = optax.sgd(lambda step: jnp.where(jnp.asarray(step) < 12, 0.001, 1e30))
    found = search(posterior, starts, optimiser=optimiser, epochs=20)
    assert not np.isfinite(found.losses[-1]).any()
    early = search(posterior, starts, optimiser=optax.sgd(0.001), epochs=4)
    best = early.losses.min(axis=0)
    np.testing.assert_allclose(np.nanmin(found.losses, axis=0), best, rtol=1e-5)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4), found.positions, early.positions
    )


def test_noise_that_differs_between_rows():
    """Density, outlook and predictive variance by hand."""
    likelihood = network.likelihoods.HeteroscedasticGaussian(0.1)
    module = eqx.nn.Linear(2, 2, key=jax.random.key(0))
    posterior = network.posterior(module, (X, Y), likelihood)
    outputs = np.asarray(jax.vmap(module)(jnp.asarray(X)), float)
    sd = 0.1 + np.log1p(np.exp(outputs[:, 1]))
    expected = stats.norm.logpdf(Y, outputs[:, 0], sd)
    values = posterior.log_likelihoods(tree.freeze(posterior.start), posterior.data)
    np.testing.assert_allclose(values, expected, rtol=1e-4)
    one = jax.tree.map(lambda x: x[None], posterior.start)
    found: Any = network.predict(posterior, one, X, Y)
    np.testing.assert_allclose(found.variance, sd**2, rtol=1e-4)
    np.testing.assert_allclose(found.log_density, expected, rtol=1e-4)
    np.testing.assert_allclose(found[:3].noise, sd[:3] ** 2, rtol=1e-4)
    with pytest.raises(ValueError, match="two outputs"):
        network.posterior(linear(0), (X, Y), likelihood)
