"""TunaMH: detailed balance by summing over all batches, then its law.

Numbers compared by sampling: 5.
"""

import itertools
import sys

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import ergodax as ex

from . import faults
from .logistic_posterior import assert_posterior, problem

TUNA = sys.modules[ex.exact.tuna.__module__]
P = problem()
STATES = np.array([-0.4, 0.1, 0.8])
ROWS = np.array([0.7, -1.5])
DISTANCES = np.abs(STATES[:, None] - STATES[None, :])
CHI = 0.3


def potentials():
    """U_i of two rows at three states; |U_i' - U_i| <= |row_i| |x' - x|."""
    return np.logaddexp(0.0, -ROWS[:, None] * STATES[None, :])


def flow(start, end, thinning, prior):
    """The density at `start` times the probability of accepting a move to `end`.

    The sum is over how many of the rows kept are of each kind, and the numbers left out have
    a probability below 1e-20.
    """
    u, c = potentials(), np.abs(ROWS)
    most = c.sum() * DISTANCES[start, end]
    rates, factors = [], []
    for i in range(ROWS.size):
        change = (u[i, end] - u[i, start]) / (c[i] * DISTANCES[start, end])
        keep, log_factor = thinning(jnp.array([change]), jnp.asarray(CHI * most))
        rates.append((most + CHI * most**2) * c[i] / c.sum() * float(keep[0]))
        factors.append(np.exp(float(log_factor[0])))
    number = np.arange(40)
    chances = [stats.poisson.pmf(number, rate) for rate in rates]
    ratio = np.exp(prior[end] - prior[start])
    accept = sum(
        chances[0][a] * chances[1][b] * min(1.0, ratio * factors[0] ** a * factors[1] ** b)
        for a, b in itertools.product(number, number)
    )
    return np.exp(PRIOR[start] - u[:, start].sum()) * accept


PRIOR = -(STATES**2) / 2.0
PAIRS = [(0, 1), (0, 2), (1, 2)]


def test_detailed_balance(x64):
    for a, b in PAIRS:
        there = flow(a, b, TUNA.thinning, PRIOR)
        np.testing.assert_allclose(there, flow(b, a, TUNA.thinning, PRIOR), rtol=1e-13)


def test_it_fails_without_the_prior(x64):
    for a, b in PAIRS:
        one, two = flow(a, b, TUNA.thinning, 0.0 * PRIOR), flow(b, a, TUNA.thinning, 0.0 * PRIOR)
        assert abs(one / two - 1.0) > 1e-2


def test_it_fails_without_thinning(x64):
    def all_kept(change, extra):
        keep, log_factor = TUNA.thinning(change, extra)
        return jnp.ones_like(keep), log_factor

    for a, b in PAIRS:
        assert abs(flow(a, b, all_kept, PRIOR) / flow(b, a, all_kept, PRIOR) - 1.0) > 1e-2


def kernel():
    norms = np.linalg.norm(P.features, axis=1)
    return ex.exact.tuna(P.posterior, 0.8, norms, covariance=P.proposals)


@pytest.mark.slow
def test_the_law_is_the_posterior(key):
    assert_posterior(kernel(), P, key)


FAULTS = {
    "prior forgotten": faults.replacing(ex.Posterior, "prior", lambda *_: jnp.float32(0.0)),
    "all rows kept": faults.replacing(
        TUNA,
        "thinning",
        lambda change, extra, right=TUNA.thinning: (
            jnp.ones_like(change),
            right(change, extra)[1],
        ),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_rejected(fault, key):
    with pytest.raises(AssertionError, match="the law differs"):
        assert_posterior(faults.Planted(kernel(), FAULTS[fault]), P, key, num_steps=300)


def test_rows_are_drawn_in_proportion_to_their_weights():
    """Of the table: each of N places is a row's own with `keep`, else its alias's."""
    weights = np.array([5.0, 0.0, 1.0, 3.0, 0.5])
    rows = TUNA.AliasTable(weights)
    keep, alias = np.asarray(rows.keep), np.asarray(rows.alias)
    shares = keep + np.bincount(alias, 1.0 - keep, len(weights))
    np.testing.assert_allclose(shares / len(weights), weights / weights.sum(), atol=1e-7)
