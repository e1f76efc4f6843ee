"""Keys, random numbers and small arrays that are made on the host.

A stage of `infer` wants a few numbers, once: JAX would compile a program for each of their shapes.
"""

from typing import Any

import jax
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from ergodax.kernel import check_key


def split_key(key: Any, num: int) -> list[PRNGKeyArray]:
    """Independent keys, as of `jax.random.split` though not the same ones.

    Args:
        key: a key of `jax.random.key`.
        num: how many.

    Raises:
        TypeError: not a key.
    """
    key = check_key(key)
    size = jax.random.key_data(key).size
    words = _sequence(key, 0).generate_state(num * size).reshape(num, size)
    impl = jax.random.key_impl(key)
    return [jax.random.wrap_key_data(jax.device_put(word), impl=impl) for word in words]


def generator(key: Any) -> np.random.Generator:
    """NumPy's generator, seeded by a key.

    Args:
        key: a key of `jax.random.key`.

    Raises:
        TypeError: not a key.
    """
    return np.random.default_rng(_sequence(check_key(key), 1))


def on_device(array: Any, dtype: Any) -> Array:
    """A copy of a NumPy array on the device.

    Args:
        array: or what NumPy makes one of.
        dtype: one that JAX has.
    """
    return jax.device_put(np.array(array, dtype))


def _sequence(key: PRNGKeyArray, use: int) -> np.random.SeedSequence:
    words = np.asarray(jax.random.key_data(key)).ravel().tolist()
    return np.random.SeedSequence(words, spawn_key=(use,))
