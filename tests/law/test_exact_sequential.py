"""The confidence sampler and austerity: how often a decision is wrong, then their laws.

Numbers compared by sampling: 17.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import ergodax as ex
from ergodax.data.permutation import Permutation
from ergodax.exact.confidence import INEQUALITIES, Concentration, StudentTest
from ergodax.exact.sequential import TaylorProxy

from . import faults
from .logistic_posterior import assert_posterior, problem

P = problem()
LARGE = problem(2_000)
RIGHT = Concentration.distance


def confidence(p=P, **options):
    options = {"batch_size": 10, "covariance": p.proposals, **options}
    return ex.exact.confidence(p.posterior, 1.5, ex.exact.LogisticRange(p.features), **options)


def austerity(p=P, **options):
    return ex.exact.austerity(p.posterior, 1.5, covariance=p.proposals, **options)


def wrong_decisions(kernel, key, gap, decisions=2_000):
    """The share of decisions unlike those on all the data, and the rows that they took.

    The threshold is `gap` standard deviations of a row off the mean of all.
    """
    x, y = (jnp.asarray(LARGE.mode + s * np.array([0.05, -0.02]), jnp.float32) for s in (0, 1))
    old, new = (kernel.posterior.log_likelihoods(w, kernel.posterior.data) for w in (x, y))
    terms = new - old
    mean, spread = jnp.mean(terms), jnp.std(terms)
    threshold = mean - gap * spread
    span = kernel.rule.span(x, y, None)
    decide = jax.jit(jax.vmap(lambda k: kernel._look(k, x, y, threshold, span)))
    seen = decide(jax.random.split(key, decisions))
    return np.mean(np.asarray(seen.mean <= threshold)), np.mean(np.asarray(seen.count))


OTHERS = [pytest.param(n, marks=pytest.mark.slow) for n in INEQUALITIES if n != "serfling"]


@pytest.mark.parametrize("inequality", ["serfling", *OTHERS])
def test_decisions_are_wrong_with_probability_delta_at_most(inequality, key):
    kernel = confidence(LARGE, delta=0.05, inequality=inequality)
    wrong, rows = wrong_decisions(kernel, key, 1.5)
    assert wrong <= stats.binom.isf(1e-6, 2_000, 0.05) / 2_000
    assert rows < 2_000, "some decisions are made on less than all the data"


def test_an_inequality_that_is_too_bold_is_wrong_too_often(key):
    bold = confidence(LARGE, delta=0.05)
    with faults.replacing(Concentration, "distance", lambda *a: 0.01 * RIGHT(*a))():
        wrong, _ = wrong_decisions(bold, key, 0.1)
    assert wrong > stats.binom.isf(1e-6, 2_000, 0.05) / 2_000


CONFIDENT = {
    "plain": lambda: confidence(delta=0.01),
    "proxies": lambda: confidence(delta=0.01, centre=P.mode),
    "bernstein": lambda: confidence(delta=0.01, inequality="empirical bernstein", growth=1.0),
    "austerity": lambda: austerity(epsilon=1e-4, batch_size=40),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIDENT)
def test_the_law_is_the_posterior_within_the_resolution(name, key):
    assert_posterior(CONFIDENT[name](), P, key)


BUILD = {**CONFIDENT, "few rows": lambda: austerity(batch_size=8)}
FAULTS = {
    "decides too early": ("plain", Concentration, "distance", lambda *a: 0.01 * RIGHT(*a)),
    "t-test too early": ("few rows", StudentTest, "distance", lambda *a: jnp.float32(0.0)),
    "proxies not added back": (
        "proxies",
        TaylorProxy,
        "total",
        lambda *a: jnp.float32(0.0),
    ),
    "rows drawn again": (
        "plain",
        Permutation,
        "__call__",
        lambda self, words, places: jnp.remainder(places, jnp.int32(20)),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_rejected(fault, key):
    name, *where = FAULTS[fault]
    kernel = faults.Planted(BUILD[name](), faults.replacing(*where))
    with pytest.raises(AssertionError, match="the law differs"):
        assert_posterior(kernel, P, key, num_steps=300)
