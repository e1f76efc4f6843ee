"""Schedules, and that the steps of a run follow them."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ergodax as ex
from ergodax.schedule import Constant, Cyclical, Polynomial, as_schedule

STEPS = jnp.arange(12, dtype=jnp.int32)
GRADIENT = ex.FullGradient(ex.Target(lambda x: 0.5 * jnp.sum(x**2)))


def values(schedule) -> np.ndarray:
    return np.asarray(jax.vmap(schedule)(STEPS))


def test_constant():
    np.testing.assert_allclose(jax.vmap(Constant(0.3), axis_size=12)(STEPS), 0.3)


def test_polynomial_is_a_times_b_plus_t_to_the_minus_power():
    schedule = Polynomial(0.1, offset=5.0, power=0.55)
    a = 0.1 * 5.0**0.55
    np.testing.assert_allclose(values(schedule), a * (5.0 + np.arange(12)) ** -0.55, rtol=1e-6)


def test_cyclical_restarts():
    """A cycle of five steps by hand: r = (t mod P) / P from t = 0."""
    cycle = [1.0, 0.904508, 0.654508, 0.345492, 0.095492]
    np.testing.assert_allclose(values(Cyclical(1.0, 5)), [*cycle, *cycle, 1.0, 0.904508], atol=1e-6)


SCHEDULES: dict[str, Callable[[], Any]] = {
    "number": lambda: 0.1,
    "polynomial": lambda: Polynomial(0.1),
    "cyclical": lambda: Cyclical(0.1, 3),
    "optax constant, a Python float": lambda: optax.constant_schedule(0.1),
    "optax cosine": lambda: optax.cosine_decay_schedule(0.1, 6, alpha=0.1),
    "optax joined": lambda: optax.join_schedules(
        [optax.linear_schedule(0.0, 0.1, 3), optax.exponential_decay(0.1, 2, 0.5)], [3]
    ),
    "a function that returns an integer": lambda: lambda step: jnp.where(step < 3, 1, 2),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", SCHEDULES)
@pytest.mark.parametrize("build", [ex.sgld, ex.langevin, ex.hmc], ids=["sgld", "langevin", "hmc"])
def test_the_steps_of_a_run_follow_the_schedule(kind, build, key):
    # optax's own arithmetic promotes dtypes; ours may not, and test_contract watches it.
    with jax.numpy_dtype_promotion("standard"):
        seen, expected = follow(SCHEDULES[kind](), build, key)
    np.testing.assert_allclose(seen, expected, rtol=1e-6)


def follow(made: Any, build: Any, key: Any) -> tuple[list, list]:
    """The step sizes of five steps, and what the schedule says."""
    state = (kernel := build(GRADIENT, made)).init(key, jnp.ones(2))
    step, seen = jax.jit(lambda k, s: kernel.step(k, s)), []
    for k in jax.random.split(key, 5):
        state, info = step(k, state)
        seen.append(float(info.step_size))
    return seen, [float(np.asarray(made(t))) if callable(made) else made for t in STEPS[:5]]


def test_temperature_follows_its_schedule(key):
    """At temperature zero SGLD is gradient descent: x (1 - h) exactly."""
    kernel = ex.sgld(GRADIENT, 0.1, temperature=lambda step: jnp.where(step < 1, 1.0, 0.0))
    one, _ = kernel.step(key, kernel.init(key, jnp.ones(3)))
    two, _ = kernel.step(key, one)
    assert float(jnp.abs(one.position - 0.9).min()) > 1e-4
    np.testing.assert_allclose(two.position, 0.9 * one.position, rtol=1e-6)


BAD = {
    "zero": (0.0, ValueError, "h must be positive and finite, not 0.0"),
    "negative": (-1.0, ValueError, "h must be positive and finite"),
    "nan": (np.nan, ValueError, "h must be positive and finite"),
    "infinite": (np.inf, ValueError, "h must be positive and finite"),
    "text": ("fast", TypeError, "h must be a number or a function.*Try h=1e-3"),
    "vector": (np.ones(2), TypeError, "h must be a number or a function"),
    "vector schedule": (lambda t: jnp.ones(2), TypeError, r"h must return one number.*\(2,\)"),
}


@pytest.mark.parametrize("case", BAD)
def test_refused(case):
    value, error, message = BAD[case]
    with pytest.raises(error, match=message):
        as_schedule(value, "h")


def test_zero_where_it_means_something():
    assert float(as_schedule(0.0, "temperature", allow_zero=True)(STEPS[0])) == 0.0


@pytest.mark.parametrize(
    "make",
    [
        lambda: Polynomial(0.0),
        lambda: Polynomial(1.0, offset=-1.0),
        lambda: Polynomial(1.0, power=jnp.nan),
        lambda: Cyclical(1.0, 0),
        lambda: Cyclical(-1.0, 5),
    ],
)
def test_schedules_refuse_numbers_that_are_not_positive(make):
    with pytest.raises(ValueError, match="must be"):
        make()
