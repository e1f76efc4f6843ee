"""The discrete law of Euler-Maruyama against values known to nine digits and closed forms."""

import jax.numpy as jnp
import numpy as np
import pytest

from ergodax.verify.grid import Axis
from ergodax.verify.transition import transition_law

pytestmark = pytest.mark.usefixtures("x64")

AXIS = Axis(-4.0, 4.0, 200)


def one(z):
    return 1.0


def wavy(z):
    """The variance of a gradient noise of standard deviation 1 - cos(1 + 5 x)."""
    return (1.0 - jnp.cos(1.0 + 5.0 * z)) ** 2


def squares(law):
    return [law.mean(lambda z: z[0] ** 2), law.mean(lambda z: z[0] ** 4)]


KNOWN = [  # U = (x^2 - 1)^2 / 4: step, gradient noise, E x^2, E x^4
    (0.05, None, 1.030023183, 2.092448000),
    (0.05, wavy, 1.040569098, 2.142616264),
    (0.025, None, 1.036166537, None),
    (0.025, wavy, 1.041525808, None),
    (0.0125, None, 1.039034344, None),
    (0.0125, wavy, 1.041741463, None),
]


@pytest.mark.parametrize("h, noise, second, fourth", KNOWN)
def test_the_double_well(h, noise, second, fourth):
    found = squares(transition_law(lambda z: z - z**3, one, h, AXIS, gradient_noise=noise))
    np.testing.assert_allclose(found[0], second, atol=1e-9)
    if fourth is not None:
        np.testing.assert_allclose(found[1], fourth, atol=1e-9)


@pytest.mark.parametrize(
    "h, known", [(0.01, (0.825814088, 1.083827834)), (0.005, (0.829346259, 1.083216181))]
)
def test_the_higher_barrier(h, known):
    law = transition_law(lambda z: 4.0 * z - 4.0 * z**3, one, h, Axis(-3.0, 3.0, 200))
    np.testing.assert_allclose(squares(law), known, atol=1e-9)


@pytest.mark.parametrize("h, known", [(0.1, 1.130766549), (0.05, 1.063532888)])
def test_a_gaussian_with_a_wavy_noise(h, known):
    law = transition_law(lambda z: -z, one, h, Axis(-9.0, 9.0, 300), gradient_noise=wavy)
    np.testing.assert_allclose(squares(law)[0], known, atol=1e-9)
    np.testing.assert_allclose(law.mean(lambda z: z[0]), 0.0, atol=1e-9)


@pytest.mark.parametrize("h, variance", [(0.2, 0.0), (0.2, 5.0), (0.5, 1.0)])
def test_a_gaussian_with_a_constant_noise(h, variance):
    """Var = (2 h + h^2 V) / (1 - (1 - h)^2)."""
    axis = Axis(-12.0, 12.0, 300)
    law = transition_law(lambda z: -z, one, h, axis, gradient_noise=lambda z: variance)
    expected = (2.0 * h + h**2 * variance) / (1.0 - (1.0 - h) ** 2)
    np.testing.assert_allclose(squares(law)[0], expected, atol=1e-9)


def test_a_density_evolves_by_the_closed_form():
    """From N(m, s): mean (1 - h)^n m, variance by its recursion."""
    h, steps = 0.1, 7
    law = transition_law(lambda z: -z, one, h, Axis(-9.0, 9.0, 400))
    start = law.density(lambda z: jnp.exp(-0.5 * (z[0] - 2.0) ** 2 / 0.3))
    later = law.evolve(start, steps)
    mean, variance = 2.0, 0.3
    for _ in range(steps):
        mean, variance = (1.0 - h) * mean, (1.0 - h) ** 2 * variance + 2.0 * h
    np.testing.assert_allclose(law.mass(later), 1.0, atol=1e-12)
    np.testing.assert_allclose(law.mean(lambda z: z[0], later), mean, atol=1e-10)
    second = law.mean(lambda z: z[0] ** 2, later)
    np.testing.assert_allclose(second, variance + mean**2, atol=1e-10)


def test_it_is_stationary():
    law = transition_law(lambda z: z - z**3, lambda z: 1.0 / (1.0 + z**2), 0.05, AXIS)
    np.testing.assert_allclose(law.evolve(law.stationary(), 3), law.stationary(), atol=1e-13)
    assert law.weights.min() >= 0 and law.lost < 1e-9


def test_an_axis_too_wide_loses_nothing_until_it_is_refused():
    """The points that the message says would do, do."""
    for end, points in ((40.0, 200), (80.0, 505)):  # cells of 0.63 and 0.50 of the noise
        law = transition_law(lambda z: -z, one, 0.2, Axis(-end, end, points))
        np.testing.assert_allclose(squares(law)[0], 1.0 / (1.0 - 0.1), atol=1e-9)
    with pytest.raises(ValueError, match="too narrow for cells of width 0.8. Try points=505"):
        transition_law(lambda z: -z, one, 0.2, Axis(-80.0, 80.0, 200))
    with pytest.raises(ValueError, match="axis loses 1.* a shorter one, or a smaller step_size"):
        transition_law(lambda z: z - z**3, one, 0.2, Axis(-5.0, 5.0, 400))


def test_a_step_without_noise_is_refused():
    with pytest.raises(ValueError, match="variance 0 .*A step without noise has no density"):
        transition_law(lambda z: -z, lambda z: 0.0, 0.2, AXIS)


FAULTS = {
    "sqrt(h) for h in the gradient noise": lambda h: lambda z: wavy(z) / h,
    "the standard deviation for the variance": lambda h: lambda z: jnp.sqrt(wavy(z)),
    "no gradient noise": lambda h: lambda z: 0.0,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_rejected(fault):
    h, _, second, fourth = KNOWN[1]
    axis = Axis(-6.0, 6.0, 300)
    law = transition_law(lambda z: z - z**3, one, h, axis, gradient_noise=FAULTS[fault](h))
    with pytest.raises(AssertionError, match="Not equal"):
        np.testing.assert_allclose(squares(law), [second, fourth], atol=1e-5)
