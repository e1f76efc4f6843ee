"""Figure 2 of Ma, Chen and Fox: its estimators on known laws, and the exact laws of its chains."""

import jax
import numpy as np
import pandas as pd
import pytest
from scipy import integrate, stats

import ergodax as ex
from experiments import measured
from experiments.ma_chen_fox_2015 import figure2, line, samplers
from experiments.ma_chen_fox_2015 import singular_metric as singular
from experiments.ma_chen_fox_2015.line import Line

FALSE_ALARM = 1e-6
NORMAL, WELL = line.CASES
SMALL = figure2.Size(repeats=40, num_chains=25, duration=100.0)


def edges_of(case):
    return line.edges_of(case.truth, SMALL.bins)


def assert_agrees(measured, expected, repeats=SMALL.repeats):
    allowed = stats.t.isf(0.5 * FALSE_ALARM, repeats - 1)
    deviation = measured.deviation(expected)
    assert abs(deviation) <= allowed, f"{measured} is {deviation:.1f} errors from {expected}"


def test_moments_and_divergences_by_quadrature():
    exact = line.exact_values(NORMAL, edges_of(NORMAL))
    assert exact["second_moment"] == pytest.approx(1.0, abs=1e-10)
    assert exact["naive_second_moment"] == pytest.approx(0.843589969534, abs=1e-10)
    assert exact["naive_kl_to_target"] == pytest.approx(0.00762862539, abs=1e-10)
    assert exact["naive_kl_from_target"] == pytest.approx(0.00800330805, abs=1e-10)
    exact = line.exact_values(WELL, edges_of(WELL))
    assert exact["second_moment"] == pytest.approx(0.83274548712838, abs=1e-10)
    assert exact["naive_second_moment"] == pytest.approx(0.838250471968, abs=1e-10)


@pytest.mark.parametrize("case", line.CASES, ids=lambda case: case.name)
def test_bins_lose_little_of_the_divergence_and_the_log_ratio_is_its_sum(case):
    exact = line.exact_values(case, edges_of(case))
    for way in ("from", "to"):
        whole, binned = exact[f"naive_kl_{way}_target"], exact[f"naive_kl_{way}_target_in_bins"]
        assert 0.97 * whole < binned < whole
    both = exact["naive_kl_from_target"] + exact["naive_kl_to_target"]
    assert exact["log_speed"] - exact["naive_log_speed"] == pytest.approx(both, abs=1e-10)


def test_probabilities_of_bins():
    line = Line(lambda x: -0.5 * x**2, 8.0)
    edges = np.array([-1.3, 0.2, 2.0])
    expected = np.diff(stats.norm.cdf(edges), prepend=0.0, append=1.0)
    np.testing.assert_allclose(line.probabilities(edges), expected, atol=1e-8)
    np.testing.assert_allclose(line.quantile(stats.norm.cdf(edges)), edges, atol=1e-6)


def test_the_printed_metric_vanishes_at_four_points():
    np.testing.assert_allclose(
        singular.ZEROS, [-1.306563, -0.541196, 0.541196, 1.306563], atol=1e-6
    )
    np.testing.assert_allclose(WELL.potential(singular.ZEROS), -singular.PRINTED, atol=1e-12)
    assert WELL.potential(np.linspace(-3, 3, 9999)).min() + WELL.offset > 0.49


def of_the_naive_law(n):
    draws = np.asarray(NORMAL.naive.draw(jax.random.key(1), 40 * n)).reshape(40, n)
    return figure2.law_of(draws, NORMAL, edges_of(NORMAL))


def test_divergence_of_independent_draws():
    law = of_the_naive_law(2000)
    truth = NORMAL.truth.probabilities(edges_of(NORMAL))
    exact = line.exact_values(NORMAL, edges_of(NORMAL))
    row = figure2.measures(law, truth)
    for way in ("kl_from_target", "kl_to_target"):
        assert_agrees(measured.number(row, way), exact[f"naive_{way}_in_bins"])
    for name in ("second_moment", "log_speed"):
        assert_agrees(measured.number(row, name), exact[f"naive_{name}"])
    alone = np.array([measured.divergence(q, truth) for q in law.frequencies])
    with pytest.raises(AssertionError, match="errors from"):  # the bias of a single histogram
        assert_agrees(measured.mean(alone), exact["naive_kl_to_target_in_bins"])


def test_divergence_of_draws_of_the_target_itself_is_zero():
    law = figure2.exact_draws(NORMAL, SMALL, edges_of(NORMAL), jax.random.key(2))
    row = figure2.measures(law, NORMAL.truth.probabilities(edges_of(NORMAL)))
    found = measured.number(row, "kl_from_target")
    assert abs(found.value) < 5e-4 and found.error < 2e-4
    assert row["kl_to_target_one_repeat"] == pytest.approx((SMALL.bins + 1) / 2 / 5000, rel=0.25)


def test_verdicts_on_independent_draws_of_both_laws():
    edges = edges_of(NORMAL)
    laws = {
        "naive SGRHMC": of_the_naive_law(2000),
        "gSGRHMC": figure2.exact_draws(NORMAL, SMALL, edges, jax.random.key(2)),
    }
    head = {"target": NORMAL.name, "noise": 0.0, "step_size": 0.0}
    truth = NORMAL.truth.probabilities(edges)
    rows = [head | {"sampler": s} | figure2.measures(law, truth) for s, law in laws.items()]
    exact = {NORMAL.name: line.exact_values(NORMAL, edges)}
    naive, right = figure2.verdicts(pd.DataFrame(rows), exact)
    assert naive.startswith("naive SGRHMC is wrong on U = x²/2 (exact gradients)")
    assert right.startswith("gSGRHMC is right within its error")
    assert "from exp(-U) / s" in naive and "from exp(-U) / s" not in right


def test_extrapolation_removes_the_first_order():
    def at(h):
        return figure2.Law(np.full((3, 2), 0.5 + h), np.full(3, 1 - 2 * h), np.full(3, h))

    limit = at(0.2).extrapolated(at(0.1))
    np.testing.assert_allclose(limit.frequencies, 0.5)
    np.testing.assert_allclose(limit.second, 1.0)
    np.testing.assert_allclose(limit.log_speed, 0.0, atol=1e-15)


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [(0.83494, 0.00141, "0.8349 ± 0.0014"), (5.2705, 0.481, "5.3 ± 0.5"), (12.3, 25.0, "12 ± 25")],
)
def test_numbers_are_printed_to_the_digits_of_their_error(value, error, text):
    assert str(measured.Measured(value, error)) == text


def test_jackknife_takes_the_bias_of_a_square_away():
    rng = np.random.default_rng(3)
    values = rng.exponential(size=(2000, 10))
    found = [measured.jackknife(lambda mean: float(mean) ** 2, row) for row in values]
    mean = measured.mean(np.array([f.value for f in found]))
    assert_agrees(mean, 1.0, 2000)
    with pytest.raises(AssertionError, match="errors from"):
        assert_agrees(measured.mean(values.mean(axis=1) ** 2), 1.0, 2000)


def test_a_bin_without_draws_is_an_infinite_divergence():
    p, q = np.array([0.5, 0.5]), np.array([1.0, 0.0])
    assert measured.divergence(p, q) == np.inf
    assert measured.divergence(q, p) == pytest.approx(np.log(2))
    rows = np.stack([q, q])
    assert np.isinf(measured.jackknife(lambda x: measured.divergence(p, x), rows).value)


def limit_of_second_moment(name, noise):
    """E x^2 extrapolated from the exact laws of the chains at h = 0.1 and 0.05."""
    axes = [ex.verify.Axis(-5.5, 5.5, 65), ex.verify.Axis(-5.5, 5.5, 65)]
    kernel = samplers.samplers(samplers.noisy(NORMAL.target, noise), NORMAL.offset)[name]
    laws = [
        ex.verify.stationary_law(kernel(h), np.zeros(1), grid=axes, num_nodes=6, order=6)
        for h in (0.1, 0.05)
    ]
    coarse, fine = (law.mean(lambda z: z[0] ** 2) for law in laws)
    return 2.0 * fine - coarse


@pytest.mark.slow
def test_exact_limits_of_the_chains(x64):
    assert limit_of_second_moment("gSGRHMC", 0.0) == pytest.approx(1.0, abs=0.02)
    assert limit_of_second_moment("naive SGRHMC", 0.0) == pytest.approx(0.8436, abs=0.02)


class Bursting(ex.Kernel):
    """Walks one unit to the right a step, and bursts at the fifth."""

    def init(self, key, position):
        return ex.State(position, {}, None, None, jax.numpy.int32(0))

    def step(self, key, state):
        step = state.step + 1
        new = jax.numpy.where(step == 5, jax.numpy.nan, state.position + 1.0)
        return ex.State(new, {}, None, None, step), None


def test_watching_stops_at_the_last_finite_place_and_counts():
    samples = ex.sample(
        singular.Watched(Bursting()), np.full(1, -2.5, np.float32), 8, key=jax.random.key(0)
    )
    state = samples.final_state
    np.testing.assert_array_equal(samples.position[0, :, 0], [-1.5, -0.5, 0.5, 1.5, *[1.5] * 4])
    assert not state.alive[0] and state.age[0] == 4
    assert state.crossings[0] == 2  # from the left tail to the barrier, and on to the right


def test_pieces_hold_the_probabilities_of_the_target():
    line = WELL.truth
    shares = line.probabilities(singular.ZEROS)
    density = lambda x: np.exp(2 * x**2 - x**4)  # noqa: E731
    mass = integrate.quad(density, -4, 4)[0]
    middle = integrate.quad(density, *singular.ZEROS[1:3])[0]
    assert shares[2] == pytest.approx(middle / mass, abs=1e-6)
