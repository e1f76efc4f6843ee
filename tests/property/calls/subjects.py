"""The public constructors and functions, each with arguments that are right.

A subject's optional arguments stand beside those that it needs, so that any of them may be spoilt.
What a run costs is counted: subjects that compile are called less often.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import ergodax as ex
from ergodax.network import likelihoods


class Subject(NamedTuple):
    """A function, right arguments by name (those of `*args` as "*"), and how often it is called."""

    function: Callable[..., Any]
    arguments: dict[str, Any]
    weight: float = 1.0


KEY = jax.random.key(0)
X = np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)
Y = np.array([0, 1, 0, 1, 1, 0], np.float32)
START = jnp.zeros(2)
MATRIX = jnp.array([[2.0, 0.5], [0.5, 1.0]])
SELDOM, RARELY = 0.3, 0.1  # a call that traces, and one that compiles


def square(x: Any) -> Any:
    """A metric and a potential's density of each coordinate."""
    return 1.0 + x**2


def energy(x: Any) -> Any:
    """A normal law's potential."""
    return 0.5 * jnp.sum(x**2)


@functools.cache
def things() -> dict[str, Any]:
    """What other calls are made with."""
    target = ex.Target(energy)
    posterior = ex.Posterior(
        lambda w: -0.5 * jnp.sum(w**2), lambda w, e: -0.5 * (e[1] - e[0] @ w) ** 2, (X, Y)
    )
    full, batch = ex.FullGradient(target), ex.Minibatch(posterior, 2)
    rng = np.random.default_rng(1)
    info = {"evaluations": np.ones((2, 20), int)}
    draws = rng.normal(size=(2, 20, 2))
    return {
        "target": target, "posterior": posterior, "full": full, "batch": batch, "draws": draws,
        "normal": ex.targets.gaussian(np.zeros(2), np.eye(2)),
        "kernel": ex.sgld(full, 0.1), "samples": ex.Samples(draws, _Counts(info), None),
        "network": ex.network.posterior(
            Linear(jnp.zeros((2,))), (X, Y), likelihoods.Gaussian(0.5), batched=True
        ),
    }  # fmt: skip


class _Counts:
    """An Info with evaluations."""

    def __init__(self, info: dict) -> None:
        self.evaluations = info["evaluations"]


class Linear(eqx.Module):
    """A network of one layer."""

    weights: jax.Array

    def __call__(self, x: Any) -> Any:
        return x @ self.weights


def files(folder: Path) -> dict[str, Path]:
    """A file or folder of each format."""
    import pandas as pd
    import zarr

    paths = {kind: folder / f"rows.{kind}" for kind in ("npy", "parquet", "csv", "npz", "zarr")}
    np.save(paths["npy"], X)
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": Y})
    frame.to_parquet(paths["parquet"])
    frame.to_csv(paths["csv"], index=False)
    np.savez(paths["npz"], x_train=X, y_train=Y)
    zarr.create_array(paths["zarr"], data=X)
    paths["samples"] = ex.Samples(np.ones((2, 5)), {}, {}).save(folder / "samples.zarr")
    return paths
