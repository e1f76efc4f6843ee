"""Keys, random numbers, rows and small arrays that are made on the host.

A stage of `infer` wants a few numbers, once: JAX would compile a program for each of their shapes.
"""

from typing import Any

import jax
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from ergodax.data.arrays import take_at_once
from ergodax.kernel import check_key
from ergodax.target.base import AbstractTarget
from ergodax.target.posterior import Posterior


def split_key(key: Any, num: int) -> list[PRNGKeyArray]:
    """Independent keys, as of `jax.random.split` though not the same ones."""
    return _keys(check_key(key), num, 0)


def fold_in(key: PRNGKeyArray, number: int) -> PRNGKeyArray:
    """A key of its own for a number, as of `jax.random.fold_in` though not the same one."""
    return _keys(key, 1, 2, number)[0]


def generator(key: Any) -> np.random.Generator:
    """NumPy's generator, seeded by a key of `jax.random.key`."""
    return np.random.default_rng(_sequence(check_key(key), 1))


def on_device(array: Any, dtype: Any) -> Array:
    """A copy of a NumPy array, or of what NumPy makes one of, on the device.

    What is too large for the dtype is infinite.
    """
    with np.errstate(over="ignore"):
        return jax.device_put(np.array(array, dtype))


def some_rows(target: AbstractTarget, key: PRNGKeyArray, max_rows: int) -> PyTree:
    """At most `max_rows` random rows of the data, which stand for all; None without data."""
    if not isinstance(target, Posterior):
        return None
    if target.num_data <= max_rows:
        return target.data
    rows = generator(key).choice(target.num_data, max_rows, replace=False, shuffle=False)
    return take_at_once(target.data, rows)


def _keys(key: PRNGKeyArray, num: int, *use: int) -> list[PRNGKeyArray]:
    size, impl = jax.random.key_data(key).size, jax.random.key_impl(key)
    words = _sequence(key, *use).generate_state(num * size).reshape(num, size)
    return [jax.random.wrap_key_data(jax.device_put(word), impl=impl) for word in words]


def _sequence(key: PRNGKeyArray, *use: int) -> np.random.SeedSequence:
    words = np.asarray(jax.random.key_data(key)).ravel().tolist()
    return np.random.SeedSequence(words, spawn_key=use)
