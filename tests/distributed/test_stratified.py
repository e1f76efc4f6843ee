"""Batches from shards: unbiased by enumeration, and of the law that their own noise makes."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import solve_discrete_lyapunov

import ergodax as ex
from ergodax.data import Batching, ShuffledEpochs
from ergodax.data.shards import Shards
from ergodax.gradient.sharded import Stratified
from law import batches
from unit import enumerated

N, SHARDS, SIZE = 7, 2, 4  # shards of 4 and 3 rows, two of each in a batch
LENGTHS = (4, 3)
_RNG = np.random.default_rng(5)
DATA = _RNG.normal(size=(N, 2)), _RNG.normal(size=N)


class ByLength(Batching):
    """The rows that the test has chosen for the shard of each length."""

    rows: dict

    def init(self, key, num_rows):
        return None

    def draw(self, key, state, num_rows, batch_size):
        return self.rows[num_rows], state


def posterior():
    return ex.Posterior(enumerated.log_prior, enumerated.log_likelihood, DATA)


def estimator(name: str, kind: str, replace: bool = False) -> Stratified:
    if name == "minibatch":
        return Stratified(ex.Minibatch(posterior(), SIZE, replace), SHARDS)
    order, centre = int(name[-1]), enumerated.position(kind, enumerated.CENTRES)
    return Stratified(ex.ControlVariate(posterior(), SIZE, centre, replace, order=order), SHARDS)


@eqx.filter_jit
def on_every_batch(gradient, at, replace):
    """The estimates with each pair of parts, one from each shard."""
    first, second = (batches.every(n, SIZE // SHARDS, replace) for n in LENGTHS)

    def one(a, b):
        scheme = ByLength(dict(zip(LENGTHS, (a, b), strict=True)))
        chosen = eqx.tree_at(lambda g: g.batching, gradient, scheme)
        return chosen.estimate(jax.random.key(0), None, at)[0]

    each = jax.vmap(jax.vmap(one, (None, 0)), (0, None))(first, second)
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), each)


def assert_unbiased(estimates, at) -> None:
    gradient, potential = enumerated.mean(estimates)
    np.testing.assert_allclose(gradient, enumerated.flat(posterior().gradient(at)), rtol=1e-11)
    np.testing.assert_allclose(potential, posterior().potential(at), rtol=1e-11)


@pytest.mark.parametrize(
    "name, kind, replace",
    [
        ("minibatch", "flat", False),
        ("minibatch", "tree", True),
        ("control variate 1", "tree", False),
        ("control variate 2", "flat", True),
    ],
)
def test_unbiased_over_every_batch_of_unequal_shards(name, kind, replace, x64):
    at = enumerated.position(kind)
    estimates = on_every_batch(estimator(name, kind, replace), at, replace)
    assert_unbiased(estimates, at)
    assert enumerated.covariance(estimates).max() > 1e-6, "no noise"


class EqualWeights(Shards):
    """The fault: every row stands for N / n rows, whatever the size of its shard."""

    def draw(self, key, batching, size):
        for _, batch in Shards.draw(self, key, batching, size):
            yield jnp.float32(self.num_rows / (self.count * size)), batch


def test_equal_weights_for_unequal_shards_are_biased(x64):
    at, right = enumerated.position("flat"), estimator("minibatch", "flat")
    fault: Any = EqualWeights
    wrong = eqx.tree_at(lambda g: g.shards, right, fault(right.target.data, SHARDS))
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_unbiased(on_every_batch(wrong, at, False), at)


def noise_of(scores: np.ndarray, shards: int, size: int) -> Any:
    """sum over k of N_k (N_k - n_k) / n_k S_k, n_k = size / shards."""
    n = size // shards
    parts = np.array_split(scores, shards)
    return sum(len(x) * (len(x) - n) / n * np.cov(x.T, ddof=1) for x in parts)


def test_the_noise_is_that_within_the_shards(x64):
    at = enumerated.position("flat")
    found = enumerated.covariance(on_every_batch(estimator("minibatch", "flat"), at, False))
    scores = posterior().per_example_gradients(at, posterior().data)
    np.testing.assert_allclose(found, noise_of(np.asarray(scores), SHARDS, SIZE), rtol=1e-10)


@pytest.mark.parametrize("rows, shards", [(12, 4), (13, 4), (15, 4), (5, 5), (7, 2)])
def test_shards_are_the_rows_in_order(rows, shards, key):
    data = {"x": jnp.arange(rows), "y": jnp.arange(2.0 * rows).reshape(rows, 2)}
    split = Shards(data, shards)
    jax.tree.map(np.testing.assert_array_equal, split.whole(), data)
    scheme = ex.data.WithReplacement()
    drawn = jax.vmap(lambda k: [(w, b["x"][0]) for w, b in split.draw(k, scheme, 1)])(
        jax.random.split(key, 200)
    )
    # A row of at most 7 is missed by 200 draws with probability below 1e-12.
    for (weight, seen), part in zip(drawn, np.array_split(range(rows), shards), strict=True):
        assert set(np.asarray(weight)) == {len(part)}
        np.testing.assert_array_equal(np.unique(seen), part)


# A Gaussian posterior whose shards differ, so that a batch from all rows has far more noise.
ROWS, BATCH, STEP, CHAINS, STEPS = 21, 4, 0.04, 20_000, 12
POINTS = np.sort(2.0 * _RNG.normal(size=(ROWS, 2)), axis=0).astype(np.float32)
Z_MOST = 5.3  # six comparisons beyond it in all with probability 7e-7


def gaussian():
    return ex.Posterior(
        lambda w: -0.5 * jnp.sum(w**2), lambda w, x: -0.5 * jnp.sum((x - w) ** 2), POINTS
    )


def z_scores(gradient, noise: np.ndarray, key) -> np.ndarray:
    """The last positions' covariance beside the Lyapunov equation's, in standard errors."""
    samples = ex.sample(
        ex.sgld(gradient, STEP), jnp.zeros(2, jnp.float32), STEPS, thin=STEPS, key=key,
        num_chains=CHAINS, progress=False,
    )  # fmt: skip
    matrix = (1 - STEP * (ROWS + 1)) * np.eye(2)
    law = solve_discrete_lyapunov(matrix, 2 * STEP * np.eye(2) + STEP**2 * noise)
    found = np.cov(samples.position[:, 0].T)
    variances = np.diag(law)
    error = np.sqrt((law**2 + np.outer(variances, variances)) / CHAINS)
    return (found - law)[np.triu_indices(2)] / error[np.triu_indices(2)]


@pytest.mark.slow
def test_the_law_is_that_of_the_stratified_noise(key):
    batch = ex.Minibatch(gaussian(), BATCH)
    within, among = noise_of(POINTS, SHARDS, BATCH), noise_of(POINTS, 1, BATCH)
    assert within.max() > 2 / STEP and (np.diag(among) > 1.5 * np.diag(within)).all()
    split = Stratified(batch, SHARDS)
    assert np.abs(z_scores(split, within, key)).max() < Z_MOST
    assert np.abs(z_scores(batch, among, key)).max() < Z_MOST, "the check is right for Minibatch"
    assert np.abs(z_scores(batch, within, key)).max() > 3 * Z_MOST, "and tells the two apart"


@pytest.mark.slow
def test_the_gradient_is_that_of_the_potential(key, x64):
    at = enumerated.position("flat")
    split = estimator("control variate 2", "flat")
    enumerated.assert_gradient_of_potential(split, None, at, key)
    assert split.estimate(key, None, at)[0].evaluations == 3 * SIZE


@pytest.mark.parametrize(
    "make, error, message",
    [
        (lambda p: Stratified(ex.SVRG(p, 4, 5), 2), TypeError, "not a SVRG"),
        (lambda p: Stratified(ex.FullGradient(p), 2), TypeError, "not a FullGradient"),
        (lambda p: Stratified(ex.Minibatch(p, 4), 0), ValueError, "shards must be at least 1"),
        (lambda p: Stratified(ex.Minibatch(p, 5), 2), ValueError, "Try batch_size=4"),
        (
            lambda p: Stratified(ex.Minibatch(p, 4, batching=ShuffledEpochs()), 2),
            ValueError,
            "has a state",
        ),
    ],
)
def test_what_can_not_be_split_says_why(make, error, message):
    with pytest.raises(error, match=message):
        make(gaussian())
