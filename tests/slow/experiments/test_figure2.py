"""Figure 2 of Ma, Chen and Fox: its estimators on known laws, and its samplers in small.

Every comparison of a sampled number has a false-alarm probability of `FALSE_ALARM`, by Student's
t over the repeats; there are fewer than 20.
"""

import jax
import pytest
from scipy import stats

from experiments import measured
from experiments.ma_chen_fox_2015 import figure2, line, samplers
from experiments.ma_chen_fox_2015 import singular_metric as singular

FALSE_ALARM = 1e-6
NORMAL, WELL = line.CASES
SMALL = figure2.Size(repeats=40, num_chains=25, duration=100.0)


def edges_of(case):
    return line.edges_of(case.truth, SMALL.bins)


def assert_agrees(measured, expected, repeats=SMALL.repeats):
    allowed = stats.t.isf(0.5 * FALSE_ALARM, repeats - 1)
    deviation = measured.deviation(expected)
    assert abs(deviation) <= allowed, f"{measured} is {deviation:.1f} errors from {expected}"


@pytest.fixture(scope="module")
def limits():
    """The laws of both Riemannian samplers with noisy gradients, extrapolated to h = 0."""
    edges, found = edges_of(NORMAL), {}
    named = samplers.samplers(samplers.noisy(NORMAL.target, samplers.NOISE), NORMAL.offset)
    for place, name in enumerate(("naive SGRHMC", "gSGRHMC")):
        both = [
            figure2.sample_law(
                named[name](h), h, NORMAL, SMALL, edges, jax.random.key(10 * place + half)
            )
            for half, h in enumerate(figure2.STEPS)
        ]
        law = both[0].extrapolated(both[1])
        found[name] = figure2.measures(law, NORMAL.truth.probabilities(edges))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "own", "other"), [("gSGRHMC", "", "naive_"), ("naive SGRHMC", "naive_", "")]
)
def test_each_sampler_has_its_own_law_and_not_the_other(limits, name, own, other):
    exact = line.exact_values(NORMAL, edges_of(NORMAL))
    speed = measured.number(limits[name], "log_speed")
    assert_agrees(speed, exact[f"{own}log_speed"])
    assert_agrees(measured.number(limits[name], "second_moment"), exact[f"{own}second_moment"])
    with pytest.raises(AssertionError, match="errors from"):
        assert_agrees(speed, exact[f"{other}log_speed"])


@pytest.mark.slow
def test_divergences_of_the_limits(limits):
    exact = line.exact_values(NORMAL, edges_of(NORMAL))["naive_kl_from_target_in_bins"]
    naive = measured.number(limits["naive SGRHMC"], "kl_from_target")
    right = measured.number(limits["gSGRHMC"], "kl_from_target")
    assert_agrees(naive, exact)
    assert abs(right.deviation(0.0)) < 6 and naive.value > 2 * abs(right.value)


def crossings(offset, step):
    size = singular.Size(num_chains=200, duration=20.0)
    row = singular.occupation(offset, step, size, jax.random.key(5), False)
    assert sum(row[name] for name in singular.PIECES) == pytest.approx(1.0)
    assert row["diverged"] == 0.0 or offset == singular.PRINTED
    return row["crossings"]


@pytest.mark.slow
def test_the_printed_metric_divides_the_line_and_a_positive_one_does_not():
    """Crossings fall to 0.4, like h^(1/3); thousands are counted, so 0.15 is many errors."""
    coarse, _, fine = singular.STEPS
    printed, positive = (
        crossings(offset, fine) / crossings(offset, coarse)
        for offset in (singular.PRINTED, singular.POSITIVE)
    )
    assert printed < 0.65
    assert positive == pytest.approx(1.0, abs=0.15)
