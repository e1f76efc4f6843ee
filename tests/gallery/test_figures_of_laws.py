"""NOGIN, replica exchange and a share of Gamma: chains against exact laws, one program for each.

Chains are independent, so that the spread of their averages gives the error, and a band of
Student's law has one false alarm in a million comparisons.
"""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from gallery.figures import nogin, replica_exchange, verify

pytestmark = pytest.mark.slow


def far(each, expected):
    """How far the mean of independent averages is from a number, over the band."""
    error = each.std(axis=0, ddof=1) / np.sqrt(len(each))
    return np.abs(each.mean(axis=0) - expected) / (stats.t(len(each) - 1).isf(0.5e-6) * error)


def test_nogin_is_right_where_the_others_have_their_exact_errors():
    found = nogin.run(6.0, 0.4, 1)
    for name, draws in found.draws.items():
        each = np.mean(draws[..., :-1].astype(float) ** 2, axis=1)
        # A chain that is slow has not many draws for its own error to be known by.
        mixed = nogin.SIZES > 0.1
        assert (far(each, found.exact(name, nogin.SIZES))[mixed] < 1.0).all(), name
        wrong = far(each, 1.0)[mixed] > 1.0
        assert wrong.all() if name != nogin.NOGIN else not wrong.any(), name
    assert found.variance(nogin.SGHMC)[1] > 1.5 and found.variance(nogin.NOGIN)[1] == 1.0
    assert list(found.densities()) == ["x", "density", "sampler"]


def test_replicas_have_both_modes_with_their_weights():
    found = replica_exchange.run(3.0, 27.0, 1)
    each = {name: np.mean(x > 0.0, axis=1) for name, x in found.draws.items()}
    assert (each[replica_exchange.PLAIN] == 0.0).all()
    assert far(each[replica_exchange.EXCHANGED], replica_exchange.SHARE) < 1.0
    assert far(each[replica_exchange.EXCHANGED], 0.5) > 1.0, "it sees another weight"
    assert (found.swap_rates > 0.2).all()
    table = found.densities()
    density = table["density"].to_numpy()[(table["sampler"] == "exact").to_numpy()]
    assert density.sum() * (2 * 5.5 / 80) == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0, 2.0])
def test_the_equation_has_the_law_of_its_share_of_gamma(share):
    found = verify.run(share, 2.0, 1)
    right, law, _ = found.square
    each = np.mean(found.draws**2, axis=1)
    # The step's own bias is below this.
    slack = 0.02
    error = stats.t(len(each) - 1).isf(0.5e-6) * each.std(ddof=1) / np.sqrt(len(each))
    assert abs(each.mean() - law) < error + slack
    assert (abs(each.mean() - right) < error + slack) == (share == 1.0)
    report = verify.verdict(found.equation)
    assert report.ok == (share == 1.0)
    residual = found.residual()["div J / pi"].to_numpy()
    assert (np.abs(residual).max() < 1e-6) == (share == 1.0)


def test_the_right_law_is_that_of_the_wells():
    found = verify.Verified(verify.Equation(jnp.float32(1.0), jnp.float32(3.0)), np.zeros((1, 1)))
    assert found.square[0] == pytest.approx(float(verify.WELLS.covariance[0, 0]), abs=1e-3)
