"""Models with groups: rows and groups in answers, equal rows counted, parameters in other units."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

import ergodax as ex
from ergodax.groups.layout import similar
from law.test_groups import (
    exact_log_marginals,
    gradients,
    hierarchy,
    log_likelihoods,
    potential,
)

pytestmark = pytest.mark.usefixtures("x64")


@pytest.mark.parametrize("counts", [[1], [3, 3], [1, 2, 40, 3, 1], list(range(1, 30))])
def test_blocks_hold_every_group_once_and_pad_little(counts):
    blocks = similar(np.asarray(counts), saved=1)
    assert sorted(np.concatenate(blocks).tolist()) == list(range(len(counts)))
    cells = sum(max(counts[g] for g in block) * len(block) for block in blocks)
    assert cells <= 1.7 * sum(counts)


@pytest.fixture(scope="module")
def drawn():
    """A normal hierarchy, and 2 x 2,000 draws of its latents at one place."""
    with jax.enable_x64(True):
        posterior, shared, data = hierarchy(False)
        draws = jax.tree.map(lambda a: np.broadcast_to(a, (2, 2_000, *np.shape(a))), shared)
        yield posterior, shared, data, draws, posterior.latents(draws, key=jax.random.key(4))


def test_log_likelihoods_of_rows_and_groups(drawn):
    posterior, shared, (x, y, groups), draws, latents = drawn
    found = posterior.log_likelihoods(draws, latents)
    expected = norm.logpdf(y, x @ shared["mu"] + latents[1, 7][groups], shared["noise"])
    np.testing.assert_allclose(found[1, 7], expected, rtol=1e-10)
    whole = posterior.log_marginals(draws, posterior.marginal(shared))
    exact = exact_log_marginals(False, jax.tree.map(jnp.asarray, shared), (x, y, groups))
    np.testing.assert_allclose(whole[1, 7], exact, rtol=1e-10)
    with pytest.raises(ValueError, match="latents must have shape"):
        posterior.log_likelihoods(draws, latents[:, :5])


def test_predictions_of_old_and_new_groups(drawn, key):
    posterior, shared, _, draws, latents = drawn
    groups = np.array([3, 50, 50, 99])
    x = np.array([[1.0, 0.0], [1.0, 2.0], [1.0, 2.0], [1.0, 0.0]])

    def mean(s, b, row, key):
        x, _ = row
        return x @ s["mu"] + b

    rows = (x, np.zeros(4))
    found = posterior.predict(mean, rows, groups, draws, latents, key=key)
    assert found.shape == (2, 2_000, 4)
    np.testing.assert_allclose(found[..., 0], latents[..., 3] + shared["mu"][0])
    np.testing.assert_array_equal(found[..., 1], found[..., 2])  # the same new group
    effects = found - x @ shared["mu"]
    errors = 0.8 / np.sqrt(4_000) * np.array([1.0, np.sqrt(0.5)])
    for column in (1, 3):  # N(0, .8^2), independent of each other
        off = np.array([effects[..., column].mean(), effects[..., column].std() - 0.8])
        assert (np.abs(off) < 5.0 * errors).all()
    correlation = np.corrcoef(effects[..., 1].ravel(), effects[..., 3].ravel())[0, 1]
    assert abs(correlation) < 5.0 / np.sqrt(4_000)
    observe = lambda s, b, row, key: jax.random.normal(key)  # noqa: E731
    noise = posterior.predict(observe, rows, groups, draws, latents, key=key)
    assert np.unique(noise).size == noise.size


def test_arviz_leaves_rows_out(drawn):
    import arviz_stats

    posterior, _, _, draws, latents = drawn
    rng = np.random.default_rng(0)
    moved = {**draws, "noise": draws["noise"] * np.exp(0.02 * rng.normal(size=(2, 2_000)))}
    told = posterior.to_arviz(ex.Samples(moved, None, None), latents)
    assert told["posterior"]["latent"].shape == (2, 2_000, 10)
    found: Any = arviz_stats.loo(told)  # pyright: ignore[reportPrivateImportUsage]
    assert found.n_data_points == 73
    rows = posterior.log_likelihoods(moved, latents)
    assert found.elpd < np.log(np.exp(rows).mean(axis=(0, 1))).sum() < 0.0


def repeated(extra):
    """A logistic model whose rows are mostly the same; `extra` tells all of them apart."""
    rng = np.random.default_rng(5)
    groups = np.concatenate([np.arange(6), rng.integers(6, size=194)])
    item, y = rng.integers(3, size=200).astype(np.int32), rng.integers(2, size=200).astype(float)
    data = {"y": y, "item": item} | ({"unused": np.arange(200.0)} if extra else {})

    def likelihood(s, b, row):
        score = b + s["item"][row["item"]]
        return row["y"] * score - jax.nn.softplus(score)

    posterior = ex.groups.GroupedPosterior(
        lambda s: norm.logpdf(s["item"]).sum() + norm.logpdf(s["sd"]),
        lambda b, s: norm.logpdf(b, 0.0, s["sd"]),
        likelihood,
        data,
        groups,
        constraints={"sd": ex.transform.positive},
    )
    return posterior, {"item": np.array([0.3, -0.4, 0.1]), "sd": 0.7}


def test_equal_rows_count_as_often_as_they_are_there():
    (counted, shared), (each, _) = repeated(False), repeated(True)
    assert counted.layout.distinct <= 36 and counted.num_data == each.layout.distinct == 200
    frozen = counted.freeze(shared)
    values = [p.marginal(shared, nodes=9) for p in (counted, each)]
    every = values[0].data
    np.testing.assert_allclose(*(log_likelihoods(m, frozen, every) for m in values), rtol=1e-9)
    joints = [p.joint(shared) for p in (counted, each)]
    z = jnp.asarray(np.random.default_rng(0).normal(size=(6, 1)))
    potentials = [potential(j, {**j.start, "z": z}) for j in joints]
    np.testing.assert_allclose(*potentials, rtol=1e-9)
    draws = jax.tree.map(lambda a: np.broadcast_to(a, (1, 2, *np.shape(a))), shared)
    latents = np.random.default_rng(1).normal(size=(1, 2, 6))
    rows = [p.log_likelihoods(draws, latents) for p in (counted, each)]
    np.testing.assert_allclose(*rows, rtol=1e-9)  # in the order of the user's rows
    once = eqx.tree_at(lambda p: p.layout.times, counted, jnp.ones(counted.layout.distinct))
    wrong = once.joint(shared)
    assert abs(potential(wrong, {**wrong.start, "z": z}) - potentials[0]) > 1.0


@pytest.mark.slow
def test_predicted_modes_lead_to_the_same_integrals():
    posterior, shared = repeated(False)
    searched = posterior.marginal(shared, nodes=41)
    predicted = posterior.marginal(shared, nodes=15, search=False)
    off = {"item": np.array([0.5, -0.1, 0.0]), "sd": 0.4}
    for place in (shared, off):
        frozen = searched.freeze(place)
        exact = log_likelihoods(searched, frozen, searched.data)
        found = log_likelihoods(predicted, frozen, searched.data)
        np.testing.assert_allclose(found, exact, atol=1e-6)
        exact, found = (gradients(m, frozen, searched.data) for m in (searched, predicted))
        np.testing.assert_allclose(found["item"], exact["item"], atol=1e-5)
        np.testing.assert_allclose(found["sd"].value, exact["sd"].value, atol=1e-5)
    # To first order: what is left falls with the square of the distance.
    whitened, errors = predicted.log_likelihood.centres, []
    block = posterior.layout.block(jnp.arange(6, dtype=jnp.int32))
    for step in (0.1, 0.05):
        there = {"item": jnp.asarray(shared["item"]) + step, "sd": jnp.float64(0.7)}
        mode = functools.partial(posterior.density.mode, there)
        exact = block.over(mode, jnp.zeros((6, 1))).mean
        errors.append(np.abs(whitened.laws(there).mean - exact).max())
    assert 3.0 < errors[0] / errors[1] < 5.0


def test_shared_parameters_of_unit_scale_are_the_same_joint():
    posterior, shared = repeated(False)
    joint = posterior.joint(shared)
    root = jnp.asarray(np.linalg.cholesky(0.5 * np.eye(4) + 0.5) * 0.1)
    centre = ex.tree.ravel(ex.tree.freeze(joint.start["shared"]))[0]
    rounded = joint.rounded(centre, root)
    rng = np.random.default_rng(0)
    u, z = jnp.asarray(rng.normal(size=4)), jnp.asarray(rng.normal(size=(6, 1)))
    unravel = ex.tree.ravel(ex.tree.freeze(joint.start["shared"]))[1]
    position = {"shared": unravel(u), "z": z}
    plain = {"shared": unravel(centre + root @ u), "z": z}
    np.testing.assert_allclose(potential(rounded, position), potential(joint, plain), rtol=1e-10)
    back = rounded.constrain.inverse(jax.tree.map(lambda x: x[None], rounded.constrain(position)))
    for a, b in zip(jax.tree.leaves(back), jax.tree.leaves(position), strict=True):
        np.testing.assert_allclose(a[0], b, rtol=1e-8)


def test_it_samples_with_constraints_and_keeps_no_potential(key):
    posterior = ex.groups.GroupedPosterior(
        lambda s: -s["tau"],
        lambda b, s: norm.logpdf(b, 0.0, s["tau"]),
        lambda s, b, y: y * b - jnp.exp(b),
        np.array([0.0, 2.0, 1.0, 3.0]),
        np.array([0, 0, 1, 2]),
        constraints={"tau": ex.transform.positive},
    )
    gradient = ex.groups.GroupMinibatch(posterior, 2, {"tau": 1.0}, inner_steps=2)
    samples = ex.sample(ex.sgld(gradient, 1e-2), {"tau": 1.0}, 50, key=key, progress=False)
    assert samples.position["tau"].min() > 0.0
    with pytest.raises(TypeError, match="marginal"):
        gradient.target.potential(gradient.target.freeze({"tau": 1.0}))
    with pytest.raises(ValueError, match="batch_size=4"):
        ex.groups.GroupMinibatch(posterior, 4, {"tau": 1.0})
