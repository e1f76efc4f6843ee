"""The table of learning coefficients: averages, coverage, the order of the cases."""

import numpy as np
import pytest

from benchmarks.local import formulas
from benchmarks.local.cases import CASES
from benchmarks.local.command import line, summary
from benchmarks.local.gibbs import by_gibbs

RECORD = {
    "case": "rank-2-2-2", "parameters": 8, "estimate": 1.8, "error": 0.1, "reference": 1.7,
    "reference error": 0.01, "limit": 2.0, "covered": True, "verdict": "KNOWN", "seconds": 3.0,
}  # fmt: skip


def test_keys_are_averaged_and_the_worst_is_told():
    other = RECORD | {"estimate": 1.5, "covered": False, "verdict": "IMPRECISE", "seconds": 5.0}
    first = RECORD | {"case": "regression-2"}
    table = summary([RECORD, other, first])
    assert [row[0] for row in table.rows] == ["regression-2", "rank-2-2-2"]  # as CASES has them
    keys, mean, worst, covered, known, seconds = table.rows[1][4:]
    assert (keys, covered, known, seconds) == ("2", "1", "1", "4.0")
    assert (mean, worst) == ("-2.9%", "-11.8%")
    assert "covered: 2 of 3" in table.notes[0]
    assert list(CASES)[0] == "regression-2"


def test_a_line_says_whether_the_error_covers():
    assert "yes KNOWN, 3.0" in line(RECORD) and "+5.9%" in line(RECORD)
    assert " NO KNOWN" in line(RECORD | {"covered": False})


@pytest.mark.parametrize("localization", [1.0, 10.0])
def test_draws_of_a_layer_at_a_time_are_right_on_a_crossing(localization):
    t = 500.0
    two = [np.zeros((1, 1)), np.zeros((1, 1))]  # t (x y)^2 / 2
    found, error = by_gibbs(two, t, localization)
    exact = formulas.crossing(2, t / 2.0, localization)
    other = formulas.crossing(2, t / 2.0, 3.0 * localization)  # the control: another law
    assert abs(found - exact) < 4.0 * error < abs(found - other)


def test_draws_of_the_only_layer_are_right_exactly():
    found, error = by_gibbs([np.ones((3, 4))], 40.0, 5.0)
    exact = formulas.regular(np.ones(12), 40.0, 5.0)
    assert abs(found - exact) < 4.0 * error < abs(found - 0.5 * 12)
