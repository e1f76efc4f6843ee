"""SAGA: unbiased by enumeration, its table against a plain loop, its sum free of drift."""

import time
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.gradient import saga
from unit import enumerated
from unit.enumerated import CENTRES, SIZE, N, curved, flat, on_every_batch, position

CASES = [("flat", False), ("tree", True)]


def after(estimator, kind, key, steps=3):
    """The state after a few estimates on the way from the centre to the point."""
    centre = position(kind, CENTRES)
    state = estimator.init(key, centre)
    for t in range(steps):
        share = t / steps
        at = jax.tree.map(lambda a, b, s=share: a + s * (b - a), centre, position(kind))
        _, state = estimator.estimate(jax.random.fold_in(key, t), state, at)
    return state


@pytest.mark.parametrize("kind, replace", CASES)
def test_unbiased_over_every_batch(kind, replace, key, x64):
    """Although the table is in single precision: what it says need not be exact."""
    estimator, at = ex.SAGA(curved(), SIZE, replace), position(kind)
    state = after(estimator, kind, key)
    estimates, _ = on_every_batch(estimator, state, at, replace)
    enumerated.assert_unbiased(estimates, at)
    assert enumerated.covariance(estimates).max() > 1e-5, "one batch is not exact"


@pytest.mark.slow
@pytest.mark.parametrize("kind, replace", CASES)
def test_the_covariance_is_that_of_every_batch(kind, replace, key, x64):
    estimator = ex.SAGA(curved(), SIZE, replace)
    state = after(estimator, kind, key)
    enumerated.assert_covariance_is_known(estimator, state, position(kind), replace)


@pytest.mark.slow
def test_the_gradient_is_that_of_the_potential(key, x64):
    estimator = ex.SAGA(curved(), SIZE)
    state = after(estimator, "tree", key)
    enumerated.assert_gradient_of_potential(estimator, state, position("tree"), key)


@pytest.mark.slow
@pytest.mark.parametrize("replace", [False, True])
def test_table_and_estimates_of_a_plain_loop(replace, key, x64):
    """With replacement a row may stand in a batch twice, and counts once in the sum."""
    n, steps, posterior, at = 4, 30, curved(), position("flat")
    estimator = ex.SAGA(posterior, n, replace)
    state = estimator.init(key, at)
    estimate_at = jax.jit(lambda k, state, x: estimator.estimate(k, state, x))
    scores_at = jax.jit(lambda x: posterior.per_example_gradients(x, posterior.data))
    prior_gradient = jax.jit(lambda x: posterior.prior_gradient(x))
    table = np.array(scores_at(at))
    twice = 0
    for t in range(steps):
        k, x = jax.random.fold_in(key, t), at + 0.1 * np.sin(t)
        rows, _ = estimator.batching.draw(k, None, N, n)
        scores = np.array(scores_at(x))
        noise = N / n * sum(scores[i] - table[i] for i in rows)
        expected = -np.array(prior_gradient(x)) - table.sum(axis=0) - noise
        estimate, state = estimate_at(k, state, x)
        np.testing.assert_allclose(estimate.gradient, expected, rtol=1e-6, atol=1e-6)
        table[rows] = scores[rows]
        np.testing.assert_allclose(state.table.slope, table, rtol=1e-6)
        np.testing.assert_allclose(state.sum.score, table.sum(axis=0), rtol=1e-6, atol=1e-6)
        twice += len(set(rows.tolist())) < n
        assert int(estimate.evaluations) == n
    assert (twice > 0) == replace


def test_a_sum_that_counts_rows_twice_is_wrong(key, x64):
    wrong = lambda rows: jnp.ones(rows.shape, bool)  # noqa: E731
    with mock.patch.object(saga, "_first_of_each", wrong):
        state = after(ex.SAGA(curved(), 4, True), "flat", key)
    slopes = np.asarray(state.table.slope, np.float64)
    assert np.abs(state.sum.score - slopes.sum(axis=0)).max() > 1e-2


def drift(passes: int, steps: int = 40_000) -> float:
    """How far the sum is from that of the table, in roundings of the largest partial sum."""
    rng = np.random.default_rng(0)
    x = (1.0 + rng.normal(size=(300, 3))).astype("f4")
    posterior = ex.Posterior(lambda w: -0.5 * w @ w, lambda w, x: -jnp.cosh(x @ w - 1.0), x)
    estimator = ex.SAGA(posterior, 3)
    with mock.patch.object(saga, "PASSES", passes):
        kernel = ex.sgld(estimator, 1e-5)
        # A function of its own, so that no program with another number of passes is used.
        run = jax.jit(
            lambda key, state: jax.lax.fori_loop(
                0, steps, lambda t, s: kernel.step(jax.random.fold_in(key, t), s)[0], state
            )
        )
        state = run(jax.random.key(1), kernel.init(jax.random.key(0), jnp.zeros(3))).gradient
    table = np.asarray(state.table.slope, np.float64)
    unit = np.finfo(np.float32).eps * np.abs(table).sum(axis=0).max()
    return np.abs(np.asarray(state.sum.score) - table.sum(axis=0)).max() / unit


@pytest.mark.slow
def test_rounding_does_not_add_up():
    """The sum is taken anew every 400 steps, the last time after the last step."""
    assert drift(passes=4) < 1.0
    assert drift(passes=10**6) > 5.0, "without them it does"


def test_another_place_to_start_is_another_table(key, x64):
    estimator, centre = ex.SAGA(curved(), SIZE), position("flat", CENTRES)
    state = estimator.init(key, centre)
    expected = curved().per_example_gradients(centre, curved().data)
    np.testing.assert_allclose(state.table.slope, expected, rtol=1e-6)
    assert estimator.set_up_evaluations == N
    estimates, _ = on_every_batch(estimator, state, centre, False)
    np.testing.assert_allclose(np.ptp(estimates.gradient, axis=0), 0.0, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_dtype_of_the_position_is_kept(dtype, key, x64):
    at = jax.tree.map(lambda x: x.astype(dtype), position("tree"))
    estimator = ex.SAGA(curved(), SIZE, True)
    state = estimator.init(key, at)
    estimate, later = jax.eval_shape(estimator.estimate, key, state, at)
    assert jax.eval_shape(lambda s: s, state) == later
    moving = jax.tree.leaves((estimate.gradient, estimate.potential, later.sum))
    assert {x.dtype.name for x in moving} == {dtype}
    assert {x.dtype.name for x in jax.tree.leaves(later.table)} == {"float32"}


def test_a_table_too_large_is_refused(key):
    estimator = ex.SAGA(curved(), SIZE, max_bytes=79)
    with pytest.raises(ValueError, match="needs 80 bytes for each chain.*max_bytes=79. Try ex.SV"):
        estimator.init(key, position("flat"))
    ex.SAGA(curved(), SIZE, max_bytes=80).init(key, position("flat"))


def seconds(rows: int) -> float:
    """The time of a step, the least of several runs."""
    x = np.ones((rows, 4), "f4")
    posterior = ex.Posterior(lambda w: -0.5 * w @ w, lambda w, x: -jnp.cosh(x @ w), x)
    kernel = ex.sgld(ex.SAGA(posterior, 4), 1e-3)

    @jax.jit
    def run(key, state, steps):
        step = lambda t, s: kernel.step(jax.random.fold_in(key, t), s)[0]  # noqa: E731
        return jax.lax.fori_loop(0, steps, step, state)

    state = kernel.init(jax.random.key(0), jnp.zeros(4))

    def took(steps):
        start = time.perf_counter()
        jax.block_until_ready(run(jax.random.key(0), state, steps))
        return time.perf_counter() - start

    took(1)
    return min(took(1000) - took(1) for _ in range(3)) / 1000


@pytest.mark.slow
def test_a_step_does_not_copy_the_table():
    """Of 16 MB, which would take a millisecond; the bound is generous."""
    assert seconds(10**6) < 5e-4


def test_steps_are_counted_since_the_sum_is_computed_anew_after_some(key):
    estimator = ex.SAGA(curved(), SIZE)
    assert [int(after(estimator, "tree", key, steps).step) for steps in (0, 1, 3)] == [0, 1, 3]


@pytest.mark.slow
def test_many_chains(key):
    at = jax.tree.map(lambda x: x.astype("f4"), position("tree"))
    kernel = ex.sghmc(
        ex.ScoreCovariance(ex.SAGA(curved(), SIZE)), 0.02, 8.0, compensate=True, clip=True
    )
    samples = ex.sample(kernel, at, 40, key=key, num_chains=3)
    assert np.isfinite(jax.vmap(jax.vmap(flat))(samples.position)).all()
