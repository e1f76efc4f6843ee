"""Values that someone might pass for any argument, by mistake or out of malice.

Arrays of NumPy's and iterators are made anew, since an earlier call may have changed them.
"""

import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import ergodax as ex

PLAIN = [
    None, True, False, 0, 1, 2, 3, 7, -1, 100, 2**31, 2**63, 10**30, -(2**31),
    0.0, 0.5, 1.0, -1.0, 1e-3, float("nan"), float("inf"), -float("inf"), 1e300, 1e-320, 1j,
    "", "abc", "1", "auto", b"x", int, np.float32, Path("/nowhere"), ..., NotImplemented,
]  # fmt: skip
NUMPY = [
    np.int64(3), np.uint8(3), np.int64(-3), np.float32(0.1), np.float64("nan"), np.bool_(True),
    np.str_("a"), np.array(1), np.array(0.1), np.array("a"), np.datetime64("2026-01-01"),
]  # fmt: skip


def hostile(rng: np.random.Generator) -> Any:
    """One of them."""
    makers = [_plain, _plain, _numpy, _container, _array, _array, _function]
    which = rng.integers(len(makers) + 2)
    if which >= len(makers):
        return _pick(rng, _jax() if which == len(makers) else _ours())
    return makers[which](rng)


def _pick(rng: np.random.Generator, values: list) -> Any:
    return values[rng.integers(len(values))]


def _plain(rng: np.random.Generator) -> Any:
    return _pick(rng, PLAIN)


def _numpy(rng: np.random.Generator) -> Any:
    return _pick(rng, NUMPY)


def _container(rng: np.random.Generator) -> Any:
    return _pick(rng, [
        [], (), {}, set(), [1, 2], (1.0, 2.0), (0.1, 0.2, 0.3), {"a": 1.0}, {"a": np.ones(2)},
        {1: 2.0, "b": 3.0}, [[1.0, 2.0], [3.0]], [None], ["a", "b"], [[[1.0]]], (np.ones(2),),
        range(3), iter([1, 2]), {"x": {"y": [np.ones((2, 2)), None]}}, frozenset([1]), slice(2),
    ])  # fmt: skip


def _array(rng: np.random.Generator) -> Any:
    return _pick(rng, [
        np.array([]), np.zeros((0, 2)), np.zeros((2, 0)), np.ones(1), np.ones(2), np.ones(3),
        np.ones((2, 2)), np.eye(2), -np.eye(2), np.ones((2, 3)), np.ones((2, 2, 2)),
        np.eye(2) * 1e-300, np.full(2, np.nan), np.full((2, 2), np.inf), np.ones(2, np.int64),
        np.array([2**40, 1]), np.ones(2, complex), np.ones(2, bool), np.ones(2, np.float16),
        np.array(["a", "b"]), np.array([None, 1], object), np.zeros(2, "M8[s]"),
        np.zeros(2, [("a", "f4")]), np.arange(12.0).reshape(2, 3, 2), np.triu(np.ones((2, 2))),
        np.zeros((2, 2)), np.array([0.1, 0.2], np.float32), np.ones((6, 2), np.float32),
    ])  # fmt: skip


@functools.cache
def _jax() -> list:
    return [
        jnp.float32(0.1), jnp.int32(2), jnp.ones(2), jnp.zeros((0,)), jnp.ones((2, 2)),
        jnp.ones(2, jnp.bfloat16), jnp.ones(2, int), jnp.ones(2, bool), jax.random.key(0),
        jax.random.PRNGKey(0), jax.random.split(jax.random.key(0)),
        jax.ShapeDtypeStruct((2,), jnp.float32),
    ]  # fmt: skip


def _function(rng: np.random.Generator) -> Any:
    return _pick(rng, [
        lambda x: x, lambda: 1.0, lambda *a: None, lambda *a: "text", lambda *a: jnp.ones(3),
        lambda *a: 0.0, lambda *a: np.ones((2, 2)), lambda *a: float("nan"), lambda *a: 1,
        lambda *a: [], len, jnp.sum,
    ])  # fmt: skip


@functools.cache
def _ours() -> list:
    target = ex.Target(lambda x: 0.5 * jnp.sum(x**2))
    return [
        target, ex.FullGradient(target), ex.sgld(ex.FullGradient(target), 0.1), ex.sgld,
        ex.Posterior, ex.Diagonal(jnp.ones(2)), ex.Scalar(-1.0), ex.Dense(jnp.ones((3, 3))),
        ex.LowRank(jnp.ones((1, 2))), ex.schedule.Constant(0.1), ex.data.ShuffledEpochs(),
        ex.dynamics.langevin(), ex.verify.Axis(-1.0, 1.0, 8), ex.Samples(np.ones((2, 0)), {}, {}),
    ]  # fmt: skip
