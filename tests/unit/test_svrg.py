"""SVRG: unbiased by enumeration, and a new snapshot exactly when it is due."""

from typing import Any
from unittest import mock

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax import control_flow
from unit import enumerated
from unit.enumerated import CENTRES, SIZE, N, curved, flat, on_every_batch, position

CASES = [("flat", False), ("tree", True)]


def away(estimator, kind, key):
    """The state after an estimate somewhere else, where the snapshot is."""
    centre = position(kind, CENTRES)
    return estimator.estimate(key, estimator.init(key, centre), centre)[1]


@pytest.mark.parametrize("kind, replace", CASES)
def test_unbiased_over_every_batch(kind, replace, key, x64):
    estimator, at = ex.SVRG(curved(), SIZE, 3, replace), position(kind)
    state = away(estimator, kind, key)
    estimates, _ = on_every_batch(estimator, state, at, replace)
    enumerated.assert_unbiased(estimates, at)
    assert enumerated.covariance(estimates).max() > 1e-5, "one batch is not exact"
    same = ex.ControlVariate(curved(), SIZE, position(kind, CENTRES), replace)
    expected, _ = on_every_batch(same, None, at, replace)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10),
        (estimates.gradient, estimates.potential),
        (expected.gradient, expected.potential),
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind, replace", CASES)
def test_the_covariance_is_that_of_every_batch(kind, replace, key, x64):
    estimator = ex.SVRG(curved(), SIZE, 3, replace)
    state = away(estimator, kind, key)
    enumerated.assert_covariance_is_known(estimator, state, position(kind), replace)


def test_a_renewal_is_exact(key, x64):
    """No noise, and a covariance of zero, which the old snapshot would not give."""
    estimator, at = ex.SVRG(curved(), SIZE, 1), position("flat")
    state = away(estimator, "flat", key)
    estimates, _ = on_every_batch(estimator, state, at, False)
    enumerated.assert_unbiased(estimates, at)
    assert np.ptp(estimates.gradient, axis=0).max() == 0.0
    assert np.abs(estimator.scores_of(state, at, jnp.arange(N, dtype=jnp.int32))).max() == 0.0


@pytest.mark.parametrize("period", [1, 3])
def test_the_gradient_is_that_of_the_potential(period, key, x64):
    estimator = ex.SVRG(curved(), SIZE, period)
    state = away(estimator, "tree", key)
    enumerated.assert_gradient_of_potential(estimator, state, position("tree"), key)


class Count:
    """How many log-likelihoods are computed as the compiled program runs."""

    def __init__(self):
        self.computed = 0

    def posterior(self):
        def add(_):
            self.computed += 1

        def likelihood(w, x):
            jax.debug.callback(add, w @ x)
            return -jnp.cosh(w @ x)

        return ex.Posterior(lambda w: -0.5 * jnp.sum(w**2), likelihood, np.ones((N, 2), "f4"))


def evaluations(chains=3, steps=7, **options):
    """Computed, and as the estimates count, step by step and summed over chains."""
    count = Count()
    estimator = ex.SVRG(count.posterior(), SIZE, 3, **options)
    keys = jax.random.split(jax.random.key(1), chains)
    at = jax.random.normal(jax.random.key(2), (chains, 2))
    state = jax.vmap(estimator.init)(keys, at)
    estimate = jax.jit(jax.vmap(estimator.estimate))
    computed, counted = [], []
    for _ in range(steps):
        jax.effects_barrier()
        before = count.computed
        found, state = estimate(keys, state, at)
        jax.effects_barrier()
        computed.append(count.computed - before)
        counted.append(int(found.evaluations.sum()))
    return computed, counted


@pytest.mark.slow
def test_chains_together_renew_when_it_is_due_and_only_then():
    computed, counted = evaluations(chunk=2)
    extra = [3 * (2 * SIZE + (N if t % 3 == 0 else 0)) for t in range(7)]
    assert computed == counted == extra
    with mock.patch.object(control_flow, "_in_any_chain", lambda flag: flag):
        computed, _ = evaluations(chunk=2)
    assert min(computed) > 3 * 2 * SIZE, "a plain cond computes both branches"


def test_chains_out_of_step_keep_their_own_snapshots(key, x64):
    estimator, at = ex.SVRG(curved(), SIZE, 3), position("flat")
    early = away(estimator, "flat", key)
    late = eqx.tree_at(lambda s: s.step, early, jnp.int32(3))
    both = jax.tree.map(lambda a, b: jnp.stack([a, b]), early, late)
    found, after = jax.jit(jax.vmap(lambda s: estimator.estimate(key, s, at)))(both)
    for i, state in enumerate([early, late]):
        alone, kept = estimator.estimate(key, state, at)
        np.testing.assert_allclose(found.gradient[i], alone.gradient, rtol=1e-12)
        np.testing.assert_allclose(after.expansion.centre[i], kept.expansion.centre)
        assert int(found.evaluations[i]) == int(alone.evaluations) == 2 * SIZE + i * N


@pytest.mark.parametrize("chunk", [1, 2, 5, 100])
def test_the_chunks_do_not_matter(chunk, key, x64):
    estimator, at = ex.SVRG(curved(), SIZE, 1, chunk=chunk), position("flat")
    estimate, _ = estimator.estimate(key, estimator.init(key, at), at)
    np.testing.assert_allclose(estimate.gradient, curved().gradient(at), rtol=1e-12)


def test_another_period_needs_no_new_program(key):
    traces, at = [], jax.tree.map(lambda x: x.astype("f4"), position("flat"))
    posterior = curved()

    @eqx.filter_jit
    def estimate(estimator, state):
        traces.append(1)
        return estimator.estimate(key, state, at)

    for period in (2, 5):
        estimator = ex.SVRG(posterior, SIZE, period)
        state = estimator.init(key, at)
        for _ in range(3):
            _, state = estimate(estimator, state)
    assert len(traces) == 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_dtype_of_the_position_is_kept(dtype, key, x64):
    at = jax.tree.map(lambda x: x.astype(dtype), position("tree"))
    estimator = ex.SVRG(curved(), SIZE, 2)
    state = estimator.init(key, at)
    estimate, after = jax.eval_shape(estimator.estimate, key, state, at)
    assert jax.eval_shape(lambda s: s, state) == after
    moving = jax.tree.leaves((estimate.gradient, estimate.potential, after.expansion))
    assert {x.dtype.name for x in moving} == {dtype}


def test_the_noise_grows_with_the_distance_from_the_snapshot(key, x64):
    estimator = ex.SVRG(curved(), SIZE, 100)
    state, centre = away(estimator, "flat", key), position("flat", CENTRES)

    def variance(distance):
        estimates, _ = on_every_batch(estimator, state, centre + distance, False)
        return np.trace(enumerated.covariance(estimates))

    np.testing.assert_allclose(variance(2e-3) / variance(1e-3), 4.0, rtol=0.02)


WRONG: dict[str, tuple[type[Exception], dict[str, Any], str]] = {
    "period": (ValueError, {"period": 0}, "period must be at least 1, not 0. Try 2"),
    "chunk": (ValueError, {"period": 2, "chunk": 0}, "chunk must be at least 1"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_is_refused(name):
    error, options, message = WRONG[name]
    with pytest.raises(error, match=message):
        ex.SVRG(curved(), SIZE, **options)


@pytest.mark.slow
def test_many_chains(key):
    at = jax.tree.map(lambda x: x.astype("f4"), position("tree"))
    kernel = ex.sghmc(
        ex.ScoreCovariance(ex.SVRG(curved(), SIZE, 4)), 0.02, 8.0, compensate=True, clip=True
    )
    samples = ex.sample(kernel, at, 40, key=key, num_chains=3)
    assert np.isfinite(jax.vmap(jax.vmap(flat))(samples.position)).all()
