"""A run that ends when its time is up: what it has drawn is what a longer one begins with."""

import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.diagnostics import bias
from ergodax.driver.progress import Clock

KERNEL = ex.sgld(ex.FullGradient(ex.Target(lambda x: 0.5 * jnp.sum(x**2))), 0.1)
WHOLE = 1_000


def run(key, **more):
    settings = {"key": key, "num_chains": 2, "thin": 2, "progress": False}
    return ex.sample(KERNEL, jnp.ones(2), WHOLE, **settings | more)


def test_no_time_is_one_chunk(key, monkeypatch):
    monkeypatch.setattr(Clock, "steps", lambda self: 40)
    short, whole = run(key, max_seconds=0.0), run(key)
    assert short.num_draws == 20 and whole.num_draws == WHOLE // 2
    np.testing.assert_array_equal(short.position, whole.position[:, :20])
    more = run(key, max_seconds=1e6)
    np.testing.assert_array_equal(more.position, whole.position)


def test_a_run_out_of_time_has_no_draws_before_its_burn_in_ends(key, monkeypatch):
    monkeypatch.setattr(Clock, "steps", lambda self: 40)
    assert run(key, burn_in=100, max_seconds=0.0).num_draws == 0


def test_it_can_be_gone_on_with(key, monkeypatch, tmp_path):
    monkeypatch.setattr(Clock, "steps", lambda self: 40)
    run(key, max_seconds=0.0, checkpoint=ex.Checkpoint(tmp_path / "run"))
    on = run(key, checkpoint=ex.Checkpoint(tmp_path / "run", resume=True))
    np.testing.assert_array_equal(on.position, run(key).position)


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), "soon"])
def test_what_is_no_time_is_refused(key, seconds):
    with pytest.raises((TypeError, ValueError), match="max_seconds"):
        run(key, max_seconds=seconds)


def test_a_bias_of_hardly_any_draws_is_not_told(key, monkeypatch):
    monkeypatch.setattr(Clock, "steps", lambda self: 4)
    make = lambda h: ex.sgld(ex.FullGradient(ex.Target(lambda x: 0.5 * jnp.sum(x**2))), h)  # noqa: E731
    settings = {"key": key, "progress": False, "max_seconds": 0.0}
    with pytest.raises(TimeoutError, match="max_seconds"):
        bias(make, jnp.ones(2), 0.1, 400, **settings)
    monkeypatch.setattr(Clock, "steps", lambda self: 40)
    assert bias(make, jnp.ones(2), 0.1, 400, **settings).samples.num_draws == 40
