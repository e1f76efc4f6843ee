"""`kernel.step(key, state, batch=...)`: a batch of the user's in place of the one drawn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from conformance.positions import DATA, tree_positions
from conformance.registry import KERNELS, H
from conformance.run import numbers, untyped
from ergodax.kernel import with_batch

ROWS = np.random.default_rng(0).normal(size=(20, 2))
START, SOME = jnp.array([0.3, -0.2]), ROWS[3:10]


def posterior():
    return ex.Posterior(
        lambda w: -0.5 * jnp.sum(w**2), lambda w, x: -jnp.sum(jnp.cosh(x.astype(w.dtype) - w)), ROWS
    )


ESTIMATORS = {
    "minibatch": lambda p: ex.Minibatch(p, 4),
    "control variate": lambda p: ex.ControlVariate(p, 4, jnp.full(2, 0.1)),
    "order 2": lambda p: ex.ControlVariate(p, 4, jnp.full(2, 0.1), order=2),
    "svrg": lambda p: ex.SVRG(p, 4, 2),
    "known": lambda p: ex.KnownCovariance(ex.Minibatch(p, 4, replace=True), 2.0),
    "scores": lambda p: ex.ScoreCovariance(ex.Minibatch(p, 4), "dense"),
    "scores of svrg": lambda p: ex.ScoreCovariance(ex.SVRG(p, 4, 2), "dense", rows="all"),
}


def estimate(estimator, batch, key):
    state = estimator.init(key, START)
    for k in jax.random.split(key):  # so that a snapshot is not where the position is
        _, state = estimator.estimate(k, state, START + 0.1)
    return with_batch(estimator, batch).estimate(key, state, START)[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ESTIMATORS)
def test_all_rows_give_the_exact_gradient(name, key, x64):
    found = estimate(ESTIMATORS[name](posterior()), ROWS, key)
    potential, gradient = posterior().value_and_gradient(START)
    np.testing.assert_allclose(found.gradient, gradient, rtol=1e-6)
    np.testing.assert_allclose(found.potential, potential, rtol=1e-6)


def test_a_batch_is_scaled_by_its_own_size(key, x64):
    found = estimate(ex.Minibatch(posterior(), 4), SOME, key)
    np.testing.assert_allclose(found.potential, posterior().potential_on(START, SOME), rtol=1e-6)
    assert int(found.evaluations) == len(SOME)
    scores = posterior().per_example_gradients(START, SOME)
    factor = 20 * (20 - 7) / 7
    found = estimate(ESTIMATORS["scores"](posterior()), SOME, key)
    np.testing.assert_allclose(found.covariance.matrix, factor * np.cov(scores.T), rtol=1e-6)


SAMPLERS = {
    "sgld": ex.sgld,
    "sghmc": ex.sghmc,
    "langevin": ex.langevin,
    "sgnht": ex.sgnht,
    "psgld": ex.psgld,
    "cyclical": lambda g, h: ex.cyclical(ex.sghmc, g, h, period=4, resample=True),
    "accumulate": lambda g, h: ex.online.accumulate(ex.sgld(g, h), m=ex.online.Moments()),
    "replica exchange": lambda g, h: ex.replica_exchange(ex.sgld, g, h, temperatures=(1, 2)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLERS)
def test_a_step_on_all_rows_is_that_of_the_exact_gradient(name, key):
    make = SAMPLERS[name]
    ours, exact = make(ex.Minibatch(posterior(), 4), 0.01), make(ex.FullGradient(posterior()), 0.01)
    start = exact.init(key, START)
    expected = exact.step(key, start)[0]
    if name not in ("langevin", "sgnht"):  # whose states begin with an estimate
        start = ours.init(key, START)
    state = jax.jit(ours.step)(key, start, batch=ROWS)[0]
    np.testing.assert_allclose(numbers(state), numbers(expected), rtol=1e-4, atol=1e-6)
    other = ours.step(key, start)[0]
    assert not np.allclose(numbers(state), numbers(other), rtol=1e-4)


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_takes_a_batch_or_says_that_it_takes_none(name):
    kernel, key = KERNELS[name](H), jax.random.key(0)
    state = jax.eval_shape(kernel.init, key, tree_positions()["dict"])

    def step(key, state, batch):
        return kernel.step(key, state, batch=batch)

    kinds = ("minibatch", "Minibatch(", "SVRG(", "ControlVariate(")
    if any(kind in str(kernel) for kind in kinds):
        after, _ = jax.eval_shape(step, key, state, DATA[:7])
        same = jax.tree.map(lambda a, b: (a.shape, a.dtype) == (b.shape, b.dtype), state, after)
        assert all(jax.tree.leaves(same))
    else:
        with pytest.raises(TypeError, match="batch= can't be used"):
            jax.eval_shape(step, key, state, DATA[:7])


WRONG = {
    "other columns": np.ones((4, 3)),
    "a single row": np.ones(2),
    "no row": np.ones((0, 2)),
    "another tree": (np.ones((4, 2)),),
}


@pytest.mark.parametrize("name", WRONG)
def test_rows_that_are_not_like_the_data(name, key):
    kernel = untyped(ex.sgld(ex.Minibatch(posterior(), 4), 0.01))
    with pytest.raises(ValueError, match="batch must have rows like those of the data"):
        kernel.step(key, kernel.init(START), batch=WRONG[name])


@pytest.mark.parametrize(
    "make",
    [
        lambda: ex.nogin(ex.ScoreCovariance(ex.Minibatch(posterior(), 4)), 0.01),
        lambda: ex.sgfs(ex.Minibatch(posterior(), 4), 0.01),
    ],
)
def test_one_row_has_no_covariance(make, key):
    kernel = untyped(make())
    with pytest.raises(ValueError, match="batch_size must be at least 2, not 1"):
        kernel.step(key, kernel.init(key, START), batch=ROWS[:1])


def test_a_loop_over_a_loader_samples_the_posterior(key):
    """Batches of the user's own, shuffled outside; the law is that of the library's own."""
    rows = np.random.default_rng(1).normal(loc=0.5, size=(200, 1)).astype(np.float32)
    model = ex.Posterior(lambda w: 0, lambda w, x: -0.5 * jnp.sum((x - w) ** 2), rows)
    kernel = untyped(ex.sgld(ex.Minibatch(model, 10), 1e-4))

    def walk(state, keys):
        def one(state, key):
            place, noise = jax.random.split(key)
            batch = jax.random.choice(place, model.data, (20,), replace=False)
            state, _ = kernel.step(noise, state, batch=batch)
            return state, state.position

        return jax.lax.scan(one, state, keys)[1]

    draws = jax.jit(walk)(kernel.init(jnp.zeros(1)), jax.random.split(key, 20_000))[1_000:]
    # The mean is exact; the variance of the stationary law of the recursion, to 5 %.
    n, size, h = 200, 20, 1e-4
    noise = n * (n - size) / size * float(rows.var(ddof=1))
    variance = (h * noise + 2.0) / (n * (2.0 - h * n))
    ess = len(draws) * h * n / 2.0
    assert abs(float(draws.mean()) - rows.mean()) < 5.0 * np.sqrt(variance / ess)
    assert abs(float(draws.var()) / variance - 1.0) < 5.0 * np.sqrt(2.0 / ess)
