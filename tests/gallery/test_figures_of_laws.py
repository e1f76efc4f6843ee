"""NOGIN, exchange, groups and a share of Gamma: chains against exact laws, one program for each.

Chains are independent, so that the spread of their averages gives the error, and a band of
Student's law has one false alarm in a million comparisons.
"""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import ergodax as ex
from gallery.figures import groups, infer, nogin, replica_exchange, verify

pytestmark = pytest.mark.slow


def far(each, expected):
    """How far the mean of independent averages is from a number, over the band."""
    error = each.std(axis=0, ddof=1) / np.sqrt(len(each))
    return np.abs(each.mean(axis=0) - expected) / (stats.t(len(each) - 1).isf(0.5e-6) * error)


def test_nogin_is_right_where_the_others_have_their_exact_errors(monkeypatch):
    monkeypatch.setattr(nogin, "CHAINS", 256)  # more than the page has, to tell small errors
    found = nogin.run(6.0, 0.4, 1)
    for name, draws in found.draws.items():
        each = np.mean(draws.astype(float) ** 2, axis=1)
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


@pytest.mark.parametrize("tau", [0.1, 0.5, 2.0])
def test_effects_and_their_spread_have_the_exact_posterior(tau, programs):
    found = groups.run(tau, 1)
    exact = found.grid @ found.density / found.density.sum()
    each = found.spread.mean(axis=1)
    assert far(each, exact) < 1.0
    assert far(each, exact + found.spread.std()) > 1.0, "it sees another spread"
    each = (found.drawn.mean(axis=1) - found.exact_means) / found.exact_sds
    assert (far(each, 0.0) < 1.0).all()
    assert (far(each, 0.5) > 1.0).all(), "it sees other effects"
    errors = found.errors()
    assert errors[groups.POOLED] < errors[groups.OWN]
    density = found.densities().pivot(index="tau", columns="law", values="density")
    width = density.index[1] - density.index[0]
    np.testing.assert_allclose(density.sum() * width, 1.0, atol=0.02)
    first = len(programs)
    groups.run(tau + 0.05, 2)
    assert len(programs) == first, "other rows were compiled anew"


def test_inferences_are_kept_of_every_problem_and_their_draws_have_the_exact_law():
    assert list(infer.kept()) == list(infer.PROBLEMS)
    for found in infer.kept().values():
        assert found.converged == found.verdict.startswith("converged")
        if not found.converged:
            continue
        grid, density = np.array(found.grid), np.array(found.density)
        law = np.cumsum(density) / density.sum()
        draws = found.first(infer.DRAWS)
        effective = float(np.min(ex.diagnostics.ess(draws[..., None], "mean")))
        for level in (0.05, 0.25, 0.5, 0.75, 0.95):
            share = np.mean(draws < np.interp(level, law, grid))
            # A false alarm in a million, the bias of 0.05 sd, and half a step of the grid.
            slack = (
                4.9 * np.sqrt(level * (1.0 - level) / effective)
                + 0.02
                + density.max() * (0.5 * (grid[1] - grid[0]))
            )
            assert abs(share - level) < slack, found.name
    missed = infer.kept()["two modes"].first(infer.DRAWS) < 0.0
    assert abs(missed.mean() - 0.5) > 0.1, "it would see modes of equal weight"


@pytest.mark.parametrize("name", ["20,000 rows with outliers", "separated classes, no prior"])
def test_an_inference_made_anew_decides_as_the_one_that_is_kept(name):
    kept, anew = infer.kept()[name], infer.inferred(name)
    assert anew.converged == kept.converged
    samplers = [
        [d["chosen"].split(",")[0] for d in each.decisions if d["what"] == "sampler"]
        for each in (kept, anew)
    ]
    assert samplers[0] == samplers[1]
    assert anew.verdict.split(":")[0] == kept.verdict.split(":")[0]


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
