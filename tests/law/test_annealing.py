"""Steps and temperatures that change along a run, against the exact recursions.

On N(0, 1/k) SGLD makes x+ = (1 - h k) x + N(0, 2 h T), so mean and variance follow
m+ = (1 - h k) m and v+ = (1 - h k)^2 v + 2 h T, whatever h and T do from step to step.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import ergodax as ex
from ergodax.postprocess import weighted
from ergodax.schedule import Phases, Polynomial

from . import faults, normals, sampled

K, START = 2.0, 3.0
STEPS = Phases([(10, 0.3), (None, Polynomial(0.3, offset=3.0, power=0.8))])
LADDER = Phases([(20, 9.0), (20, Polynomial(4.0, offset=10.0, power=1.0)), (None, 1.0)])


def kernel(temperature: Any = 1.0):
    target = ex.targets.gaussian(np.zeros(1), np.full(1, 1.0 / K))
    return ex.sgld(ex.FullGradient(target), STEPS, temperature=temperature)


def recursion(steps, temperature=lambda t: 1.0):
    """Step sizes, means and variances after each of the first steps."""
    h = np.array([float(STEPS(jnp.int32(t))) for t in range(steps)])
    mean, variance = START, 0.0
    rows = []
    for t in range(steps):
        mean = (1.0 - h[t] * K) * mean
        variance = (1.0 - h[t] * K) ** 2 * variance + 2.0 * h[t] * float(temperature(jnp.int32(t)))
        rows.append((mean, variance))
    return h, *np.array(rows).T


def test_weighted_mean_of_the_descent(key, x64):
    """At T = 0 a run is its mean, so the weighted average has no chance in it."""
    run = ex.sample(kernel(0.0), np.full(1, START), 50, key=key, progress=False)
    h, mean, _ = recursion(50)
    np.testing.assert_allclose(run.position[0, :, 0], mean, rtol=1e-10)
    expected = np.sum(h * mean) / np.sum(h)
    assert weighted(run)["mean"].item() == pytest.approx(expected, rel=1e-10)
    unweighted = run.summary()["mean"].item()
    assert abs(unweighted / expected - 1.0) > 0.3


@pytest.mark.slow
def test_weighted_second_moment(key):
    """Of many chains: mean and mean square, and not those of the draws without weights."""
    steps, chains = 200, 4096
    run = ex.sample(
        kernel(),
        np.full(1, START, np.float32),
        steps,
        key=key,
        num_chains=chains,
        collect=lambda x: {"x": x[0], "square": x[0] ** 2},
        progress=False,
    )
    h, mean, variance = recursion(steps)
    table = weighted(run)
    for name, exact in (("x", mean), ("square", mean**2 + variance)):
        expected = np.sum(h * exact) / np.sum(h)
        each = np.einsum("ct,t->c", run.position[name].astype(float), h / h.sum())
        error = stats.t.isf(5e-7, chains - 1) * each.std(ddof=1) / np.sqrt(chains)
        assert table["mean"][name] == pytest.approx(each.mean(), rel=1e-5)
        assert abs(table["mean"][name] - expected) < error < 0.03
        assert abs(run.summary()["mean"][name] - expected) > 2.0 * error


@pytest.mark.slow
def test_mcse_is_the_spread_of_repeated_runs(key):
    """Its mean square over stationary chains, against the variance of their averages."""
    run = ex.sample(
        kernel(), np.zeros(1, np.float32), 2000, key=key, num_chains=256, burn_in=10, progress=False
    )
    h = run.info.step_size[0].astype(float)
    averages = np.einsum("ctd,t->c", run.position.astype(float), h / h.sum())
    table = weighted(run)
    # The variance of 256 averages is known to sqrt(2 / 255), five times which is 44 %.
    assert table["mcse"].item() ** 2 * 256 == pytest.approx(averages.var(ddof=1), rel=0.5)
    assert run.summary()["mcse"].item() ** 2 * 256 > 2.0 * averages.var(ddof=1)


def follows(made, temperature, steps=60) -> bool:
    """Whether the noise of every step, read off the code, has the variance 2 h T."""
    state = normals.start(made, np.full(1, START))

    def noise(step, xi):
        with normals.dealt(xi):
            at = ex.State(state.position, {}, None, None, step)
            return made.step(normals.key(), at)[0].position

    count = normals.count(made, state)
    root = jax.jit(jax.vmap(jax.jacfwd(noise, argnums=1), in_axes=(0, None)))
    times = jnp.arange(steps, dtype=jnp.int32)
    brought = np.asarray(root(times, jnp.zeros(count)))[:, 0, 0] ** 2
    exact = [2.0 * float(STEPS(t)) * float(temperature(t)) for t in times]
    return np.allclose(brought, exact, rtol=1e-6)


def test_annealing_follows_its_ladder(x64):
    made = kernel(LADDER)
    assert follows(made, LADDER)
    assert not follows(made, lambda t: 1.0)
    assert not follows(faults.Planted(made, normals.scaled_by(0.9)), LADDER)


@pytest.mark.slow
def test_annealed_chains_end_at_the_target(key):
    """The variance after each phase is the recursion's: hot first, then that of T = 1."""
    x = sampled.run(
        kernel(LADDER), np.full(1, START, np.float32), 80, key, num_chains=8192, burn_in=0
    )[:, :, 0]
    _, mean, variance = recursion(80, LADDER)
    for t in (10, 19, 39, 79):
        # Normal draws: the variance of their variance is 2 v^2 / n; 5 sd.
        error = 5.0 * np.sqrt(2.0 / x.shape[0])
        assert abs(x[:, t].var() / variance[t] - 1.0) < error
        assert abs(x[:, t].mean() - mean[t]) < 5.0 * np.sqrt(variance[t] / x.shape[0])
    assert variance[19] > 3.0 * variance[79]
