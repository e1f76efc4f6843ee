"""What the figures of paths and of Langevin dynamics compute: exact where it can be.

Random figures are compared within BAND standard errors, two-sided: a false alarm once in ten
million comparisons. Every run starts from a key of its own that the test names first.
"""

import numpy as np
import pytest
from scipy import stats

from gallery.figures import (
    brownian,
    fokker_planck,
    langevin,
    nogin,
    recipe,
    replica_exchange,
    sgld,
    tables,
    verify,
)

pytestmark = pytest.mark.slow

BAND = stats.norm.isf(0.5e-7)
MANY = sgld.CHAINS * sgld.STEPS


def spread_of_variance(count):
    """The relative standard error of a variance of so many normal numbers."""
    return np.sqrt(2.0 / count)


@pytest.mark.parametrize("diffusion, time", [(1.0, 1.0), (0.3, 4.0)])
def test_brownian_paths_spread_and_vary(diffusion, time):
    paths = brownian.run(diffusion, time, brownian.PATHS, 1)
    exact = 2.0 * diffusion * time
    assert paths.exact_spread == pytest.approx(np.sqrt(exact))
    error = BAND * spread_of_variance(brownian.PATHS)
    assert paths.spread**2 == pytest.approx(exact, rel=error)
    assert paths.spread**2 != pytest.approx(4.0 * exact, rel=error), "it sees a factor of two"
    for pieces in (8, 512):
        times, sums = paths.variation(pieces)
        assert times[-1] == time and len(times) == pieces + 1
        count = brownian.PATHS * pieces
        assert sums[:, -1].mean() == pytest.approx(exact, rel=BAND * spread_of_variance(count))
    finest = paths.variation(512)[1][:, -1]
    assert finest.std() < paths.variation(8)[1][:, -1].std() / 4, "finer is more exact"


def test_fewer_paths_are_the_first_of_many():
    few, many = (brownian.run(1.0, 1.0, count, 0).positions for count in (4, 64))
    np.testing.assert_array_equal(few, many[:4])
    with pytest.raises(ValueError, match="pieces must divide 512, not be 7"):
        brownian.run(1.0, 1.0, 4, 0).variation(7)


def test_three_laws_of_ornstein_uhlenbeck_agree():
    law = fokker_planck.run(0.5, 1.5, 0.7, 2.0, 2)
    exact = law.by_formula
    assert exact.mean == pytest.approx(2.0 * np.exp(-0.75))
    assert exact.sd == pytest.approx(np.sqrt(0.7 * (1.0 - np.exp(-1.5))))
    assert law.by_grid.mean == pytest.approx(exact.mean, abs=0.002)
    assert law.by_grid.sd == pytest.approx(exact.sd, abs=0.001)
    # The chains' own law, exactly: an affine map of h = 1/512 and rate 3/2.
    a = 1.0 - 0.5 / fokker_planck.STEPS * 1.5
    steps = fokker_planck.STEPS
    variance = 2.0 * 0.5 / steps * 1.5 * 0.7 * (1.0 - a ** (2 * steps)) / (1.0 - a**2)
    error = BAND * np.sqrt(variance / fokker_planck.CHAINS)
    assert law.by_chains.mean == pytest.approx(2.0 * a**steps, abs=error)
    relative = BAND * spread_of_variance(fokker_planck.CHAINS)
    assert law.by_chains.sd**2 == pytest.approx(variance, rel=relative)
    assert law.by_chains.sd**2 != pytest.approx(0.7, rel=relative), "it is not stationary yet"
    shares = law.picture_table()["density"].to_numpy().reshape(fokker_planck.TIMES, -1)
    np.testing.assert_allclose(shares.max(axis=1), 1.0)


def test_the_wells_moments_are_exact_at_temperature_one():
    of_mixture = 0.7 * stats.norm.sf(1.0 / 0.4) + 0.3 * stats.norm.cdf(1.0 / 0.3)
    for target, right in (("double well", 0.5), ("mixture", of_mixture)):
        wells = langevin.run(target, 0.03, 1.0, 0)
        known = langevin.TARGETS[target]
        second = float(known.covariance[0, 0] + known.mean[0] ** 2)
        assert wells.on_grid(wells.exact).square == pytest.approx(second, rel=1e-4)
        assert wells.on_grid(wells.exact).right == pytest.approx(right, abs=1e-4)


@pytest.mark.parametrize("target", langevin.TARGETS)
def test_langevin_chains_have_the_law_of_their_steps(target):
    wells = langevin.run(target, 0.03, 1.5, 3)
    assert wells.steps is not None
    late = wells.chains.positions[:, langevin.STEPS // 2 :, 0]  # the start is forgotten
    each = np.mean(late**2, axis=1)
    error = each.std(ddof=1) / np.sqrt(len(each))
    band = stats.t(len(each) - 1).isf(0.5e-7)
    law, exact = wells.on_grid(wells.steps).square, wells.on_grid(wells.exact).square
    assert each.mean() == pytest.approx(law, abs=band * error)
    if target == "double well":
        assert each.mean() != pytest.approx(exact, abs=band * error), "it sees the step's bias"


def test_cold_chains_stay_in_their_well_and_hot_ones_cross():
    cold, hot = (langevin.run("double well", 0.01, t, 0) for t in (0.2, 1.5))
    assert cold.by_chains.right < 0.1 and hot.crossings > 20 * max(cold.crossings, 1)


def test_too_large_a_step_is_reported():
    wells = langevin.run("double well", 0.12, 1.5, 0)
    assert wells.steps is None and wells.chains.diverged is not None
    assert np.isfinite(wells.bars().to_numpy()).all()


@pytest.mark.parametrize("batch_size", [8, 128])
def test_sgld_has_the_exact_variance_of_every_variant(batch_size):
    variants = sgld.run(0.2, batch_size, 0.5, 4)
    law = sgld.exact(batch_size)
    for name, run in variants.runs.items():
        # A chain is an autoregression, whose squares are correlated as the squares of its own
        # correlations: (1 - a)^2 a step. Falling steps are slower by h / h_last, a bound.
        last = 0.2 * run.weights[-1] / run.weights[0]
        count = MANY * last * (2.0 - last) / (1.0 + (1.0 - last) ** 2)
        error = BAND * spread_of_variance(count)
        assert run.sd**2 == pytest.approx(run.exact_sd**2, rel=error), name
        assert run.sd**2 != pytest.approx(4.0 * run.exact_sd**2, rel=error)
    full, batch, falling = (variants.runs[n] for n in (sgld.FULL, sgld.BATCH, sgld.FALLING))
    for run, noise in ((full, 0.0), (batch, law.noise / law.precision)):
        limit = sgld.stationary_sd(0.2, noise)
        assert run.expected[-1] == pytest.approx(limit**2)
    assert full.exact_sd < falling.exact_sd < batch.exact_sd
    assert batch.exact_sd > 1.05


def test_the_noise_of_a_batch_is_that_of_all_batches():
    """Of three rows, batches of two: V by enumeration, scaled to the data of the figure."""
    x = np.array([1.0, 4.0, 7.0])
    gradients = np.array([-1.5 * (a + b) for a, b in ((1, 4), (1, 7), (4, 7))])
    assert gradients.var() == pytest.approx(3 * (3 - 2) / 2 * x.var(ddof=1))
    data = np.asarray(sgld.posterior().data, float)
    assert sgld.exact(2).noise == pytest.approx(1024 * 1022 / 2 * data.var(ddof=1))
    assert sgld.exact(1024).noise == 0.0
    assert sgld.exact(1024).mean == pytest.approx(data.sum() / 1024.01)


def test_the_recipes_moments_and_marginals_are_exact():
    for coordinate in (0, 1):
        table = recipe.marginal_table(coordinate)
        at, density = table["xy"[coordinate]].to_numpy(), table["density"].to_numpy()
        assert np.trapezoid(density, at) == pytest.approx(1.0, abs=3e-3)
    x, density = recipe.marginal_table(0).to_numpy().T
    quartic = np.exp(-(x**4) / 10.0)
    ratio = density / quartic
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-4)
    assert recipe.EXACT.square == pytest.approx(1.06881544)
    assert recipe.EXACT.mean == pytest.approx(-0.93279614)
    cells = recipe.density_table()
    assert cells.to_numpy()[:, -1].max() > 0.9


@pytest.mark.parametrize("name", recipe.RECIPES)
def test_recipes_agree_where_the_step_is_small(name):
    """Within 0.05 of bias and BAND errors; without Gamma the Riemannian mean is off by 1/2."""
    curl, step = {
        "overdamped": (1.0, 0.01), "with momentum": (1.0, 0.05), recipe.RIEMANNIAN: (0.0, 0.02)
    }[name]  # fmt: skip
    for gamma in (True, False):
        chains = recipe.run(name, 1.0, curl, step, 5, gamma)
        each = chains.positions[:, :, 1].mean(axis=1)
        band = stats.t(len(each) - 1).isf(0.5e-7) * each.std(ddof=1) / np.sqrt(len(each))
        right = abs(each.mean() - recipe.EXACT.mean) < band + 0.05
        assert right == (gamma or name != recipe.RIEMANNIAN)


def test_more_curl_forgets_sooner():
    still, turning = (recipe.run("overdamped", 1.0, c, 0.02, 6) for c in (0.0, 2.0))
    times = [recipe.autocorrelation_time(chains) for chains in (still, turning)]
    assert times[1] < times[0] / 2


FIGURES = {
    "brownian": lambda x: brownian.run(x, 2.0 * x, int(8 * x), 0),
    "fokker_planck": lambda x: fokker_planck.run(0.1 * x, x, 0.2 * x, 0.5 * x, 0),
    "langevin": lambda x: langevin.run("mixture", 0.02 * x, x, 0),
    "sgld": lambda x: sgld.run(0.1 * x, 8, 0.2 * x, 0),
    "recipe": lambda x: recipe.run("Riemannian", x, x, 0.005 * x, 0),
    "nogin": lambda x: nogin.run(4.0 * x, 0.3 * x, 0),
    "replica_exchange": lambda x: replica_exchange.run(2.0 * x, 9.0 * x, 0),
    "verify": lambda x: verify.run(0.5 * x, x, 0),
}


@pytest.mark.parametrize("name", FIGURES)
def test_a_slider_compiles_nothing_anew(name, programs):
    FIGURES[name](1.0)
    first = len(programs)
    FIGURES[name](2.0)
    assert len(programs) == first


def test_a_compilation_is_seen(programs):
    sgld.run(0.1, 5, 0.5, 0)  # a batch size is part of the program
    assert programs


def test_histograms_have_the_share_of_all_draws_as_area():
    draws = np.array([0.1, 0.2, 0.9, 5.0])
    bars = tables.histogram(draws, 0.0, 1.0, 2)
    np.testing.assert_allclose(bars["density"], [1.0, 0.5])
