"""L-BFGS on the host: what it counts, where rounding hides the descent, where it must stop."""

import numpy as np
import pytest

from ergodax.target.mode import minimise

CURVATURES = np.geomspace(1.0, 1e4, 6)
LEVEL = 3e5  # of a potential whose single-precision rounding is 0.03
EPSILON = float(np.finfo(np.float32).eps)


def rounded(x):
    """A quadratic in single precision, far above 0, with gradients that are good."""
    return float(np.float32(LEVEL + 0.5 * x @ (CURVATURES * x))), CURVATURES * x


def small(value):
    return 1e-2


def test_it_goes_on_below_the_rounding_of_the_potential():
    start = np.full(6, 3.0)
    found = minimise(rounded, start, small, 500, EPSILON)
    assert found.converged and found.gradient_norm <= 1e-2
    blind = minimise(rounded, start, small, 500, 0.0)
    assert not blind.converged, "by values alone the line search ends on a slope"


def test_evaluations_and_iterations_are_counted():
    calls = []

    def function(x):
        calls.append(x.copy())
        return rounded(x)

    found = minimise(function, np.ones(6), small, 500, EPSILON)
    assert found.evaluations == len(calls) > found.iterations > 0
    np.testing.assert_array_equal(found.position, calls[-1])
    stopped = minimise(rounded, np.ones(6), small, 2, EPSILON)
    assert stopped.iterations == 2 and not stopped.converged


@pytest.mark.parametrize("wall", [np.nan, np.inf])
def test_a_wall_is_not_the_minimum(wall):
    def function(x):
        if x[0] < -1.0:
            return wall, np.full(6, np.nan)
        return rounded(x)

    found = minimise(function, np.full(6, 50.0), small, 500, EPSILON)
    assert np.isfinite(found.potential) and np.isfinite(found.position).all()
    assert found.position[0] >= -1.0
