"""NUTS within a time that is known beforehand."""

import jax
import jax.numpy as jnp
import pytest

import ergodax as ex
from ergodax.tune import Coordinates, DecisionLog
from ergodax.tune.nuts import Nuts, nuts_in_time

KEY = jax.random.key(5)
GAUSSIAN = ex.Target(lambda x: 0.5 * jnp.sum(x**2))


@pytest.mark.slow
@pytest.mark.parametrize("doublings", [1, 3, 5])
def test_a_trajectory_is_no_longer_than_its_doublings_allow(doublings):
    """A step so short that it would go on for long."""
    kernel = Nuts(GAUSSIAN, jnp.float32(0.01), jnp.ones(2), doublings)
    _, info = kernel.step(KEY, kernel.init(KEY, jnp.ones(2)))
    assert info.evaluations == 2**doublings - 1


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.0, 1e6])
def test_nuts_if_there_is_time(seconds, monkeypatch):
    monkeypatch.setattr("ergodax.tune.nuts.WARM_UP", 20)
    log, coordinates = DecisionLog(), Coordinates(jnp.zeros(2), jnp.ones(2))
    found = nuts_in_time(GAUSSIAN, coordinates, log, KEY, 2, (), seconds)
    chosen = log.decisions[-1].chosen
    if seconds:
        assert found is not None and chosen == "NUTS" and found.kernel.max_doublings == 7
    else:
        assert found is None and chosen == "not NUTS"
