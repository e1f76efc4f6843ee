"""Ends of descents along a valley are no other modes: no barrier parts them from the first.

Each test is shown to fail without the rule that it is for.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.tune import modes
from ergodax.tune.modes import Descents, other_modes, scout
from ergodax.tune.whitening import Coordinates

pytestmark = pytest.mark.slow

KEY = jax.random.key(4)
ROWS = 2_500  # more than the scouts see


def without(monkeypatch, name, value):
    """The rule, or what it goes by, taken out."""
    monkeypatch.setattr(modes, name, value)


def no_barrier_rule(*_):
    return True


def flat_floor(p):
    """A mode of scale 1, 1.5 deep, in a flat valley that is 120 long."""
    x, y = p
    walls = 0.5 * jnp.maximum(jnp.abs(x) - 60.0, 0.0) ** 2
    return 50.0 * y**2 + walls - 1.5 * jnp.exp(-0.5 * x**2)


def of_rows(potential):
    """The same potential as a sum over rows that are all alike."""
    return ex.Posterior(
        lambda p: 0.0 * jnp.sum(p), lambda p, x: -potential(p) * x / ROWS, jnp.ones(ROWS)
    )


def found(target, sds, centre=(0.0, 0.0)):
    centre = jnp.asarray(centre)
    return other_modes(
        target, Coordinates(centre, jnp.asarray(sds)), scout(target, centre, key=KEY)
    )


@pytest.mark.parametrize("make", [ex.Target, of_rows])
def test_a_flat_valley_has_no_other_modes(make, monkeypatch):
    target = make(flat_floor)
    assert found(target, (0.8, 0.1)) == []
    without(monkeypatch, "_parted", no_barrier_rule)
    assert found(target, (0.8, 0.1))


def slope(p):
    """A narrow valley that goes down in a straight line, 2 in potential for 1 in length."""
    x, y = p
    return 2.0 * jnp.sqrt(1.0 + (x + y) ** 2) + 1e4 * (x - y) ** 2


def test_a_search_that_ended_on_its_way_down_a_valley_is_none(monkeypatch):
    ends = jnp.array([[0.0, 0.0], [2.5, 2.5], [-2.8, -2.8]])
    descents = Descents(ends, jax.vmap(slope)(ends), jnp.ones(3, bool))  # as if they had an end
    coordinates = Coordinates(jnp.zeros(2), jnp.array([0.3, 0.3]))
    assert other_modes(ex.Target(slope), coordinates, descents) == []
    without(monkeypatch, "_parted", no_barrier_rule)
    assert len(other_modes(ex.Target(slope), coordinates, descents)) == 2


def bent(p):
    """A narrow valley along a parabola: straight lines between places in it lead over its walls."""
    x, y = p
    return 2.0 * jnp.sqrt(1.0 + x**2) + 5e3 * (y - 0.1 * x**2) ** 2


@pytest.mark.slow
def test_a_search_in_a_bent_valley_goes_on(monkeypatch):
    without(monkeypatch, "ITERATIONS", (10,))  # too few to come to its end
    target = ex.Target(bent)
    assert found(target, (0.7, 0.01)) == []
    without(monkeypatch, "FURTHER", 0)
    assert found(target, (0.7, 0.01))


def bent_wells(p):
    """Two modes at the ends of such a valley, 12.8 above both in the middle."""
    x, y = p
    return 0.05 * (x**2 - 16.0) ** 2 + 5e3 * (y - 0.1 * x**2) ** 2


@pytest.mark.slow
@pytest.mark.parametrize("iterations", [10, 100])
def test_the_other_end_of_a_bent_valley_is_still_a_mode(iterations, monkeypatch):
    without(monkeypatch, "ITERATIONS", (iterations,))
    (u,) = found(ex.Target(bent_wells), (0.4, 0.01), (4.0, 1.6))
    np.testing.assert_allclose(u, [-20.0, 0.0], atol=0.5)
