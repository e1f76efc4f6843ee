"""What is made on the host: keys, numbers, and work in another thread."""

import sys
import threading
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import ergodax as ex
from ergodax.data.arrays import take_at_once
from ergodax.tune.background import in_background
from ergodax.tune.host import fold_in, generator, on_device, split_key

KEY = jax.random.key(9)


def words(keys):
    return [tuple(np.asarray(jax.random.key_data(key)).tolist()) for key in keys]


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_keys_are_distinct_and_of_the_same_kind(impl):
    key = jax.random.key(3, impl=impl)
    keys = split_key(key, 1_000)
    assert len(set(words([key, *keys]))) == 1_001
    assert words(keys) == words(split_key(key, 1_000))
    assert {jax.random.key_impl(k) for k in keys} == {jax.random.key_impl(key)}
    float(jax.random.normal(keys[0]))  # a key like any other


def test_keys_of_numbers_are_none_of_a_split():
    keys = [KEY, *split_key(KEY, 100), *(fold_in(KEY, number) for number in range(100))]
    assert len(set(words(keys))) == 201
    assert words([fold_in(KEY, 3)]) == words([fold_in(KEY, 3)])


def test_raw_keys_are_keys():
    raw = jax.random.PRNGKey(9)
    assert words(split_key(raw, 2)) == words(split_key(KEY, 2))
    with pytest.raises(TypeError, match="key must be one key"):
        split_key(jnp.zeros(3), 2)


def test_generators_of_different_keys_are_independent():
    draws = np.stack([generator(key).standard_normal(1_000) for key in [KEY, *split_key(KEY, 20)]])
    np.testing.assert_array_equal(draws[0], generator(KEY).standard_normal(1_000))
    correlations = np.triu(np.corrcoef(draws), 1) * np.sqrt(1_000)
    assert np.abs(correlations).max() < scipy.stats.norm.isf(1e-6 / 2 / 210)
    assert scipy.stats.kstest(draws.ravel(), "norm").pvalue > 1e-6


def test_nothing_is_compiled():
    compiled = []

    def listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
        if event.endswith("backend_compile_duration"):
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        generator(split_key(KEY, 7)[3]).standard_normal(17)
        fold_in(KEY, 5)
        rows = on_device(np.arange(57.0).reshape(19, 3), jnp.float32)
        taken = take_at_once({"x": rows}, np.array([7, 0, 7]))["x"]
        ex.Posterior(jnp.sum, lambda w, x: x @ w, np.ones((19, 3), np.float32))
        assert not compiled
        np.testing.assert_array_equal(taken, np.asarray(rows)[[7, 0, 7]])
        assert not taken.committed
        jnp.ones((3, 19))  # the negative control
        assert compiled
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def test_arrays_are_copies():
    mine = np.zeros(64)
    theirs = on_device(mine, jnp.float32)
    mine[:] = 1.0
    np.testing.assert_array_equal(theirs, 0.0)
    assert theirs.dtype == jnp.float32


def test_a_thread_has_the_settings_of_its_caller():
    def settings():
        return jnp.zeros(()).dtype, jax.config.jax_numpy_dtype_promotion

    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        inside, here = in_background(settings).result(), settings()
    assert inside == here != settings()
    assert inside[0] == jnp.float64
    assert in_background(settings).result() == settings()


def test_what_a_thread_raises_is_raised_where_its_result_is_asked_for():
    with pytest.raises(ZeroDivisionError):
        in_background(lambda: 1 / 0).result()


def test_no_thread_holds_the_filters_of_warnings(monkeypatch):
    """They are of the process: a thread that puts back old ones silences a warning of another.

    Pandas holds them for microseconds where it builds a table; Equinox would while XLA compiles.
    """
    holders, enter = set(), warnings.catch_warnings.__enter__

    def told(self):
        if threading.current_thread() is not threading.main_thread():
            holders.add(sys._getframe(1).f_globals["__name__"].partition(".")[0])
        return enter(self)

    def touching():
        with warnings.catch_warnings():
            pass

    monkeypatch.setattr(warnings.catch_warnings, "__enter__", told)
    in_background(touching).result()
    assert holders, "one that does is seen"
    holders.clear()
    x = np.random.default_rng(0).normal(size=20_000).astype(np.float32)
    model = ex.Posterior(lambda m: -0.5 * m**2, lambda m, x: -0.5 * (x - m) ** 2, x)
    ex.infer(model, jnp.float32(0.0), key=KEY, progress=False)
    assert holders <= {"pandas"}
