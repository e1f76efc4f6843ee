"""The funnel and NUTS: shares, moments and prices, and one program for all numbers."""

import numpy as np
import pytest
import scipy.stats

from gallery.figures import funnel, nuts

pytestmark = pytest.mark.slow

MOST = scipy.stats.norm.isf(0.5e-6)  # of a z score: one false alarm in a million


def test_the_metric_finds_the_neck_and_one_program_serves_all_numbers(programs):
    wide = funnel.run(0.05, 3.0, seed=1)
    first = len(programs)
    narrow = funnel.run(0.02, 1.0, seed=2)
    assert len(programs) == first, "other numbers were compiled anew"
    for result in (wide, narrow):
        share, error = result.share(funnel.RMHMC)
        assert abs(share - result.exact_share) < (MOST + 0.5) * error
    share, error = wide.share(funnel.SGLD)
    assert wide.exact_share - share > MOST * error, "the control: SGLD misses the neck"
    assert share < wide.share(funnel.SGRLD)[0] < wide.exact_share + MOST * error
    assert wide.exact_share == pytest.approx(0.252492537546923)
    assert wide.unstable == pytest.approx(np.log(0.025))


def test_the_funnel_has_tables_of_what_it_found():
    result = funnel.run(0.05, 3.0, seed=1)
    curves = result.densities().pivot(index="v", columns="sampler", values="density")
    assert set(curves) == {"exact", *funnel.SAMPLERS}
    masses = curves.to_numpy().sum(axis=0) * np.diff(curves.index.to_numpy())[0]
    np.testing.assert_allclose(masses, 1.0, atol=0.03)
    outline = result.outline()
    np.testing.assert_allclose(outline["x"].abs(), 2.0 * np.exp(0.5 * outline["v"]))
    inside = np.abs(result.draws[funnel.RMHMC][..., 1])
    inside = inside < 1.96 * np.exp(0.5 * result.draws[funnel.RMHMC][..., 0])
    assert np.mean(inside) == pytest.approx(0.95, abs=0.01)
    assert len(result.cloud(funnel.SGLD)) >= funnel.SHOWN
    assert result.unstable_line()["v"].tolist() == [result.unstable] * 2
    table = result.table().set_index("sampler")
    assert table["chains that diverged"].tolist() == [0.0, 0.0, 0.0]
    assert table["gradients a chain"].to_dict() == {"SGLD": 8000, "SGRLD": 8000, "RMHMC": 2000}


def test_chains_that_diverge_are_counted_and_stay_where_they_were():
    result = funnel.run(1.0, 3.0, seed=1)
    assert result.diverged == {"SGLD": 0.0, "SGRLD": 1.0, "RMHMC": 0.0}
    assert np.isfinite(result.draws[funnel.SGRLD]).all()


def test_three_samplers_of_one_posterior_by_one_program_for_each(programs):
    small = nuts.run(1000, 0.05, seed=1)
    first = len(programs)
    large = nuts.run(10_000, 0.2, seed=2)
    assert len(programs) == first, "another N was compiled anew"
    np.testing.assert_allclose(small.exact.covariance / large.exact.covariance, 10.0, rtol=0.05)
    for result in (small, large):
        table = result.table().set_index("sampler")
        for row in table.loc[[nuts.NOGIN, nuts.NUTS]].to_dict("records"):
            error = 1.0 / np.sqrt(row["effective draws"])
            assert row["error of the means"] < (MOST + 0.5) * error
            assert row["sd"] == pytest.approx(1.0, abs=0.02 + MOST * error)
    # Batches of 50 of 10,000 rows heat by h N / (2 n): a control that must be seen.
    assert large.table()["sd"].iloc[0] > 2.0
    prices = [r.table()["effective draws a pass"].to_numpy() for r in (small, large)]
    _, by_nogin, by_nuts = prices[1] / prices[0]
    assert 5.0 < by_nogin < 20.0 and 0.2 < by_nuts < 5.0

    again = nuts.run(1000, 0.1, seed=1)
    assert again.runs[nuts.NUTS] is small.runs[nuts.NUTS], "a slider of SGLD leaves the others"
    assert (again.runs[nuts.SGLD].draws != small.runs[nuts.SGLD].draws).any()
    rings = small.ellipses().set_index("law").loc["exact"].to_numpy() - small.exact.mean[None]
    distance = np.einsum("ki,ij,kj->k", rings, np.linalg.inv(small.exact.covariance), rings)
    np.testing.assert_allclose(distance, 4.0)
    assert len(small.cloud(nuts.NUTS)) >= nuts.SHOWN
