"""Firefly Monte Carlo: its joint density and its update of z by enumeration, then its law.

Numbers compared by sampling: 11.
"""

import contextlib
import itertools
import sys
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import ergodax as ex
from ergodax.exact.firefly import Excess

from . import faults, sampled
from .logistic_posterior import assert_posterior, log_likelihood, log_prior, problem, simulated

P = problem()
# ergodax.exact.firefly is also the name of the function.
FIREFLY = sys.modules[ex.exact.firefly.__module__]


def bound(p=P, **options):
    return ex.exact.LogisticBound(p.features, p.labels, **options)


def small(n):
    """The excess of a model with n rows in double precision, and a position."""
    x, y = P.features[:n], P.labels[:n]
    posterior = ex.Posterior(log_prior, log_likelihood, (x, y))
    return Excess(posterior, ex.exact.LogisticBound(x, y)), jnp.array([1.4, -1.3])


def places(rows, n):
    """These rows as the kernel holds them."""
    return jnp.array(sorted(rows) + [n] * (FIREFLY.BLOCK - len(rows)), jnp.int32)


def subsets(n):
    return [c for k in range(n + 1) for c in itertools.combinations(range(n), k)]


def test_the_sum_over_all_marks_is_the_posterior(x64):
    """Compared between two positions, since the bounds' sum has a free constant."""
    n = 6
    excess, first = small(n)
    second = jnp.array([-0.3, 0.8])

    def marginal(w):
        marks = jnp.stack([places(rows, n) for rows in subsets(n)])
        energies, _ = jax.vmap(lambda rows: FIREFLY.energy_given(excess, rows, w))(marks)
        return jax.nn.logsumexp(-energies)

    expected = excess.posterior.potential(second) - excess.posterior.potential(first)
    np.testing.assert_allclose(marginal(first) - marginal(second), expected, rtol=1e-13)


def test_the_gradient_is_that_of_the_energy(x64):
    excess, w = small(6)
    rows = places((1, 2, 4), 6)
    _, gradient = FIREFLY.energy_given(excess, rows, w)
    for k in range(2):
        step = jnp.zeros(2).at[k].set(1e-5)
        up, down = (FIREFLY.energy_given(excess, rows, w + s)[0] for s in (step, -step))
        np.testing.assert_allclose(gradient[k], (up - down) / 2e-5, rtol=1e-7)


def acceptances(n, probability):
    """With which probability each row accepts to go dark, and to go bright, to rounding.

    Found by bisecting for the uniform number at which the code changes its mind.
    """
    excess, w = small(n)
    everyone = (jnp.uint32(n + 1), jnp.arange(FIREFLY.BLOCK, dtype=jnp.int32).clip(0, n))

    @jax.jit
    def outcomes(u):
        """Of all rows bright and all rows dark, which change, if every test meets u[row]."""
        dealt = jnp.zeros(FIREFLY.BLOCK).at[:n].set(u)
        with (
            mock.patch.object(jax.random, "uniform", lambda *_: dealt),
            mock.patch.object(FIREFLY, "successes", lambda *_: everyone),
        ):
            flips = [
                FIREFLY.flip(jax.random.key(0), excess, w, places(rows, n), probability).bright
                for rows in (range(n), ())
            ]
        now = [jnp.isin(jnp.arange(n, dtype=jnp.int32), f) for f in flips]
        return jnp.stack([~now[0], now[1]])

    thresholds = []
    for which in (0, 1):
        low, high = jnp.zeros(n), jnp.ones(n)
        for _ in range(60):
            middle = 0.5 * (low + high)
            changes = outcomes(middle)[which]
            low, high = jnp.where(changes, middle, low), jnp.where(changes, high, middle)
        thresholds.append(np.asarray(high))
    return *thresholds, np.expm1(np.asarray(excess(w, jnp.arange(n, dtype=jnp.int32))[0]))


def test_the_update_of_the_marks_is_in_detailed_balance(x64):
    n, q = 8, jnp.asarray(0.01)
    dark, light, odds = acceptances(n, q)
    assert odds.min() < 0.01 < odds.max(), "both ends of the minimum are tried"
    np.testing.assert_allclose(q * light, odds * dark, rtol=1e-12)


def test_an_update_that_forgets_the_asymmetry_is_not(x64):
    dark, light, odds = acceptances(8, jnp.asarray(1.0))
    assert np.abs(0.01 * light / (odds * dark) - 1.0).min() > 0.5


@pytest.mark.parametrize("n, q", [(5, 0.3), (40, 0.02), (100, 0.5)])
def test_rows_are_proposed_independently(n, q, key):
    """Each with probability q, and each pair with q^2."""

    @jax.vmap
    def chosen(key):
        def one(carry):
            key, passed, hits = carry
            key, use = jax.random.split(key)
            passed, rows = FIREFLY.successes(use, passed, jnp.float32(q), n)
            return key, passed, hits.at[rows].set(True, mode="drop")

        begin = (key, jnp.uint32(0), jnp.zeros(n, bool))
        return jax.lax.while_loop(lambda c: c[1] < n, one, begin)[2]

    draws = 20_000
    hits = np.asarray(chosen(jax.random.split(key, draws)), float)
    pairs = hits.T @ hits / draws
    expected = np.where(np.eye(n, dtype=bool), q, q * q)
    error = np.sqrt(expected * (1.0 - expected) / draws)
    # 1e-6 for all entries together.
    assert (np.abs(pairs - expected) < stats.norm.isf(0.5e-6 / n**2) * error + 1.0 / draws).all()


KERNELS = {
    "tuned": lambda: ex.exact.firefly(P.posterior, 1.2, bound(centre=P.mode), mass=P.hessian),
    "untuned": lambda: ex.exact.firefly(
        P.posterior, 0.9, bound(tangent=4.0), mass=P.hessian, candidates=8, num_leapfrog_steps=2
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_the_law_is_the_posterior(name, key):
    assert_posterior(KERNELS[name](), P, key)


def without_the_bright_rows(excess, rows, position):
    return RIGHT_ENERGY(excess, jnp.full_like(rows, excess.posterior.num_data), position)


def without_the_bounds(excess, rows, position):
    value, gradient = RIGHT_ENERGY(excess, rows, position)
    total, slope = jax.value_and_grad(excess.bound.log_bound_sum)(position)
    return value + total, gradient + slope


@contextlib.contextmanager
def without_the_asymmetry():
    """Acceptances as if both proposals were as likely; dark rows still get one in ten."""
    flip, successes = FIREFLY.flip, FIREFLY.successes
    tenth, one = jnp.float32(0.1), jnp.float32(1.0)
    with (
        mock.patch.object(FIREFLY, "flip", lambda *a: flip(*a[:-1], one)),
        mock.patch.object(FIREFLY, "successes", lambda k, done, _, n: successes(k, done, tenth, n)),
    ):
        yield


RIGHT_ENERGY = FIREFLY.energy_given
FAULTS = {
    "bright rows forgotten": faults.replacing(FIREFLY, "energy_given", without_the_bright_rows),
    "bounds forgotten": faults.replacing(FIREFLY, "energy_given", without_the_bounds),
    "asymmetry forgotten": without_the_asymmetry,
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_rejected(fault, key):
    kernel = faults.Planted(KERNELS["untuned"](), FAULTS[fault])
    with pytest.raises(AssertionError, match="the law differs"):
        assert_posterior(kernel, P, key, num_steps=300)


@pytest.mark.slow
def test_the_marks_have_their_law(key):
    """The mean number of bright rows is that of independent marks at the draws' positions."""

    class Counted(ex.Kernel):
        kernel: Any

        def init(self, key, position):
            return self.kernel.init(key, position)

        def step(self, key, state):
            new, _ = self.kernel.step(key, state)
            gap, _ = self.kernel.excess(state.position, jnp.arange(80, dtype=jnp.int32))
            expected = jnp.sum(-jnp.expm1(-gap))
            return new, {"excess": jnp.sum(new.gradient < 80).astype(gap.dtype) - expected}

    samples = ex.sample(
        Counted(KERNELS["untuned"]()), P.mode.astype("f4"), 1000, key=key, num_chains=64
    )
    sampled.assert_mean(samples.info["excess"], 0.0, 0.3)


def expected_bright(n, **options):
    """The mean number of bright rows under the normal approximation of a posterior."""
    x, y = simulated(n, 5)
    posterior = ex.Posterior(lambda w: -0.5 * jnp.sum(w**2), log_likelihood, (x, y))
    mode = ex.find_mode(posterior, jnp.zeros(5))
    if options.pop("tuned"):
        options["centre"] = mode
    excess = Excess(posterior, ex.exact.LogisticBound(x, y, **options))
    p = 1.0 / (1.0 + np.exp(-x @ np.asarray(mode.position)))
    root = np.linalg.cholesky(np.linalg.inv((x.T * (p * (1.0 - p))) @ x + np.eye(5)))
    draws = np.asarray(mode.position) + np.random.default_rng(1).normal(size=(30, 5)) @ root.T
    rows = jnp.arange(n, dtype=jnp.int32)
    count = jax.jit(lambda w: jnp.sum(-jnp.expm1(-excess(w, rows)[0])))
    return np.mean([count(jnp.asarray(w)) for w in draws])


@pytest.mark.slow
def test_bounds_that_touch_at_the_mode_leave_few_rows_bright_whatever_their_number(x64):
    tuned = [expected_bright(n, tuned=True) for n in (1_000, 10_000, 100_000)]
    untuned = [expected_bright(n, tuned=False) for n in (1_000, 10_000, 100_000)]
    print("bright rows, tuned", tuned, "untuned", untuned)
    assert 0.3 < min(tuned) and max(tuned) < 3.0
    np.testing.assert_allclose(np.divide(untuned[1:], untuned[:-1]), 10.0, rtol=0.2)
    assert untuned[0] > 20.0


def test_bright_rows_are_counted_and_the_first_may_go_dark(x64):
    """The rows kept are as many as are counted; with a probability of 1 all dark ones are asked."""
    excess, position = small(6)
    bright, q = places(range(6), 6), jnp.asarray(0.9)
    flip = jax.jit(lambda key: FIREFLY.flip(key, excess, position, bright, q))
    counts = []
    for seed in range(40):
        found = flip(jax.random.key(seed))
        assert int(found.total) == int((found.bright < 6).sum())
        counts.append([row in found.bright for row in range(6)])
    assert not np.all(counts, axis=0).any(), "no row stays bright in every one of 40 updates"


@pytest.mark.parametrize("above", [0.0, 1.0])
def test_a_bound_above_the_likelihood_of_a_bright_row_is_seen(above, x64):
    """Places that hold no row say nothing of the bound."""
    excess, position = small(6)

    class Raised(ex.exact.LogisticBound):
        def log_bounds(self, position, rows):
            return super().log_bounds(position, rows) + jnp.where(rows == 2, above, 0.0)

    kind: Any = Raised  # Equinox hides the arguments of its parent
    raised = Excess(excess.posterior, kind(P.features[:6], P.labels[:6]))
    for rows, sound in (((2, 4), above == 0.0), ((1, 4), True)):
        found = FIREFLY.flip(
            jax.random.key(0), raised, position, places(rows, 6), jnp.asarray(1e-12)
        )
        assert bool(found.sound) is sound
